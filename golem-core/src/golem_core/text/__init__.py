"""Text to tokens and back, chat templates, and what a growing answer says."""

from golem_core.text.answer import (
    Call,
    CallBegun,
    CallBroken,
    CallDone,
    CallText,
    ChatFormat,
    Content,
    Event,
    Reply,
    Thought,
    Tools,
    turn,
)
from golem_core.text.calls import JsonCall, TaggedCall
from golem_core.text.detokenize import Detokenizer, StopStrings, check_stops
from golem_core.text.grammar import Grammar, JsonPart
from golem_core.text.parse import Parser, parse
from golem_core.text.reader import AnswerReader, said
from golem_core.text.schema import Schema, value_of
from golem_core.text.template import Template
from golem_core.text.tokenizer import Tokenizer

__all__ = [
    "AnswerReader",
    "Call",
    "CallBegun",
    "CallBroken",
    "CallDone",
    "CallText",
    "ChatFormat",
    "Content",
    "Detokenizer",
    "Event",
    "Grammar",
    "JsonCall",
    "JsonPart",
    "Parser",
    "Reply",
    "Schema",
    "StopStrings",
    "TaggedCall",
    "Template",
    "Thought",
    "Tokenizer",
    "Tools",
    "check_stops",
    "parse",
    "said",
    "turn",
    "value_of",
]
