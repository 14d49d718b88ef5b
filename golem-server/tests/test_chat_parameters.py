"""What a request of ``/v1/chat/completions`` may have: obeyed, or refused by name."""

from __future__ import annotations

import math
import re

import openai
import pytest

from golem_server import params
from golem_server.routes import chat

from .chatting import QUICK, SUM, WEATHER, chatting, streamed


@pytest.fixture(scope="module")
def one(trained_model, serve_in_thread):
    """A server for what does not depend on the family."""
    with serve_in_thread(f"m={trained_model}", context=512) as server:
        yield chatting(server)


def test_logprobs(one):
    body = {"temperature": 0, "max_tokens": 12, "logprobs": True, "top_logprobs": 3, **QUICK}
    got = one.ask(**body).choices[0]
    assert "".join(entry.token for entry in got.logprobs.content) == got.message.content
    for entry in got.logprobs.content:
        assert bytes(entry.bytes).decode() == entry.token
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token  # the likeliest was drawn
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1 + 1e-6
    gathered = streamed(one, **body).choices[0]
    assert [e.to_dict() for e in gathered.logprobs.content] == [
        e.to_dict() for e in got.logprobs.content
    ]
    assert one.ask(max_tokens=1).choices[0].logprobs is None


def test_logit_bias(one):
    (token,) = one.model.tokenizer.encode(" weather")
    got = one.ask(logit_bias={str(token): 100}, max_tokens=3, **QUICK)
    assert got.choices[0].message.content == " weather weather weather"
    first = one.ask(temperature=0, max_tokens=1, **QUICK).choices[0].message.content
    banned = one.model.tokenizer.encode(first)[0]
    other = one.ask(
        temperature=0, max_tokens=1, logprobs=True, logit_bias={str(banned): -100}, **QUICK
    )
    assert other.choices[0].message.content != first


def test_sampling_as_llama_cpp_names_it(one):
    extras = {
        "top_k": 20, "min_p": 0.02, "typical_p": 0.9, "repeat_penalty": 1.1, "repeat_last_n": 32,
    }  # fmt: skip
    ours = {**extras, "penalty_window": extras["repeat_last_n"]}
    del ours["repeat_last_n"]
    rest = {"seed": 3, "temperature": 1.2, "frequency_penalty": 0.2, "presence_penalty": 0.1}
    expected = one.model.chat(SUM, thinking=False, max_tokens=30, **ours, **rest).complete()
    got = one.ask(max_tokens=30, **rest, extra_body={**extras, **QUICK["extra_body"]})
    assert got.choices[0].message.content == expected.text


def test_ignore_eos(one):
    got = one.ask(max_tokens=60, temperature=0, extra_body={"ignore_eos": True})
    assert got.choices[0].finish_reason == "length"
    assert got.usage.completion_tokens == 60


@pytest.mark.parametrize("name", params.LIMITS)
def test_limits(one, name):
    got = one.ask(temperature=0, extra_body={name: 3, **QUICK["extra_body"]})
    assert got.choices[0].finish_reason == "length"
    assert got.usage.completion_tokens == 3
    with pytest.raises(openai.BadRequestError) as caught:
        one.ask(extra_body={name: 0})
    assert caught.value.param == name
    assert one.ask(extra_body={name: -1, "stop": ["1"]}).choices[0].finish_reason == "stop"


def test_max_completion_tokens_counts_first(one):
    got = one.ask(max_tokens=9, max_completion_tokens=2, temperature=0, **QUICK)
    assert got.usage.completion_tokens == 2


ACCEPTED = {
    "user": "ann",
    "metadata": {"a": "b"},
    "store": True,
    "service_tier": "auto",
    "cache_prompt": True,
    "something_new": [1, 2],
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "prediction": {"type": "content", "content": "x"},
    "modalities": ["text"],
    "response_format": {"type": "text"},
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "logit_bias": {},
    "temperature": None,
    "n_keep": 4,
    "id_slot": -1,
    "mirostat": 0,
    "stop": None,
    "seed": 2**63 - 1,
    "top_k": -1,
}


def test_what_is_accepted_without_effect(one):
    assert one.ask(max_tokens=1, extra_body=ACCEPTED).choices[0].finish_reason == "length"
    # Without a stream there is nothing for its options to change.
    assert one.ask(max_tokens=1, extra_body={"stream_options": {"include_usage": True}}).usage


