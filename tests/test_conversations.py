"""Conversations become the text that transformers makes of them, and answers come back.

The templates are those of llama.cpp's folder `models` (GOLEM_TEST_VOCABS) and of the trained models
(GOLEM_TEST_MODELS), which bring vocabularies with the families' markers as well.
"""

from __future__ import annotations

import copy
import json
import os
import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from golem_core.errors import BadRequest
from golem_core.text import (
    AnswerReader,
    ChatFormat,
    Parser,
    Reply,
    Template,
    Tokenizer,
    utf8,
)
from golem_core.weights import open_weights
from golem_gemma.format import format_of as gemma
from golem_qwen.format import format_of as qwen
from golem_qwen35.format import format_of as qwen35

from .conversations import CONVERSATIONS, MARKERS, MEDIA, Conversation


class Family(NamedTuple):
    format_of: Callable[[object], ChatFormat | None]
    template: str  # in llama.cpp's folder
    model: str  # of the trained ones
    bos: str
    end: str  # what the template writes after an answer
    variables: dict[str, Any]  # with which the prompt leaves the thought to the model


FAMILIES = {
    "gemma4": Family(
        gemma,
        "google-gemma-4-31B-it.jinja",
        "gemma4/gemma4-q8_0.gguf",
        "<bos>",
        "<turn|>\n",
        {"enable_thinking": True},
    ),
    "qwen3": Family(qwen, "Qwen-Qwen3-0.6B.jinja", "qwen3/qwen3-q8_0.gguf", "", "<|im_end|>\n", {}),
    "qwen35": Family(qwen35, "Qwen3.5-4B.jinja", "qwen35/qwen35-q8_0.gguf", "", "<|im_end|>\n", {}),
}
SOURCES = ("llama.cpp", "trained")
names = pytest.mark.parametrize("name", CONVERSATIONS)
# Where a model types what looks like a marker, only its tokens tell the two apart.
plain = pytest.mark.parametrize("name", [n for n, talk in CONVERSATIONS.items() if not talk.typed])
families = pytest.mark.parametrize("family", FAMILIES)


def folder(variable: str) -> Path:
    found = os.environ.get(variable)
    if not found:
        pytest.skip(f"{variable} names no folder")
    return Path(found)


def text_at(path: Path) -> str:
    if not path.exists():
        pytest.skip(f"{path.name} is not in {path.parent}")
    return path.read_text("utf-8")


@cache
def template_of(family: str, source: str = "llama.cpp") -> Template:
    chosen = FAMILIES[family]
    if source == "trained":
        path = (folder("GOLEM_TEST_MODELS") / chosen.model).parent / "hf" / "chat_template.jinja"
    else:
        path = folder("GOLEM_TEST_VOCABS") / "templates" / chosen.template
    return Template(text_at(path), bos=chosen.bos)


@cache
def tokenizer_of(family: str) -> Tokenizer:
    path = folder("GOLEM_TEST_MODELS") / FAMILIES[family].model
    if not path.exists():
        pytest.skip(f"{path.name} is not in {path.parent}")
    with open_weights(path) as weights:
        return Tokenizer.from_weights(weights)


def format_of(family: str) -> ChatFormat:
    form = FAMILIES[family].format_of(template_of(family).source)
    assert form is not None
    return form


def composed(value: Any) -> Any:
    """With é as one character: Qwen's tokenizer makes it so."""
    return json.loads(unicodedata.normalize("NFC", json.dumps(value, ensure_ascii=False)))


def text_of(pieces: list[tuple[str, bool]]) -> str:
    return "".join(text for text, _ in pieces)


# Out: what transformers renders


@pytest.mark.parametrize("source", SOURCES)
@names
@families
def test_it_renders_what_transformers_renders(family: str, name: str, source: str) -> None:
    oracle = pytest.importorskip("transformers.utils.chat_template_utils")
    template = template_of(family, source)
    talk = CONVERSATIONS[name]
    for asks in (True, False):
        for variables in ({}, {"enable_thinking": True}, {"enable_thinking": False}):
            (want,), _ = oracle.render_jinja_template(
                [copy.deepcopy(talk.messages)],
                tools=talk.tools,
                chat_template=template.source,
                add_generation_prompt=asks,
                bos_token=FAMILIES[family].bos,
                **variables,
            )
            pieces = template.render(
                talk.sent, tools=talk.tools, add_generation_prompt=asks, **variables
            )
            assert text_of(pieces) == want
            assert not any(trusted and (MEDIA in t or MARKERS in t) for t, trusted in pieces)


