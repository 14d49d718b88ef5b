"""Forced calls: what a mask allows is read back, for each family, and obeys the schemas."""

from __future__ import annotations

import numpy as np
import pytest

import golem_gemma.format
import golem_qwen.format
import golem_qwen35.format
from golem_core.errors import BadRequest
from golem_core.testing.tiny import LETTERS
from golem_core.text import AnswerReader, ChatFormat, Tokenizer

pytest.importorskip("llguidance", reason="llguidance is not installed (golem-core[json])")
jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

from golem_core.sampling import tool_calls  # noqa: E402

FORMATS = {
    "qwen": golem_qwen.format.format_of("<tool_call> </think>"),
    "qwen-tagged": golem_qwen.format.format_of("<tool_call> </think> <function="),
    "qwen35": golem_qwen35.format.format_of("<tool_call> </think> <function="),
    "gemma": golem_gemma.format.format_of("<|channel> <|tool_call>"),
}
SHORT = {"type": "string", "maxLength": 5}
NODE = {
    "type": "object",
    "properties": {
        "v": {"type": "boolean"},
        "next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]},
    },
    "required": ["v", "next"],
    "additionalProperties": False,
}
SCHEMAS = {
    "texts": {
        "properties": {
            "city": SHORT,
            "day": {"type": "string", "format": "date"},
            "code": {"type": "string", "pattern": r"^[A-C]{2}\d$"},
            "one of": {"enum": ["x y", "1"]},
            "mixed": {"enum": [7, None, "seven"]},
        },
        "required": ["city", "code"],
        "additionalProperties": False,
    },
    "types": {
        "properties": {
            "n": {"type": "integer", "minimum": -5, "maximum": 50},
            "x": {"type": "number", "minimum": 0, "maximum": 1},
            "maybe": {"type": ["string", "null"], "maxLength": 3},
            "b": {"type": "boolean"},
            "list": {"type": "array", "items": SHORT, "minItems": 1, "maxItems": 3},
            "deep": {
                "type": "object",
                "properties": {"a": SHORT, "b": {"type": "array", "maxItems": 0}},
                "additionalProperties": False,
            },
        },
        "required": ["n", "deep"],
        "additionalProperties": False,
    },
    "recursive": {
        "properties": {"node": {"$ref": "#/$defs/N"}},
        "required": ["node"],
        "additionalProperties": False,
        "$defs": {"N": NODE},
    },
    "none": {"properties": {}, "additionalProperties": False},
}


def tools(*names, strict=False):
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {"type": "object", **SCHEMAS[name]},
                **({"strict": True} if strict else {}),
            },
        }
        for name in names
    ]


def bytes_tokenizer(markers: tuple[str, ...], form: ChatFormat) -> Tokenizer:
    """A token for each byte, and one for each marker, the way files have them."""
    ends = [marker for marker in markers if marker in form.ends]
    kinds = [1] * 256 + [3] + [4] * len(markers) + [1]
    names = [*LETTERS, "<|im_end|>", *markers, "th"]
    assert set(ends) <= set(names)
    return Tokenizer(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": names,
            "tokenizer.ggml.token_type": np.array(kinds, np.int32),
            "tokenizer.ggml.merges": ["t h"],
            "tokenizer.ggml.eos_token_id": 256,
        }
    )


def walk(mask, tok: Tokenizer, rng: np.random.Generator, most: int) -> list[int] | None:
    """Random tokens that the mask allows, printable ones by preference; None if there is no end."""
    text = [0]
    mask = mask.fresh()
    while len(text) < most:
        logits = np.zeros(len(tok), dtype=np.float32)
        mask(np.array(text, np.int32), logits)
        ids = np.flatnonzero(np.isfinite(logits))
        ends = [i for i in ids if i in tok.end_ids]
        if ends and rng.random() < 0.5:
            return text[1:]
        likely = [i for i in ids if 32 < i < 127] if rng.random() < 0.9 else []
        text.append(int(rng.choice(likely or [i for i in ids if i not in ends] or ids)))
        if text[-1] in tok.end_ids:
            return text[1:-1]
    return None


