"""Answers are taken apart while they are written, alike however they are cut into pieces."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.engine import Engine, Request
from golem_core.errors import BadRequest
from golem_core.text import (
    AnswerReader,
    CallBegun,
    CallBroken,
    CallDone,
    ChatFormat,
    Content,
    JsonCall,
    Parser,
    Reply,
    TaggedCall,
    Thought,
    Tokenizer,
    parse,
    turn,
)

from .engines import Letters
from .fake_program import VOCABULARY, HashProgram
from .vocabularies import CONTROL, USER, byte_level, tokenizer_of

JSON = ChatFormat(("<think>", "</think>"), "", ("<call>", "</call>"), JsonCall)
TAGS = ChatFormat(("<think>", "</think>"), "", ("<call>", "</call>"), TaggedCall)
HEADED = ChatFormat(("<|c>", "<c|>"), "thought\n", ("<call>", "</call>"), JsonCall, (), ("<end>",))
FORMS = [JSON, TAGS, HEADED]


def one_call(name: str = "f", **arguments: object) -> tuple[str, dict[str, object]]:
    return name, arguments


def made(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in reply.calls]


# What is what


@pytest.mark.parametrize(
    ("text", "thoughts", "content"),
    [
        ("Hi", "", "Hi"),
        (" Hi\n\n", "", " Hi\n\n"),
        ("<think>\na\n\nb\n</think>\n\nHi\n", "a\n\nb", "Hi\n"),
        ("<think>\n\n</think>\n\nHi", "", "Hi"),
        ("<think></think>Hi", "", "Hi"),
        ("\n<think>a</think> b", "a", " b"),
        ("<think>a", "a", ""),
        ("<think>a</thin", "a</thin", ""),
        ("<think><think>a</think>b", "a", "b"),
        ("<think>a<think>b</think>c", "a<think>b", "c"),
        # Once something was said, these characters are text: someone explains them.
        ("The <think> tag", "", "The <think> tag"),
        ("a </think> b", "", "a </think> b"),
    ],
)
def test_thoughts(text: str, thoughts: str, content: str) -> None:
    reply = parse(JSON, text)
    assert (reply.thoughts, reply.content) == (thoughts, content)
    assert (reply.calls, reply.unfinished) == ([], "")


def test_a_thought_that_the_prompt_has_opened() -> None:
    reply = parse(JSON, "\na\n</think>\n\nb", thinks=True)
    assert (reply.thoughts, reply.content) == ("a", "b")
    assert parse(JSON, "<think>a</think>b", thinks=True).thoughts == "a"
    assert JSON.thinks([("x", False), ("<a>\n<think>\n", True)])
    assert not JSON.thinks([("<think>\n", False)])
    assert not JSON.thinks([("<think>\n\n</think>\n\n", True)])
    assert not JSON.thinks([])
    assert HEADED.thinks([("<|c>thought\n", True)])
    assert not HEADED.thinks([("<|c>thought\n<c|>", True)])


def test_a_heading_is_no_thought() -> None:
    assert parse(HEADED, "<|c>thought\nhm\n<c|>Hi") == Reply("Hi", "hm")
    assert parse(HEADED, "<|c>thoughtful<c|>Hi") == Reply("Hi", "thoughtful")
    assert parse(HEADED, "<|c>thought<c|>Hi") == Reply("Hi", "")
    assert parse(HEADED, "<|c>tho") == Reply("", "tho")
    assert parse(HEADED, "<|c>thought\na<c|>b<|c>thought\nc<c|>") == (
        Reply("b<|c>thought\nc<c|>", "a")
    )
    assert parse(HEADED, "Hi<end>and more") == Reply("Hi")


CALL = '<call>\n{"name": "f", "arguments": {"a": 1}}\n</call>'
TAGGED = "<call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</call>"


@pytest.mark.parametrize(("form", "call"), [(JSON, CALL), (TAGS, TAGGED)])
def test_calls_among_the_rest(form: ChatFormat, call: str) -> None:
    reply = parse(form, f"<think>\nhm\n</think>\n\nLook:\n\n{call}\n{call}\n")
    assert (reply.thoughts, reply.content, reply.unfinished) == ("hm", "Look:", "")
    assert made(reply) == [one_call(a=1)] * 2
    assert len({one.id for one in reply.calls}) == 2
    # A thought that nothing closed, and content after a call.
    reply = parse(form, f"<think>hm\n{call}\nthere")
    assert (reply.thoughts, reply.content, made(reply)) == ("hm", "there", [one_call(a=1)])
    assert parse(form, f"a\n{call}\nb").content == "a\nb"
    # The end of the answer ends a call that is complete.
    assert made(parse(form, call.removesuffix("</call>"))) == [one_call(a=1)]
    assert parse(form, "Use <call> to call").content == "Use <call> to call"
    assert parse(form, "<call>nothing</call>").content == "<call>nothing</call>"


def test_events_come_as_soon_as_they_can() -> None:
    ids = count(1)
    parser = Parser(JSON, ids=lambda: f"id{next(ids)}")
    assert parser.push("Hi\n<call>{") == [Content("Hi")]
    assert parser.push('"name": "f"') == [CallBegun(0, "id1", "f")]
    assert parser.push(', "arguments": {"a": "}</call>"}}') == []
    assert parser.push("</call>") == [CallDone(0, {"a": "}</call>"})]
    assert parser.push('<call>{"name":"g"}</call>') == [CallBegun(1, "id2", "g"), CallDone(1, {})]
    assert parser.push('<call>{"arguments":{},"name":"h"}') == []
    assert parser.push("</call>") == [CallBegun(2, "id3", "h"), CallDone(2, {})]
    assert parser.push('<call>{"name":"i"') == [CallBegun(3, "id4", "i")]
    assert parser.flush() == [CallBroken(3, '<call>{"name":"i"')]


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"name": "f"}', {}),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', {"a": 1}),
        ('{"name": "f", "parameters": {"a": "\\"}{</call>\\n"}}', {"a": '"}{</call>\n'}),
        ('{"name": "f", "arguments": {"a": [null, true, -1.5e3, {}]}}',
         {"a": [None, True, -1500.0, {}]}),
        ('{"name": "f", "arguments": [1]}', None),
        ('{"name": "f", "arguments": "x"}', None),
        ('{"name": "f", "arguments": {"a": NaN}}', None),
        ('{"name": "f", "arguments": {"a": 1}', None),
        ('{"name": "f", "arguments": ' + '[' * 100_000, None),
    ],
)  # fmt: skip
def test_json_calls(body: str, arguments: dict[str, Any] | None) -> None:
    reply = parse(JSON, f"<call>{body}</call>")
    if arguments is None:
        assert (reply.calls, reply.content) == ([], "")
        assert reply.unfinished == f"<call>{body}</call>"
    else:
        assert (made(reply), reply.unfinished) == ([("f", arguments)], "")


@pytest.mark.parametrize(
    "body", ['{"name": 1}', "[1]", "{}", "", '{"named": "f"}', '{"name": "\\x"}']
)
def test_json_that_is_no_call_is_content(body: str) -> None:
    text = f"<call>{body}</call>"
    assert parse(JSON, text) == Reply(text)


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "whole": {"type": "integer"},
                    "yes": {"type": "boolean"},
                    "list": {"type": "array"},
                },
            },
        },
    }
]


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ("", {}),
        ("<parameter=text>\n12\n</parameter>\n", {"text": "12"}),
        ("<parameter=text>\n\n\n</parameter>\n", {"text": "\n"}),
        ("<parameter=text>12</parameter>", {"text": "12"}),
        ("<parameter=whole>\n12\n</parameter>\n<parameter=yes>\nTrue\n</parameter>\n",
         {"whole": 12, "yes": True}),
        ('<parameter=list>\n[1, "a"]\n</parameter>\n', {"list": [1, "a"]}),
        ("<parameter=whole>\nmany\n</parameter>\n", {"whole": "many"}),
        ("<parameter=other>\n{\"a\": 1}\n</parameter>\n", {"other": {"a": 1}}),
        ("<parameter=text>\n</parameter>\n</call>\n</parameter> x\n</parameter>\n",
         {"text": "</parameter>\n</call>\n</parameter> x"}),
        ("<parameter=text>\n12\n", None),
        ("text", None),
    ],
)  # fmt: skip
def test_tagged_calls(parameters: str, arguments: dict[str, Any] | None) -> None:
    text = f"<call>\n<function=f>\n{parameters}</function>\n</call>"
    reply = parse(TAGS, text, tools=TOOLS)
    if arguments is None:
        assert (made(reply), reply.content, reply.unfinished) == ([], "", text)
    else:
        assert (made(reply), reply.unfinished) == ([("f", arguments)], "")


# Any cut gives the same, and no text is an error


PARTS = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<call>", "</call>", "<|c>", "<c|>", "<end>", "thought", "\n", "a",
         '{"name": "f", "arguments": {"a": "', '{"name"', '"f"', '"', "\\", "}", "é", "}}", CALL,
         TAGGED, "<function=f>", "</function>", "<parameter=a>", "</parameter>", "<", "/", ">"]
    ),
    max_size=12,
)  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(FORMS), PARTS, st.lists(st.integers(1, 9), max_size=40), st.booleans())
def test_cuts_change_nothing(
    form: ChatFormat, parts: list[str], cuts: list[int], thinks: bool
) -> None:
    text = "".join(parts)
    replies = []
    for sizes in ([len(text)], [1] * len(text), [*cuts, len(text)]):
        ids = count()
        parser = Parser(form, thinks=thinks, ids=lambda ids=ids: str(next(ids)))
        reply, at = Reply(), 0
        for size in sizes:
            reply.add(parser.push(text[at : at + size]))
            at += size
        replies.append(reply.add(parser.flush()))
    assert replies[0] == replies[1] == replies[2]


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(FORMS), PARTS, st.booleans())
def test_tokens_are_markers_and_text_is_text(
    form: ChatFormat, parts: list[str], thinks: bool
) -> None:
    """Every marker a token: cut or whole, the text between them is the same."""
    replies = []
    for whole in (True, False):
        ids = count()
        parser = Parser(
            form, tokens=form.markers, thinks=thinks, ids=lambda ids=ids: str(next(ids))
        )
        reply = Reply()
        for part in parts:
            if part in form.markers:
                reply.add(parser.mark(part))
            else:
                for piece in [part] if whole else part:
                    reply.add(parser.push(piece))
        replies.append(reply.add(parser.flush()))
    assert replies[0] == replies[1]
    if not any(part in form.markers for part in parts):
        said = "".join(parts)
        assert replies[0].content == ("" if thinks else said)


def test_typed_markers_are_text_where_tokens_are_markers() -> None:
    parser = Parser(JSON, tokens=JSON.markers)
    typed = "<think>a</think>" + CALL
    reply = Reply().add([*parser.push(typed), *parser.mark("<think>"), *parser.push(typed)])
    reply.add([*parser.mark("</think>"), *parser.push("b"), *parser.mark("</think>")])
    assert reply.add(parser.flush()) == Reply(typed + "b", typed)


# Tokens


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    extra = {
        "<think>": CONTROL,
        "</think>": CONTROL,
        "<call>": USER,
        "</call>": USER,
        "<x>": CONTROL,
    }
    return tokenizer_of(byte_level(["a b"], extra))


def read(reader: AnswerReader, tokenizer: Tokenizer, *pieces: tuple[str, bool]) -> Reply:
    reply = Reply()
    for token in tokenizer.encode_marked(pieces):
        if reader.ended:
            break
        reply.add(reader.push(token))
    if not reader.ended:
        reply.add(reader.flush())
    assert reader.reply == reply
    return reply


def test_a_reader_sees_tokens(tokenizer: Tokenizer) -> None:
    answer = [("<think>", True), ("<think>é", False), ("</think>\n\n<x>Hi " + CALL, True)]
    reply = read(AnswerReader(tokenizer, JSON), tokenizer, *answer)
    assert (reply.thoughts, reply.content, made(reply)) == ("<think>é", "Hi ", [one_call(a=1)])
    # What began as a call, and is none, has no markers in it either.
    for text, content, unfinished in (
        ("a<call>b</call>c", "abc", ""),
        ("a<call>", "a", "<call>"),
        ('a<call>{"named": 1}</call>b', "ab", '<call>{"named": 1}</call>'),
        ("a</call></think>b<x>", "ab", ""),
    ):
        reply = read(AnswerReader(tokenizer, JSON), tokenizer, (text, True))
        assert reply == Reply(content, unfinished=unfinished)
    # A character that a marker cuts off ends there.
    reader = AnswerReader(tokenizer, JSON)
    first, *_ = tokenizer.encode("é")
    events = [event for token in [first, *tokenizer.encode("<think>", special=True)]
              for event in reader.push(token)]  # fmt: skip
    assert events == [Content("\ufffd")]


@pytest.mark.parametrize(
    ("text", "stop", "content", "calls", "ended"),
    [
        ("The quick brown fox jumps", "own fox", "The quick br", 0, True),
        ("The quick brown fox jumps", "fox jumps!", "The quick brown fox jumps", 0, False),
        ("<think>a stop b</think>\n\nc stop d", ["stop"], "c ", 0, True),
        (CALL.replace("1", '"stop"') + "x", "stop", "x", 1, False),
        # Not over a call: what was held back is content.
        (f"a st{CALL}op b", "stop", "a stop b", 1, False),
        (f"a stop b{CALL}", "stop", "a ", 0, True),
    ],
)
def test_stop_strings_end_content(
    tokenizer: Tokenizer, text: str, stop: str | list[str], content: str, calls: int, ended: bool
) -> None:
    reader = AnswerReader(tokenizer, JSON, stop=stop)
    reply = read(reader, tokenizer, (text, True))
    assert (reply.content, len(reply.calls), reader.ended) == (content, calls, ended)
    assert (reader.stop in (stop, *stop)) if ended else (reader.stop is None)


def test_stop_strings_are_checked(tokenizer: Tokenizer) -> None:
    with pytest.raises(BadRequest, match="stop has an empty string"):
        AnswerReader(tokenizer, JSON, stop=[""])


class Family(Letters):
    """Letters, and tokens for the markers of `JSON`."""

    def special_id(self, text: str) -> int | None:
        return 1 + JSON.markers.index(text)

    def encode(self, text: str) -> list[int]:
        for token, marker in enumerate(JSON.markers, 1):
            text = text.replace(marker, chr(token))
        return list(text.encode())


def test_the_engine_reads_answers() -> None:
    family = Family()
    answer = family.encode(f"<think>\nhm\n</think>\n\nLook\n{CALL}\n{CALL}")

    def says(tokens: np.ndarray, logits: np.ndarray) -> None:
        at = len(tokens) - 1
        logits[np.arange(VOCABULARY) != (answer[at] if at < len(answer) else 127)] = -np.inf

    def ask(**rest: Any) -> Request:
        stop = rest.pop("stop", None)
        return Request([9], mask=says, reader=AnswerReader(family, JSON, stop=stop), **rest)

    with Engine(HashProgram((None,), [12], width=24), family, context=256) as engine:
        request = ask()
        tokens = list(engine.submit(request))
        events = [event for token in tokens for event in token.events]
        assert "".join(e.text for e in events if isinstance(e, Thought)) == "hm"
        begun = [event for event in events if isinstance(event, CallBegun)]
        assert [(event.index, event.name) for event in begun] == [(0, "f"), (1, "f")]
        assert begun[0].id != begun[1].id
        done = [event for event in events if isinstance(event, CallDone)]
        assert done == [CallDone(0, {"a": 1}), CallDone(1, {"a": 1})]
        assert "".join(token.text for token in tokens) == "Look"
        reply = request.reader.reply
        assert (reply.content, reply.thoughts, made(reply)) == ("Look", "hm", [one_call(a=1)] * 2)

        result = engine.submit(ask()).result()
        assert (result.text, result.finish_reason, list(result.ids)) == ("Look", "stop", answer)
        result = engine.submit(ask(stop="oo")).result()
        assert (result.text, result.finish_reason) == ("L", "stop")
        assert len(result.ids) == answer.index(ord("o")) + 2
        cut_off = ask(max_tokens=len(answer) - 4)
        result = engine.submit(cut_off).result()
        assert (result.text, result.finish_reason) == ("Look", "length")
        assert made(cut_off.reader.reply) == [one_call(a=1)]
        assert cut_off.reader.reply.unfinished.startswith("<call>\n{")
        with pytest.raises(ValueError, match="has its stop strings there"):
            Request([9], stop="x", reader=AnswerReader(family, JSON))


def test_an_answer_is_a_turn() -> None:
    reply = parse(JSON, f"<think>hm</think>Look{CALL}")
    message = turn(reply.content, reply.thoughts, reply.calls)
    assert message == {
        "role": "assistant",
        "content": "Look",
        "reasoning_content": "hm",
        "tool_calls": [
            {
                "id": reply.calls[0].id,
                "type": "function",
                "function": {"name": "f", "arguments": {"a": 1}},
            }
        ],
    }
    assert turn("x") == {"role": "assistant", "content": "x"}
