"""Gemma 4's calls and channels, and which files have them."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.text import Parser, Reply, parse
from golem_gemma.format import format_of

FORM = format_of("{{ '<|channel>' }}")
PARAMETERS = {
    "type": "OBJECT",
    "properties": {
        "text": {"type": "STRING"},
        "maybe": {"type": "STRING", "nullable": True},
        "list": {"type": "ARRAY", "items": {"type": "STRING"}},
        "object": {"type": "OBJECT", "properties": {"text": {"type": "STRING"}}},
    },
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}]


def test_a_template_with_channels_is_gemma_4() -> None:
    assert FORM is not None
    assert format_of("{{ '<start_of_turn>' }}") is None
    assert format_of(None) is None


def arguments(text: str) -> Any:
    """Those of one call; None if it cannot be read."""
    reply = parse(FORM, f"<|tool_call>call:f{text}<tool_call|>", tools=TOOLS)
    assert reply.content == ""
    assert bool(reply.calls) != bool(reply.unfinished)
    return reply.calls[0].arguments if reply.calls else None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ('{path:<|"|>test.txt<|"|>,edits:[{newText:<|"|>orange<|"|>,oldText:<|"|>apple<|"|>}]}',
         {"path": "test.txt", "edits": [{"newText": "orange", "oldText": "apple"}]}),
        ('{location:{city:<|"|>Paris<|"|>,country:<|"|>FR<|"|>}}',
         {"location": {"city": "Paris", "country": "FR"}}),
        ("{a:true,b:false,c:null,d:-1.5e3,e:7,f:None}",
         {"a": True, "b": False, "c": None, "d": -1500.0, "e": 7, "f": None}),
        ("{a:{},b:[],c:[[],{}],d:[1,2]}", {"a": {}, "b": [], "c": [[], {}], "d": [1, 2]}),
        ('{a:<|"|><|"|>,b:<|"|>} ] , : { "x" \'y\'\n\\ <tool_call|> call:g{}<|"|>}',
         {"a": "", "b": "} ] , : { \"x\" 'y'\n\\ <tool_call|> call:g{}"}),
        ('{<|"|>a b<|"|>:1,c : <|"|> d <|"|> , e:[ 1 , 2 ],}', {"a b": 1, "c": " d ", "e": [1, 2]}),
        # What the schema knows to be a text is one, with quotes or without.
        ("{text:12345}", {"text": "12345"}),
        ("{text:true,maybe:null}", {"text": "true", "maybe": None}),
        ("{list:[1,true,x y],object:{text:007}}",
         {"list": ["1", "true", "x y"], "object": {"text": "007"}}),
        ("{unit:celsius}", {"unit": "celsius"}),
        # Neither of these can be read.
        ("{a:1", None),
        ("{a:1}}", None),
        ("{a}", None),
        ("{a:}", None),
        ("{:1}", None),
        ("{a:1 b:2}", {"a": "1 b:2"}),
        ("{a:[1}", None),
        ('{a:x<|"|>y<|"|>}', None),
        ('{a:<|"|>x<|"|>y}', None),
        ("{a:" + "[" * 1000 + "]" * 1000 + "}", None),
    ],
)  # fmt: skip
def test_arguments(text: str, value: Any) -> None:
    assert arguments(text) == value


def test_a_text_that_nothing_ends_is_unfinished() -> None:
    reply = parse(FORM, 'Hi<|tool_call>call:f{a:<|"|>x,b:1}<tool_call|>')
    assert (reply.content, reply.calls) == ("Hi", [])
    assert reply.unfinished == '<|tool_call>call:f{a:<|"|>x,b:1}<tool_call|>'


def test_the_request_for_a_response_ends_the_turn() -> None:
    parser = Parser(FORM)
    reply = Reply().add(parser.push("<|tool_call>call:f{}<tool_call|>"))
    assert not parser.ended
    reply.add(parser.push("<|tool_response>response:f{value:1}<tool_response|>It is one."))
    assert parser.ended
    reply.add(parser.flush())
    assert (reply.content, len(reply.calls)) == ("", 1)
    cut_off = parse(FORM, "<|tool_call>call:f{a:1}<|tool_response>")
    assert cut_off.calls[0].arguments == {"a": 1}


def test_channels_are_thoughts() -> None:
    text = "<|channel>thought\nFirst.\n\nThen.\n<channel|>Yes.<|tool_call>call:f{}<tool_call|>"
    reply = parse(FORM, text + "<|tool_call>call:g{a:1}<tool_call|>")
    assert (reply.thoughts, reply.content) == ("First.\n\nThen.", "Yes.")
    assert [(call.name, call.arguments) for call in reply.calls] == [("f", {}), ("g", {"a": 1})]
    assert len({call.id for call in reply.calls}) == 2
    assert parse(FORM, "<|channel>thought\n<channel|>Yes.") == Reply("Yes.")
    for no_call in ("say call: me", "<|tool_call>", "<|tool_call>f{}<tool_call|>"):
        assert parse(FORM, no_call) == Reply(no_call)


PARTS = st.lists(
    st.sampled_from(
        ["<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>", "<|tool_response>",
         "thought\n", "call:f{", "a:", "{", "}", "[", "]", ",", ":", "1", "true", "\n", "é", "<|"]
    ),
    max_size=16,
)  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(PARTS, st.lists(st.integers(1, 9), max_size=40), st.booleans())
def test_cuts_change_nothing(parts: list[str], cuts: list[int], call: bool) -> None:
    text = "".join(["<|tool_call>call:f{"] * call + parts)
    replies = []
    for sizes in ([len(text)], [1] * len(text), [*cuts, len(text)]):
        ids = count()
        parser = Parser(FORM, tools=TOOLS, ids=lambda ids=ids: str(next(ids)))
        reply, at = Reply(), 0
        for size in sizes:
            reply.add(parser.push(text[at : at + size]))
            at += size
        replies.append(reply.add(parser.flush()))
    assert replies[0] == replies[1] == replies[2]