def replies(form, offered, choice, parallel, *, tokens=True, count=12, most=700):
    """What random answers that the mask allows are read as."""
    tok = bytes_tokenizer(form.markers if tokens else (), form)
    mask = tool_calls.tool_call_constraint(form, offered, choice, parallel, tok)
    for seed in range(count):
        ids = walk(mask, tok, np.random.default_rng(seed), most)
        if ids is None:
            continue
        reader = AnswerReader(tok, form, tools=offered)
        for token in ids:
            reader.push(token)
        reader.flush()
        assert reader.reply.unfinished == "", tok.decode(ids)
        yield reader.reply


@pytest.mark.parametrize("family", FORMATS)
@pytest.mark.parametrize("tokens", [True, False])
def test_calls_that_are_required_are_read_back(family, tokens):
    form = FORMATS[family]
    offered = tools(*SCHEMAS)
    called = []
    for reply in replies(form, offered, "required", True, tokens=tokens, count=30):
        assert reply.content == ""
        assert reply.calls
        for call in reply.calls:
            jsonschema.validate(call.arguments, {"type": "object", **SCHEMAS[call.name]})
            called.append(call.name)
    assert set(called) >= set(SCHEMAS) - {"recursive"}


@pytest.mark.parametrize("family", FORMATS)
def test_the_named_tool_is_called_once(family):
    named = {"type": "function", "function": {"name": "types"}}
    told = list(replies(FORMATS[family], tools(*SCHEMAS), named, False))
    assert len(told) > 3
    for reply in told:
        (call,) = reply.calls
        assert call.name == "types"
        jsonschema.validate(call.arguments, {"type": "object", **SCHEMAS["types"]})


@pytest.mark.parametrize("family", FORMATS)
@pytest.mark.parametrize("tokens", [True, False])
def test_auto_allows_text_and_holds_calls_to_strict_schemas(family, tokens):
    offered = tools("texts", "none", strict=True)
    form = FORMATS[family]
    tok = bytes_tokenizer(form.markers if tokens else (), form)
    mask = tool_calls.tool_call_constraint(form, offered, "auto", True, tok).fresh()
    opens = tok.encode_marked([(form.call[0], True)])
    text = [0, *tok.encode("Well, <tool_ca: "), *opens]
    for i in range(1, len(text)):
        logits = np.zeros(len(tok), dtype=np.float32)
        mask(np.array(text[:i], np.int32), logits)
        assert np.isfinite(logits[text[i]]), text[:i]
        if i <= 10:
            assert np.isfinite(logits[256])
    mask(np.array(text, np.int32), logits := np.zeros(len(tok), dtype=np.float32))
    assert not np.isfinite(logits[256])  # a call that has begun is finished


@pytest.mark.parametrize("family", ["qwen35", "gemma"])
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            {"properties": {"a": {"type": "string", "format": "rhyme"}}},
            "properties/a: Unknown format",
        ),
        ({"properties": {"a": {"allOf": [{}, {"type": "string"}]}}}, "properties/a: allOf"),
        ({"properties": {"a": {"$ref": "#/$defs/no"}}}, "properties/a"),
        ({"properties": {"a": {"type": "text"}}}, "properties/a"),
        ({"properties": {}, "required": ["b"], "minProperties": 1}, "minProperties"),
    ],
)
def test_a_schema_that_cannot_be_forced_is_named(family, schema, said):
    form = FORMATS[family]
    tok = bytes_tokenizer(form.markers, form)
    offered = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    with pytest.raises(BadRequest, match=r"tools\[0\].function.parameters") as raised:
        tool_calls.tool_call_constraint(form, offered, "required", True, tok)
    assert said in str(raised.value)
    assert raised.value.field == "tools"


@pytest.mark.parametrize(
    ("choice", "offered"),
    [
        ("none", tools("none")),
        ("required", []),
        ({"type": "function", "function": {"name": "other"}}, tools("none")),
        ({"function": 3}, tools("none")),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(choice, offered):
    form = FORMATS["qwen"]
    tok = bytes_tokenizer(form.markers, form)
    with pytest.raises(BadRequest) as raised:
        tool_calls.tool_call_constraint(form, offered, choice, True, tok)
    assert raised.value.field == "tool_choice"


def test_texts_and_numbers_that_look_alike_are_refused_where_nothing_is_quoted():
    form = FORMATS["qwen35"]
    tok = bytes_tokenizer(form.markers, form)
    schema = {"properties": {"a": {"enum": ["1", 1]}}}
    offered = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    with pytest.raises(BadRequest, match="no quotes"):
        tool_calls.tool_call_constraint(form, offered, "required", True, tok)
