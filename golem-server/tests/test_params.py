"""Bodies of any shape become requests or errors with a name; nothing else comes of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import golem_core
from golem_server import ServeSettings, params
from golem_server.errors import ApiError
from golem_server.parse import field, object_of, required
from golem_server.routes import chat, completions

NAMES = [
    *(name for name, _, _ in params.SAMPLING), *params.LIMITS, *params.REFUSED, *chat.REFUSED,
    *completions.REFUSED, "n", "stop", "logit_bias", "logprobs", "top_logprobs", "stream",
    "stream_options", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort",
    "response_format",
    "grammar",
    "json_schema",
    "chat_template_kwargs", "ignore_eos", "cache_prompt", "echo", "best_of", "model", "user",
]  # fmt: skip
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e300, 2**64, -(2**63), 1e-9, 0.0]),
    st.text(max_size=8),
    st.sampled_from(
        ["auto", "none", "required", "user", "assistant", "tool", "text", "json_object", "function"]
    ),
)
KEYS = st.one_of(
    st.sampled_from(
        ["type", "function", "name", "parameters", "role", "content", "text", "schema", "enum"]
    ),
    st.text(max_size=4),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=8,
)
BODIES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3)
MESSAGES = st.one_of(
    st.just([{"role": "user", "content": "Hello."}]),
    st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "tool", "assistant"])})
        .flatmap(lambda m: st.dictionaries(KEYS, VALUES, max_size=3).map(lambda d: {**m, **d})),
        max_size=4,
    ),
    VALUES,
)  # fmt: skip


@pytest.fixture(scope="module")
def served(trained_model):
    with golem_core.load(trained_model, threads=1, context=256) as model:
        cap = ServeSettings().max_tokens
        yield SimpleNamespace(model=model, most_tokens=lambda asked: asked or cap)


def tried(ask_of, body, served):
    """The status of a body; what is neither a request nor an `ApiError` is raised."""
    body = json.loads(json.dumps(body))
    try:
        params.stream_options(body)
        params.model_name(body)
        requests = ask_of(body).prepare(served)
    except ApiError as error:
        return error.status if error.message else 0
    return 200 if requests else 0


FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@FUZZ
@given(BODIES, MESSAGES)
def test_chats_of_any_shape(served, body, messages):
    assert tried(chat.ask_of, {**body, "messages": messages}, served) in (200, 400)


@FUZZ
@given(BODIES, st.one_of(st.just("Hello."), VALUES))
def test_prompts_of_any_shape(served, body, prompt):
    assert tried(completions.ask_of, {**body, "prompt": prompt}, served) in (200, 400)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (5, int, 5),
        (5.0, int, 5),
        (5, float, 5.0),
        (None, int, None),
        ("x", str, "x"),
        (False, bool, False),
        ([1], list, [1]),
    ],
)
def test_fields(value, kind, expected):
    found = field({"a": value}, "a", kind)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind", "range_", "said"),
    [
        (True, int, {}, "a is true, expected an integer"),
        (5.5, int, {}, "a is 5.5, expected an integer"),
        ("5", float, {}, "a is '5', expected a number"),
        (1, bool, {}, "a is 1, expected true or false"),
        ({}, list, {}, "a is an object, expected a list"),
        (3, int, {"low": 4}, "a is 3, expected an integer of at least 4"),
        (3, float, {"low": 0, "high": 2}, "a is 3.0, expected a number from 0 to 2"),
        (10**400, float, {}, "a is inf, expected a number"),
        ("c", str, {"choices": ("a", "b")}, "a is 'c', expected one of a, b"),
        ("x" * 200, int, {}, "..., expected an integer"),
    ],
)
def test_fields_that_are_wrong(value, kind, range_, said):
    with pytest.raises(ApiError) as caught:
        field({"a": value}, "a", kind, **range_)
    assert said in caught.value.message
    assert (caught.value.status, caught.value.param) == (400, "a")


def test_what_must_be_there():
    with pytest.raises(ApiError) as caught:
        required({}, "name", str, within="tools[0].function")
    assert caught.value.param == "tools[0].function.name"
    assert caught.value.code == "missing_required_parameter"


def test_a_byte_order_mark_is_no_matter():
    assert object_of('\ufeff{"a": 1}'.encode()) == {"a": 1}


def test_the_page_names_every_parameter():
    page = (Path(__file__).parents[2] / "docs" / "requests.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    assert {name for name in NAMES if name not in named} == set()