ASKING = {  # a value for each parameter that is refused where it asks for something
    "audio": {"voice": "x"}, "modalities": ["audio"], "web_search_options": {},
    "functions": [{"name": "f"}], "function_call": "auto", "verbosity": "low", "mirostat": 2,
    "dynatemp_range": 0.5, "xtc_probability": 0.1, "dry_multiplier": 0.8, "top_n_sigma": 1.0,
    "min_keep": 3, "samplers": ["top_k"], "n_probs": 3, "post_sampling_probs": True,
    "t_max_predict_ms": 100, "n_indent": 2, "n_keep": "all", "id_slot": 0, "lora": [{"id": 0}],
    "return_tokens": True, "return_progress": True, "timings_per_token": True,
    "response_fields": ["content"], "reasoning_format": "none", "reasoning_budget": 10,
    "thinking_budget_tokens": 5, "parse_tool_calls": False, "add_generation_prompt": False,
    "continue_final_message": True, "moderation": {"model": "m"},
}  # fmt: skip


@pytest.mark.parametrize("name", [*params.REFUSED, *chat.REFUSED])
def test_what_is_not_done_is_refused_by_name(one, name):
    with pytest.raises(openai.BadRequestError) as caught:
        one.ask(extra_body={name: ASKING[name]})
    assert (caught.value.param, caught.value.code) == (name, "unsupported")
    assert name in caught.value.message


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": -0.1}, "top_p"),
        ({"min_p": 2}, "min_p"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repeat_last_n": -2}, "repeat_last_n"),
        ({"frequency_penalty": 1000}, "frequency_penalty"),
        ({"seed": 2**70}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"logit_bias": {"foo": 0}}, "logit_bias"),
        ({"logit_bias": {"999999999": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"1": None}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": 1}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        *(
            ({"chat_template_kwargs": {name: []}}, f"chat_template_kwargs.{name}")
            for name in ("self", "messages", "tools", "add_generation_prompt")
        ),
        (
            {"chat_template_kwargs": {"enable_thinking": "no"}},
            "chat_template_kwargs.enable_thinking",
        ),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"grammar": 5}, "grammar"),
        ({"grammar": "root ::= 'a'", "json_schema": {}}, "grammar"),
        (
            {"grammar": "root ::= 'a'", "response_format": {"type": "json_object"}},
            "response_format",
        ),
        ({"tools": [WEATHER], "response_format": {"type": "json_object"}}, "response_format"),
        ({"model": 5}, "model"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(one, body, param):
    with pytest.raises(openai.BadRequestError) as caught:
        one.ask(extra_body=body)
    assert caught.value.param == param
    assert param in caught.value.message
    assert caught.value.type == "invalid_request_error"


# What every OpenAI client may send, and what it is answered with: all of it is obeyed or refused.
SENT = {
    "max_tokens": ([1, 3], [0]),
    "max_completion_tokens": ([1, 3], [0]),
    "stop": (["x", ["x"], ["a", "b", "c", "d"]], [["a", "b", "c", "d", "e"]]),
    "seed": ([0, 2**63 - 1, -(2**63), -9007199254740991], [2**64, "x"]),
    "n": ([1, 2], [0]),
    "logprobs": ([True, False], [2]),
    "logit_bias": ([{}, {"5": -100}], [{"foo": 0}]),
    "response_format": ([{"type": "text"}, {"type": "json_object"}], [{"type": "xml"}]),
    "tools": ([[], [WEATHER]], [[{"type": "web_search"}]]),
    "tool_choice": (
        ["auto", "none"],
        ["required", {"type": "function", "function": {"name": "f"}}],
    ),
    "parallel_tool_calls": ([True, False], ["x"]),
    "user": (["ann"], []),
    "metadata": ([{"a": "b"}], []),
    "store": ([True, False], []),
    "service_tier": (["auto", "flex"], []),
    "reasoning_effort": (["none", "low", "high"], ["extreme"]),
    "temperature": ([0, 2], [-1]),
    "top_p": ([0.5], [2]),
    "frequency_penalty": ([-2, 2], ["x"]),
    "presence_penalty": ([-2, 2], ["x"]),
    "stream_options": ([{"include_usage": True}], ["x"]),
    "messages": (
        [
            [{"role": "developer", "content": "Be brief."}, *SUM],
            [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}],
            [*SUM, {"role": "assistant", "content": None, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ]}, {"role": "tool", "tool_call_id": "c", "content": "1"}],
        ],
        [[], None],
    ),
    "unheard_of": ([1, {"a": []}], []),
}  # fmt: skip


@pytest.mark.parametrize("name", SENT)
def test_what_clients_send_is_obeyed_or_refused_by_name(one, name):
    taken, wrong = SENT[name]
    for value in taken:
        got = one.ask(extra_body={"max_tokens": 2, name: value})
        assert got.choices[0].finish_reason in ("stop", "length"), value
    for value in wrong:
        with pytest.raises(openai.BadRequestError) as caught:
            one.ask(extra_body={"max_tokens": 2, name: value})
        assert re.match(r"\w+", caught.value.param).group() == name, value
