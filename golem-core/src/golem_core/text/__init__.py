"""Text to tokens and back, chat templates, and the text of a growing answer."""

from golem_core.text.detokenize import Detokenizer, StopStrings, check_stops
from golem_core.text.template import Template
from golem_core.text.tokenizer import Tokenizer

__all__ = ["Detokenizer", "StopStrings", "Template", "Tokenizer", "check_stops"]