@families
def test_its_ids_are_those_of_transformers(family: str) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer, template = tokenizer_of(family), template_of(family, "trained")
    place = (folder("GOLEM_TEST_MODELS") / FAMILIES[family].model).parent / "hf"
    oracle = transformers.AutoTokenizer.from_pretrained(place)
    for name, talk in CONVERSATIONS.items():
        if "typed" in name:  # transformers takes what anybody types for the markers themselves
            continue
        messages = composed(talk.messages)
        for thinks in (True, False):
            want = oracle.apply_chat_template(
                copy.deepcopy(messages),
                tools=talk.tools,
                add_generation_prompt=True,
                enable_thinking=thinks,
                return_dict=False,
            )
            pieces = template.render(messages, tools=talk.tools, enable_thinking=thinks)
            assert tokenizer.encode_marked(pieces, bos=True) == list(want)


@names
@families
def test_control_tokens_come_of_the_template_only(family: str, name: str) -> None:
    tokenizer, talk = tokenizer_of(family), CONVERSATIONS[name]
    pieces = template_of(family).render(talk.sent, tools=talk.tools)
    own = "\0".join(text for text, trusted in pieces if trusted)
    ids = tokenizer.encode_marked(pieces)
    for token in set(ids):
        text = tokenizer.token_text(token)
        if tokenizer.is_control(token) or text in format_of(family).markers:
            assert ids.count(token) == own.count(text), text
    assert composed(tokenizer.decode(ids)) == composed(text_of(pieces))


# Back: what the model would have written


def answers(family: str, talk: Conversation) -> list[tuple[Reply, str, list, list]]:
    """(what was said, the message's thoughts, prompt, answer) of the assistant's turns."""
    chosen, template = FAMILIES[family], template_of(family)
    found = []
    for i, message in enumerate(talk.messages):
        if message["role"] != "assistant":
            continue
        asked = {"tools": talk.tools, **chosen.variables}
        prompt = template.render(talk.messages[:i], **asked)
        whole = template.render(talk.messages[: i + 1], add_generation_prompt=False, **asked)
        size = len(text_of(prompt))
        assert text_of(whole)[:size] == text_of(prompt)
        # Gemma's template writes a thought only where it leads to a call.
        kept = family != "gemma4" or message.get("tool_calls")
        want = Reply(message["content"], message["reasoning_content"] if kept else "")
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in calls_of(message)]
        answer = [(t, trusted) for t, trusted in cut(whole, size) if t]
        if answer[-1][0].endswith(chosen.end):
            answer[-1] = (answer[-1][0].removesuffix(chosen.end), True)
        found.append((want, calls, prompt, answer))
    return found


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message.get("tool_calls", [])


def cut(pieces: list[tuple[str, bool]], size: int) -> list[tuple[str, bool]]:
    """The pieces without their first `size` characters."""
    rest = []
    for text, trusted in pieces:
        rest.append((text[size:], trusted))
        size = max(0, size - len(text))
    return rest


def same(got: Reply, want: Reply, calls: list) -> None:
    assert (got.content, got.thoughts) == (want.content, want.thoughts)
    made = [(call.name, call.arguments) for call in got.calls]
    assert composed(made) == composed(calls)
    assert got.unfinished == ""
    assert len({call.id for call in got.calls}) == len(calls)


def parser(family: str, talk: Conversation, prompt: list) -> Parser:
    form, ids = format_of(family), count()
    thinks = form.thinks(prompt)
    assert thinks == (family == "qwen35")
    return Parser(form, tools=talk.tools or (), thinks=thinks, ids=lambda: f"call {next(ids)}")


