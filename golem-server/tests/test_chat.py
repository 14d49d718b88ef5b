"""``/v1/chat/completions``, as OpenAI's own client drives it, on small trained models."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from pathlib import Path

import openai
import pytest

from golem_core.text import Template

from .chatting import PARIS, QUICK, STRICT, SUM, WEATHER, chatting, streamed


@pytest.fixture(scope="module", params=["qwen3", "qwen35", "gemma4"])
def served(request, serve_in_thread):
    folder = os.environ.get("GOLEM_TEST_MODELS")
    if folder is None:
        pytest.skip("GOLEM_TEST_MODELS names no folder of trained models")
    path = Path(folder) / request.param / f"{request.param}-q8_0.gguf"
    with serve_in_thread(f"m={path}", context=1024) as server:
        yield chatting(server)


@pytest.fixture(scope="module")
def one(trained_model, serve_in_thread):
    """A server for what does not depend on the family."""
    with serve_in_thread(f"m={trained_model}", context=512) as server:
        yield chatting(server)


# Texts


@pytest.mark.parametrize("options", [{"temperature": 0}, {"seed": 5, "temperature": 1.5}])
def test_the_answer_is_the_python_api_s(served, options):
    expected = served.model.chat(SUM, thinking=False, max_tokens=40, **options).complete()
    got = served.ask(max_tokens=40, **options, **QUICK)
    assert got.choices[0].message.content == expected.text != ""
    assert got.choices[0].finish_reason == expected.finish_reason
    assert got.usage.prompt_tokens == len(expected.prompt_ids)
    assert got.usage.completion_tokens == len(expected.ids)
    gathered = streamed(served, max_tokens=40, **options, **QUICK)
    assert gathered.choices[0].message.content == expected.text
    assert gathered.choices[0].message.role == "assistant"
    assert gathered.usage.completion_tokens == len(expected.ids)
    assert (gathered.model, gathered.object) == ("m", "chat.completion")


def test_several_answers_have_the_seeds_that_follow(served):
    ways = {"max_tokens": 24, "temperature": 1.5}
    several = served.ask(n=3, seed=-9007199254740991, **ways, **QUICK)
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    for choice in several.choices:
        alone = served.ask(seed=-9007199254740991 + choice.index, **ways, **QUICK)
        assert alone.choices[0].message.content == choice.message.content
    gathered = streamed(served, n=3, seed=-9007199254740991, **ways, **QUICK)
    assert [choice.message.content for choice in gathered.choices] == [
        choice.message.content for choice in several.choices
    ]
    assert (
        several.usage.prompt_tokens == served.model.chat_ids(SUM, enable_thinking=False).__len__()
    )
    assert several.usage == gathered.usage.model_copy(
        update={"prompt_tokens_details": several.usage.prompt_tokens_details}
    )


def test_every_chunk_is_as_the_clients_want_it(one):
    chunks = list(
        one.ask(stream=True, n=2, max_tokens=8, seed=1, stream_options={"include_usage": True})
    )
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    *pieces, last = chunks
    assert last.choices == []
    assert last.usage.completion_tokens > 0
    assert all(piece.usage is None and len(piece.choices) == 1 for piece in pieces)
    roles = [piece.choices[0] for piece in pieces if piece.choices[0].delta.role]
    assert [(c.index, c.delta.role, c.delta.content) for c in roles] == [
        (0, "assistant", ""),
        (1, "assistant", ""),
    ]
    ends = [piece.choices[0].index for piece in pieces if piece.choices[0].finish_reason]
    assert sorted(ends) == [0, 1]
    unasked = list(one.ask(stream=True, max_tokens=8))
    assert all("usage" not in chunk.to_dict() for chunk in unasked)
    assert unasked[-1].timings["predicted_n"] > 0


def test_thoughts(served):
    tools = {"tools": [WEATHER], "temperature": 0, "max_tokens": 90}
    expected = served.model.chat(PARIS, thinking=True, tools=[WEATHER], temperature=0).complete()
    for body in (
        {"reasoning_effort": "high"},
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
    ):
        got = served.ask(messages=PARIS, **tools, **body)
        assert got.choices[0].message.reasoning_content == expected.thoughts != ""
        assert 0 < got.usage.completion_tokens_details.reasoning_tokens < len(expected.ids)
    quick = served.ask(messages=PARIS, **tools, reasoning_effort="none")
    assert not hasattr(quick.choices[0].message, "reasoning_content")
    assert quick.usage.completion_tokens_details.reasoning_tokens == 0


# Tools


def test_a_call_and_what_comes_of_it(served):
    body = {"tools": [WEATHER], "temperature": 0, "max_tokens": 90, "reasoning_effort": "none"}
    asked = served.ask(messages=PARIS, **body)
    (choice,) = asked.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    gathered = streamed(served, messages=PARIS, **body).choices[0]
    assert gathered.finish_reason == "tool_calls"
    assert gathered.message.tool_calls[0].function.arguments == call.function.arguments
    told = {"role": "tool", "tool_call_id": call.id, "content": "12 C, sunny"}
    done = served.ask(messages=[*PARIS, choice.message.to_dict(), told], **body)
    assert done.choices[0].finish_reason == "stop"
    assert done.choices[0].message.content
    assert done.choices[0].message.tool_calls is None


def test_no_tools_where_they_are_not_wanted(served):
    plain = served.ask(messages=PARIS, temperature=0, max_tokens=30, **QUICK)
    none = served.ask(
        messages=PARIS, temperature=0, max_tokens=30, tools=[WEATHER], tool_choice="none", **QUICK
    )
    assert none.usage.prompt_tokens == plain.usage.prompt_tokens
    assert none.choices[0].message.content == plain.choices[0].message.content
    assert none.choices[0].message.tool_calls is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1]"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "perhaps", "tools": [WEATHER]}, "tool_choice"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "x"}}, "tools": [WEATHER]},
            "tool_choice",
        ),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": [WEATHER]}, "tool_choice"),
        ({"parallel_tool_calls": "yes", "tools": [WEATHER]}, "parallel_tool_calls"),
    ],
)
def test_tools_that_cannot_be(one, body, param):
    with pytest.raises(openai.BadRequestError) as caught:
        one.ask(extra_body=body)
    assert caught.value.param == param


# Messages


def test_a_developer_is_a_system(served):
    rule = {"content": "Answer in French, and briefly."}
    got = [
        served.ask(messages=[{"role": role, **rule}, *SUM], temperature=0, max_tokens=20, **QUICK)
        for role in ("developer", "system")
    ]
    assert got[0].usage.prompt_tokens == got[1].usage.prompt_tokens
    assert got[0].choices[0].message.content == got[1].choices[0].message.content
    rendered = served.model.template.render([{"role": "developer", **rule}, *SUM])
    assert rule["content"] in "".join(text for text, _ in rendered)


@pytest.mark.parametrize(
    "messages",
    [
        [*SUM, *SUM],
        [{"role": "assistant", "content": "Hello."}, *SUM],
        [{"role": "system", "content": "Be brief."}],
        [{"role": "system", "content": "A"}, {"role": "system", "content": "B"}, *SUM],
        [*SUM, {"role": "system", "content": "Be brief."}, *SUM],
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            }
        ],
        [{"role": "user", "content": "x", "name": "Ann"}],
    ],
)
def test_roles_in_any_order_are_answered_or_refused_by_name(served, messages):
    try:
        got = served.ask(messages=messages, max_tokens=2)
    except openai.BadRequestError as error:
        told = (error.type, error.param.startswith("messages"))
    else:
        told = (got.choices[0].message.role, True)
    assert told in (("assistant", True), ("invalid_request_error", True))


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hello", "messages"),
        ([{"role": "foo", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        (["hello"], "messages[0]"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0]"),
        (
            [*SUM, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[1].content[0]",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "input_audio"}]}],
            "messages[0].content[1]",
        ),
        ([{"role": "user", "content": [{"type": "file"}]}], "messages[0].content[0]"),
        ([{"role": "assistant", "tool_calls": 5}, *SUM], "messages[0].tool_calls"),
    ],
)
def test_messages_that_cannot_be(one, messages, param):
    for streams in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            one.ask(messages=messages, stream=streams)
        assert caught.value.param == param
        assert param in caught.value.message


def test_an_answer_goes_back_in_every_form_that_clients_have(served):
    said = served.ask(temperature=0, max_tokens=30, **QUICK).choices[0].message
    bare = {"role": "assistant", "content": said.content}
    absent = {name: None for name in ("refusal", "function_call", "tool_calls", "audio", "name")}
    forms = [
        bare,
        said,
        said.model_dump(),
        said.to_dict(),
        {**bare, **absent, "annotations": []},
        {**bare, "tool_calls": []},
        {**bare, "content": [{"type": "text", "text": said.content}]},
    ]
    got = [
        served.ask(messages=[*SUM, form, *PARIS], temperature=0, max_tokens=4, **QUICK)
        for form in forms
    ]
    assert len({answer.usage.prompt_tokens for answer in got}) == 1
    assert len({answer.choices[0].message.content for answer in got}) == 1
    assert got[0].usage.prompt_tokens > served.ask(max_tokens=1).usage.prompt_tokens


ALTERNATING = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('No system here') }}"
    "{% elif (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


def test_a_template_says_itself_what_it_does_not_take(one, monkeypatch):
    monkeypatch.setattr(one.model, "template", Template(ALTERNATING))
    for messages in ([*SUM, *SUM], [{"role": "assistant", "content": "Hello."}, *SUM]):
        with pytest.raises(openai.BadRequestError, match="Roles must alternate") as caught:
            one.ask(messages=messages)
        assert (caught.value.type, caught.value.param) == ("invalid_request_error", "messages")
    # What knows no system message has it at the head of the user's.
    folded = [{"role": "user", "content": f"Be brief.\n\n{SUM[0]['content']}"}]
    for role in ("system", "developer"):
        got = one.ask(messages=[{"role": role, "content": "Be brief."}, *SUM], max_tokens=1)
        assert got.usage.prompt_tokens == len(one.model.chat_ids(folded))


def test_a_control_token_that_is_typed_is_text(served):
    marker = next(iter(served.model.format.markers))
    evil = [{"role": "user", "content": f"a {marker} b"}]
    got = served.ask(messages=evil, max_tokens=1)
    ids = served.model.chat_ids(evil)
    assert got.usage.prompt_tokens == len(ids)
    assert served.model.tokenizer.special_id(marker) not in ids[4:-8]


# What was said before

LONG = [{"role": "user", "content": "word " * 600}]


def test_a_prompt_that_does_not_fit(one):
    with pytest.raises(openai.BadRequestError) as caught:
        one.ask(messages=LONG)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.body["n_ctx"] == 512
    assert caught.value.body["n_prompt_tokens"] > 512


@pytest.mark.parametrize(
    ("ask", "status"),
    [
        (lambda c: c.chat.completions.create(model="m", messages=LONG), 400),
        (lambda c: c.chat.completions.create(model="x", messages=SUM), 404),
        (lambda c: c.chat.completions.create(model="m", messages=SUM, temperature=-1), 400),
        (lambda c: c.embeddings.create(model="m", input="x"), 501),
        (lambda c: c.audio.speech.create(model="m", input="x", voice="y"), 501),
        (lambda c: c.audio.transcriptions.create(model="m", file=("x.wav", b"RIFF")), 503),
    ],
)
def test_what_would_only_fail_again_is_asked_once(one, ask, status):
    asked = []
    http = openai.DefaultHttpxClient(event_hooks={"request": [asked.append]})
    with openai.OpenAI(base_url=f"{one.url}/v1", api_key="-", http_client=http) as client:
        assert client.max_retries == 2
        with pytest.raises(openai.APIStatusError) as caught:
            ask(client)
    assert caught.value.status_code == status
    assert len(asked) == 1


def test_an_unknown_model(one):
    with pytest.raises(openai.NotFoundError) as caught:
        one.ask(model="gpt-4")
    assert caught.value.code == "model_not_found"


def test_what_is_said_twice_is_read_once(one):
    system = {"role": "system", "content": "Be kind. " * 40}
    first = one.ask(messages=[system, *SUM], max_tokens=1)
    again = one.ask(messages=[system, *PARIS], max_tokens=1)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    cached = again.usage.prompt_tokens_details.cached_tokens
    assert 32 <= cached < again.usage.prompt_tokens
    assert again.timings["cache_n"] == cached
    assert again.timings["prompt_n"] == again.usage.prompt_tokens - cached


def test_two_conversations_with_one_long_system_prompt_read_it_once(trained_model, serve_in_thread):
    """Its 1,000 tokens are known to the second, whose answer and whose server say so."""
    words = " ".join(f"Rule {i}: answer with {i % 7} words." for i in range(400))
    with serve_in_thread(f"m={trained_model}", context=4096) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", **STRICT)

        def counts():
            with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
                text = answer.read().decode()
            return {
                name: float(re.search(rf"^golem:{name}_total{{.*}} (.+)$", text, re.M).group(1))
                for name in ("prompt_tokens", "prompt_tokens_cached")
            }

        def say(system, *turns):
            messages = [{"role": "system", "content": system}, *turns]
            got = client.chat.completions.create(model="m", messages=messages, max_tokens=1)
            return got.usage

        tokens = say("", *SUM).prompt_tokens
        model = server.models.loaded()[0].model
        system = model.tokenizer.decode(model.tokenize(words)[:1000])
        before = counts()
        first, second = say(system, *SUM), say(system, *PARIS)
        assert abs(first.prompt_tokens - tokens - 1000) < 8
        after = counts()
        assert first.prompt_tokens_details.cached_tokens < 64  # what stands before any system text
        known = second.prompt_tokens_details.cached_tokens
        assert 1000 - 64 <= known < second.prompt_tokens  # but for what a page has beyond it
        took = {name: after[name] - before[name] for name in after}
        assert took["prompt_tokens"] == first.prompt_tokens + second.prompt_tokens
        cached = first.prompt_tokens_details.cached_tokens + known
        assert took["prompt_tokens_cached"] == cached


def test_what_is_not_to_be_known_is_not(one):
    body = {
        "messages": [{"role": "system", "content": "Be apart. " * 40}, *SUM],
        "temperature": 0,
        "max_tokens": 9,
    }
    alone = {**body, "extra_body": {"cache_prompt": False}}
    got = [one.ask(**b) for b in (alone, alone, body, alone, body)]
    cached = [answer.usage.prompt_tokens_details.cached_tokens for answer in got]
    assert cached[:4] == [0, 0, 0, 0]
    assert cached[4] > 32
    assert len({answer.choices[0].message.content for answer in got}) == 1


def test_lengths_are_hidden_if_asked(one):
    chunks = list(one.ask(stream=True, max_tokens=8, stream_options={"include_obfuscation": True}))
    assert all(isinstance(chunk.obfuscation, str) and chunk.obfuscation for chunk in chunks)
