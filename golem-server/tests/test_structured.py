"""Answers that are bound to a form, and calls that must be made, by OpenAI's client."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Literal

import jsonschema
import openai
import pydantic
import pytest

from .chatting import PARIS, STRICT, SUM

pytest.importorskip("llguidance")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
LIGHT = {
    "type": "function",
    "function": {
        "name": "set_light",
        "parameters": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}, "room": {"enum": ["hall", "attic"]}},
            "required": ["on", "room"],
            "additionalProperties": False,
        },
    },
}


class Pair(pydantic.BaseModel):
    """What a schema is made of."""

    kind: Literal["sum", "product"]
    values: list[int] = pydantic.Field(min_length=1, max_length=3)
    right: bool


@pytest.fixture(scope="module", params=["qwen3", "qwen35", "gemma4"])
def served(request, serve_in_thread):
    folder = os.environ.get("GOLEM_TEST_MODELS")
    if folder is None:
        pytest.skip("GOLEM_TEST_MODELS names no folder of trained models")
    path = Path(folder) / request.param / f"{request.param}-q8_0.gguf"
    with serve_in_thread(f"m={path}", context=1024) as server:
        server.client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", **STRICT)
        create = server.client.chat.completions.create

        def ask(effort="none", **body):
            body = {"model": "m", "messages": SUM, "max_tokens": 200, **body}
            return create(reasoning_effort=effort, **body)

        server.ask = ask
        yield server


def test_a_schema_is_parsed(served):
    for seed in range(4):
        got = served.client.chat.completions.parse(
            model="m", messages=SUM, response_format=Pair, seed=seed, temperature=1.5,
            reasoning_effort="none", max_tokens=200,
        )  # fmt: skip
        (choice,) = got.choices
        assert choice.finish_reason == "stop"
        assert isinstance(choice.message.parsed, Pair)


def test_a_stream_is_bound_as_well(served):
    with served.client.chat.completions.stream(
        model="m", messages=SUM, response_format=Pair, seed=1, temperature=1.5,
        reasoning_effort="none", max_tokens=200,
    ) as stream:  # fmt: skip
        for _ in stream:
            pass
        streamed = stream.get_final_completion().choices[0]
    assert isinstance(streamed.message.parsed, Pair)
    whole = served.client.chat.completions.parse(
        model="m", messages=SUM, response_format=Pair, seed=1, temperature=1.5,
        reasoning_effort="none", max_tokens=200,
    ).choices[0]  # fmt: skip
    assert streamed.message.content == whole.message.content


def test_thoughts_come_before_and_are_free(served):
    got = served.ask(
        "high", messages=PARIS, temperature=0, max_tokens=300,
        response_format={"type": "json_schema", "json_schema": {
            "name": "pair", "schema": Pair.model_json_schema()}},
    ).choices[0]  # fmt: skip
    if got.finish_reason == "stop":
        Pair.model_validate_json(got.message.content)
    # Where it thought, no brace of the answer is among the thoughts.
    assert not (getattr(got.message, "reasoning_content", "") or "").startswith("{")


def test_any_object(served):
    for n in (1, 2):
        got = served.ask(response_format={"type": "json_object"}, n=n, seed=3, temperature=1.2)
        for choice in got.choices:
            if choice.finish_reason == "stop":
                assert isinstance(json.loads(choice.message.content), dict)
            else:
                assert choice.finish_reason == "length"
                assert choice.message.content.lstrip().startswith("{")


@pytest.mark.parametrize(
    ("grammar", "possible"),
    [
        ('root ::= "yes" | "no"', ("yes", "no")),
        ('start: "left" | "right"', ("left", "right")),
    ],
)
def test_grammars(served, grammar, possible):
    got = served.ask(extra_body={"grammar": grammar}, temperature=1.0, seed=2)
    assert got.choices[0].message.content in possible
    assert got.choices[0].finish_reason == "stop"
    plain = served.client.completions.create(
        model="m", prompt="The way is", max_tokens=20, extra_body={"grammar": grammar}
    )
    assert plain.choices[0].text in possible


def test_schemas_as_llama_cpp_names_them(served):
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    for body in (
        {"json_schema": schema},
        {"response_format": {"type": "json_object", "schema": schema}},
    ):
        got = served.ask(extra_body=body, temperature=0)
        assert json.loads(got.choices[0].message.content)["a"] in (1, 2)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"grammar": "root ::= ("}, "grammar"),
        ({"grammar": "start: %%%"}, "grammar"),
        ({"json_schema": {"type": "nothing"}}, "json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {
                "name": "x", "schema": {"type": "string", "pattern": "(?=a)b"}}}},
            "response_format.json_schema.schema",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled_is_refused_by_name(served, body, param):
    with pytest.raises(openai.BadRequestError) as caught:
        served.ask(extra_body=body)
    assert caught.value.param == param


DEEP: dict = {"type": "string"}
for _ in range(400):
    DEEP = {"type": "array", "items": DEEP}
HARD = {
    "empty object": {"type": "object"},
    "long text": {"type": "string", "maxLength": 65536},
    "long list": {"type": "array", "items": {"type": "integer"}, "maxItems": 10000},
    "unanchored": {"type": "string", "pattern": "abc"},
    "backtracking": {"type": "string", "pattern": "(a+)+$"},
    "recursive": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                "required": ["next"],
                "additionalProperties": False,
            }
        },
    },
    "large enum": {"enum": [f"value {i}" for i in range(5000)]},
    "many options": {
        "type": "object",
        "properties": {f"p{i}": {"type": "integer"} for i in range(60)},
        "additionalProperties": False,
    },
    "deep": DEEP,
    "unknown keyword": {"type": "string", "not": {"const": "a"}},
    "look-ahead": {"type": "string", "pattern": "(?=a)b"},
}


@pytest.mark.parametrize("name", HARD)
def test_hard_schemas_work_or_are_refused_by_name(served, name):
    begun = time.monotonic()
    try:
        got = served.ask(
            extra_body={"json_schema": HARD[name]}, max_tokens=30, temperature=1.0, seed=1
        )
    except openai.BadRequestError as error:
        reason = error.param
    else:
        reason = got.choices[0].finish_reason
        if reason == "stop":
            jsonschema.validate(json.loads(got.choices[0].message.content), HARD[name])
    assert time.monotonic() - begun < 5  # most of it not the schema's
    refused = name in ("deep", "unknown keyword", "look-ahead")
    assert reason in (("json_schema",) if refused else ("stop", "length"))


# Calls that must be made


def test_a_call_that_is_required(served):
    for seed in range(3):
        got = served.ask(
            tools=[WEATHER, LIGHT], tool_choice="required", parallel_tool_calls=False,
            temperature=1.5, seed=seed,
        ).choices[0]  # fmt: skip
        assert got.finish_reason == "tool_calls"
        (call,) = got.message.tool_calls
        arguments = json.loads(call.function.arguments)
        if call.function.name == "get_weather":
            assert list(arguments) == ["city"]
            assert len(arguments["city"]) <= 12
        else:
            assert call.function.name == "set_light"
            assert arguments["room"] in ("hall", "attic")
            assert isinstance(arguments["on"], bool)


def test_a_call_that_is_named(served):
    named = {"type": "function", "function": {"name": "set_light"}}
    body = {
        "tools": [WEATHER, LIGHT], "tool_choice": named, "parallel_tool_calls": False,
        "messages": PARIS, "temperature": 0,
    }  # fmt: skip
    whole = served.ask(**body).choices[0]
    (call,) = whole.message.tool_calls
    assert call.function.name == "set_light"
    assert json.loads(call.function.arguments)["room"] in ("hall", "attic")
    pieces = [chunk.choices[0] for chunk in served.ask(**body, stream=True)]
    deltas = [call for piece in pieces for call in piece.delta.tool_calls or ()]
    assert [(d.index, d.function.name) for d in deltas] == [(0, "set_light"), (0, None)]
    assert deltas[1].function.arguments == call.function.arguments
    assert pieces[-1].finish_reason == "tool_calls"


def test_a_thought_before_a_call_that_is_required(served):
    got = served.ask(
        "high", messages=PARIS, tools=[WEATHER], tool_choice="required", temperature=0,
        parallel_tool_calls=False,
    ).choices[0]  # fmt: skip
    assert got.message.reasoning_content == "I should call get_weather."
    (call,) = got.message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}


def test_a_tool_that_is_strict(served):
    tool = json.loads(json.dumps(WEATHER))
    tool["function"]["strict"] = True
    tool["function"]["parameters"]["properties"]["city"] = {"enum": ["Rome", "Oslo"]}
    got = served.ask(messages=PARIS, tools=[tool], temperature=0, parallel_tool_calls=False)
    (call,) = got.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")