@plain
@families
def test_text_comes_back_at_every_split(family: str, name: str) -> None:
    talk = CONVERSATIONS[name]
    for want, calls, prompt, answer in answers(family, talk):
        data = text_of(answer).encode()
        one = parser(family, talk, prompt)
        whole = [*one.push(data.decode()), *one.flush()]
        same(Reply().add(whole), want, calls)
        reply = Reply().add(whole)
        for cuts in [*([at] for at in range(len(data))), range(len(data)), range(0, len(data), 3)]:
            decoder, two = utf8.decoder(), parser(family, talk, prompt)
            got, at = Reply(), 0
            for end in [*cuts, len(data)]:
                got.add(two.push(decoder.decode(data[at:end])))
                at = end
            assert got.add(two.flush()) == reply


@plain
@families
def test_text_may_be_cut_off_anywhere(family: str, name: str) -> None:
    talk = CONVERSATIONS[name]
    for want, calls, prompt, answer in answers(family, talk):
        text = text_of(answer)
        for end in range(len(text)):
            one = parser(family, talk, prompt)
            got = Reply().add([*one.push(text[:end]), *one.flush()])
            assert begins(got.thoughts, want.thoughts, format_of(family))
            if not got.unfinished:
                assert begins(got.content, want.content, format_of(family))
            done = [(call.name, call.arguments) for call in got.calls]
            assert done == calls[: len(done)]


def begins(part: str, whole: str, form: ChatFormat) -> bool:
    """Whether a text that was cut off is the beginning of what it was to be.

    The beginning of a marker is text, and so is the head of a thought, and a call without a name.
    """
    alike = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(part, whole, strict=False))
    )
    rest = part[alike:].strip("\n")
    call = form.call[0] if form.call else None
    return rest.startswith(call or ()) or any(
        m.startswith(rest) for m in (*form.markers, form.head)
    )


@names
@families
def test_tokens_come_back(family: str, name: str) -> None:
    tokenizer, talk = tokenizer_of(family), CONVERSATIONS[name]
    for want, calls, prompt, answer in answers(family, talk):
        reader = AnswerReader(tokenizer, format_of(family), tools=talk.tools or (), prompt=prompt)
        got = Reply()
        for token in tokenizer.encode_marked(answer):
            got.add(reader.push(token))
        ended = reader.ended
        if not ended:
            got.add(reader.flush())
        same(
            Reply(composed(got.content), composed(got.thoughts), got.calls, got.unfinished),
            Reply(composed(want.content), composed(want.thoughts)),
            calls,
        )
        assert reader.reply == got
        assert ended == (family == "gemma4" and bool(calls))


# Roles


@families
def test_roles(family: str) -> None:
    template = template_of(family)
    told = [{"role": "developer", "content": "Be brief."}]
    asked = [{"role": "user", "content": "Hi"}]
    want = template.render([{"role": "system", "content": "Be brief."}, *asked])
    assert template.render([*told, *asked]) == want
    assert "Be brief." in text_of(want)
    assert "Be brief." in text_of(template.render(told))
    two = text_of(template.render([*told, {"role": "system", "content": "Be kind."}, *asked]))
    assert "Be brief.\n\nBe kind." in two
    answered = {"role": "assistant", "content": "x"}
    late = [*asked, answered, {"role": "system", "content": "Be late."}, *asked]
    if family == "qwen35":
        with pytest.raises(BadRequest, match=r"^System message must be at the beginning\.$"):
            template.render(late)
        with pytest.raises(BadRequest, match=r"^No user query found in messages\.$"):
            template.render([answered])
    else:
        assert "Be late." in text_of(template.render(late))
        assert "x" in text_of(template.render([answered, *asked]))
    assert text_of(template.render([*asked, *asked])).count("Hi") == 2
    # Clients send null where a call is all that was said.
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    null = {"role": "assistant", "content": None, "tool_calls": [call]}
    empty = {**null, "content": ""}
    assert template.render([*asked, null]) == template.render([*asked, empty])


def test_alternation_is_refused_in_the_template_s_own_words() -> None:
    path = folder("GOLEM_TEST_VOCABS") / "templates" / "google-gemma-2-2b-it.jinja"
    template = Template(text_at(path))
    user, model = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    for messages in ([user, user], [model, user]):
        with pytest.raises(BadRequest, match=r"^Conversation roles must alternate") as caught:
            template.render(messages)
        assert caught.value.field == "messages"
