"""``/v1/messages``, as Anthropic's own client drives it."""

from __future__ import annotations

import json
import urllib.request

import pydantic
import pytest

from .scripted_server import scripted_server

anthropic = pytest.importorskip("anthropic")

PARIS = [{"role": "user", "content": "What is the weather in Paris?"}]
SUM = [{"role": "user", "content": "What is 12 + 7?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
WEATHER = {
    "name": "get_weather",
    "description": "Get the weather for a city",
    "input_schema": SCHEMA,
}
CHAT_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city",
        "parameters": SCHEMA,
    },
}
CALL = '<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{}"}}}}\n</tool_call>'
# The client checks every answer and every event against its own types.
STRICT = {"max_retries": 0, "_strict_response_validation": True}
QUIET = {"thinking": {"type": "disabled"}}
GREEDY = {"temperature": 0}  # which newer clients have no argument for


@pytest.fixture(scope="module")
def one(trained_model, serve_in_thread):
    with serve_in_thread(f"m={trained_model}", context=512, api_keys=("key",)) as server:
        client = anthropic.Anthropic(base_url=server.url, api_key="key", **STRICT)
        server.client = client
        server.model = server.models.loaded()[0].model
        server.ask = lambda extra_body=None, **body: client.messages.create(
            **{"model": "m", "messages": SUM, "max_tokens": 100, **body},
            extra_body={**GREEDY, **(extra_body or {})},
        )
        with client:
            yield server


@pytest.fixture(scope="module")
def script(trained_model, serve_in_thread):
    with scripted_server(trained_model, serve_in_thread) as script:
        script.client = anthropic.Anthropic(base_url=script.url, api_key="-", **STRICT)
        with script.client:
            yield script


def told(script, text, **body):
    """A whole message and the events of the same one streamed; the model says `text`."""
    body = {"model": "scripted", "messages": SUM, **body}
    counted = {k: v for k, v in body.items() if k in ("model", "messages", "tools", "thinking")}
    after = script.client.messages.count_tokens(**counted).input_tokens
    script.says(text, after)
    body.setdefault("max_tokens", 400)
    whole = script.client.messages.create(**body)
    return whole, list(script.client.messages.create(stream=True, **body))


# Texts


def test_the_answer_is_the_python_api_s(one):
    expected = one.model.chat(SUM, thinking=False, temperature=0).complete()
    got = one.ask(**QUIET)
    assert [(block.type, block.text) for block in got.content] == [("text", expected.text)]
    assert (got.type, got.role, got.model) == ("message", "assistant", "m")
    assert (got.stop_reason, got.stop_sequence) == ("end_turn", None)
    read = got.usage.input_tokens + got.usage.cache_read_input_tokens
    assert read == len(expected.prompt_ids)
    assert got.usage.output_tokens == len(expected.ids)
    body = {"model": "m", "messages": SUM, "max_tokens": 100, **QUIET}
    with one.client.messages.stream(**body, extra_body=GREEDY) as stream:
        assert "".join(stream.text_stream) == expected.text
        last = stream.get_final_message()
    assert last.usage.output_tokens == len(expected.ids)
    assert last.usage.input_tokens + last.usage.cache_read_input_tokens == read


@pytest.mark.parametrize("system", ["You add.", [{"type": "text", "text": "You add."}]])
def test_counted_tokens_are_those_of_the_prompt(one, system):
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Hello!"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
        *SUM,
    ]
    expected = one.model.chat_ids(
        [
            {"role": "system", "content": "You add."},
            {"role": "user", "content": "Hello!"},
            {"role": "assistant", "content": "Hello."},
            *SUM,
        ],
        tools=[CHAT_WEATHER],
    )
    ask = {"system": system, "messages": turns, "tools": [WEATHER]}
    count = one.client.messages.count_tokens(model="m", **ask)
    assert count.input_tokens == len(expected)
    got = one.ask(max_tokens=1, **ask)
    assert got.usage.input_tokens + got.usage.cache_read_input_tokens == len(expected)
    again = one.ask(max_tokens=1, **ask)
    assert 0 < again.usage.cache_read_input_tokens < len(expected)


def test_what_does_not_fit_is_counted_all_the_same(one):
    turns = [{"role": "user", "content": "word " * 600}]
    count = one.client.messages.count_tokens(model="m", messages=turns)
    assert count.input_tokens == len(one.model.chat_ids(turns)) > 512


def test_stop_sequences_say_which(one):
    whole = one.ask(**QUIET).content[0].text
    stop = whole[3:6]
    got = one.ask(stop_sequences=["zzz", stop], **QUIET)
    assert (got.stop_reason, got.stop_sequence) == ("stop_sequence", stop)
    assert got.content[0].text == whole[: whole.index(stop)]
    cut = one.ask(max_tokens=2, **QUIET)
    assert (cut.stop_reason, cut.stop_sequence) == ("max_tokens", None)
    assert cut.usage.output_tokens == 2


# The events of a stream


def test_events_come_in_their_order(script):
    text = "<think>\nHm.\n</think>\n\nLet me look.\n" + CALL.format("Paris")
    whole, events = told(script, text, tools=[WEATHER])
    kinds = [event.type for event in events]
    runs = [kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert runs == ["message_start", *block * 3, "message_delta", "message_stop"]
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    assert (whole.content[0].thinking, whole.content[0].signature) == ("Hm.", "")
    assert whole.content[1].text == "Let me look."
    assert whole.content[2].input == {"city": "Paris"}
    assert whole.stop_reason == "tool_use"
    assert events[0].message.content == []
    assert events[0].message.usage.output_tokens == 0
    assert events[-2].delta.stop_reason == "tool_use"
    assert events[-2].usage.output_tokens == whole.usage.output_tokens
    started = [e for e in events if e.type == "content_block_start"]
    assert [e.index for e in started] == [0, 1, 2]
    assert started[2].content_block.input == {}
    deltas = [e for e in events if e.type == "content_block_delta"]
    assert [e.index for e in deltas] == sorted(e.index for e in deltas)
    assert json.loads(deltas[-1].delta.partial_json) == {"city": "Paris"}


def test_parallel_calls_are_blocks_of_their_own(script):
    text = f"{CALL.format('Paris')}\n{CALL.format('Oslo')}"
    whole, _ = told(script, text, tools=[WEATHER], **QUIET)
    assert [block.input["city"] for block in whole.content] == ["Paris", "Oslo"]
    assert len({block.id for block in whole.content}) == 2
    body = {"model": "scripted", "messages": SUM, "tools": [WEATHER], "max_tokens": 400, **QUIET}
    with script.client.messages.stream(**body) as stream:
        gathered = stream.get_final_message()
    assert [block.input for block in gathered.content] == [{"city": "Paris"}, {"city": "Oslo"}]
    assert gathered.stop_reason == "tool_use"
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    alone, _ = told(script, text, tools=[WEATHER], tool_choice=choice, **QUIET)
    assert [block.input["city"] for block in alone.content] == ["Paris"]


def test_thoughts_are_left_out_on_request(script):
    thinking = {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}
    whole, events = told(script, "<think>\nHm.\n</think>\n\nYes.", thinking=thinking)
    assert [(b.type, getattr(b, "thinking", None)) for b in whole.content] == [
        ("thinking", ""),
        ("text", None),
    ]
    assert all(getattr(getattr(e, "delta", None), "thinking", "") == "" for e in events)


def test_a_failure_in_the_middle_is_an_event(script):
    body = {"model": "scripted", "messages": SUM, **QUIET}
    after = script.client.messages.count_tokens(**body).input_tokens
    script.draws([*script.tokenizer.encode("Look"), script.program.NAN], after)
    with pytest.raises(anthropic.APIStatusError) as failure:
        list(script.client.messages.create(stream=True, max_tokens=20, **body))
    assert failure.value.body["error"]["type"] == "api_error"
    assert "NaN" in failure.value.body["error"]["message"]
    with pytest.raises(anthropic.InternalServerError):
        script.client.messages.create(max_tokens=20, **body)


# Tools


def test_tools_there_and_back(one):
    first = one.ask(messages=PARIS, tools=[WEATHER])
    assert first.stop_reason == "tool_use"
    call = first.content[-1]
    assert (call.type, call.name, call.input) == ("tool_use", "get_weather", {"city": "Paris"})
    answer = [block.model_dump(exclude_none=True) for block in first.content]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees"}
    turns = [
        *PARIS,
        {"role": "assistant", "content": answer},
        {"role": "user", "content": [result]},
    ]
    second = one.ask(messages=turns, tools=[WEATHER])
    told = [
        *PARIS,
        {
            "role": "assistant",
            "content": "".join(b.text for b in first.content if b.type == "text"),
            "reasoning_content": "".join(b.thinking for b in first.content if b.type == "thinking"),
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": {"city": "Paris"}},
                }
            ],
        },
        {
            "role": "tool",
            "tool_call_id": call.id,
            "name": "get_weather",
            "content": "18 degrees",
        },
    ]
    expected = one.model.chat(told, tools=[CHAT_WEATHER], temperature=0).complete()
    assert second.content[-1].text == expected.text != ""
    count = one.client.messages.count_tokens(model="m", messages=turns, tools=[WEATHER])
    assert count.input_tokens == len(expected.prompt_ids)


# What the answer is to be


class Person(pydantic.BaseModel):
    name: str
    age: int


def test_an_answer_is_parsed_by_a_schema(one):
    pytest.importorskip("llguidance")
    asked = "Give me a JSON object with the name Tom and the age 7."
    got = one.client.messages.parse(
        model="m",
        max_tokens=200,
        extra_body=GREEDY,
        messages=[{"role": "user", "content": asked}],
        output_format=Person,
    )
    assert isinstance(got.parsed_output, Person)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"type": "any"}, {"get_weather", "get_time"}),
        ({"type": "tool", "name": "get_time"}, {"get_time"}),
    ],
)
def test_a_call_is_forced(one, choice, names):
    pytest.importorskip("llguidance")
    other = {**WEATHER, "name": "get_time", "description": "Get the time in a city"}
    got = one.ask(tools=[WEATHER, other], tool_choice=choice, max_tokens=120, **QUIET)
    assert got.stop_reason == "tool_use"
    calls = [block for block in got.content if block.type == "tool_use"]
    assert calls
    assert {call.name for call in calls} <= names
    assert all(isinstance(call.input["city"], str) for call in calls)


# Refusals


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"messages": []}, "messages is empty"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role is 'robot'"),
        ({"messages": [*SUM, {"role": "assistant", "content": "1"}]}, "messages[1] is the assist"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages[0].content[0] is an image",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}
                ]
            },
            "messages[0].content[0].tool_use_id is 'x'",
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "x"}]}, "tools[0].type is 'web_"),
        ({"tool_choice": {"type": "any"}}, "tool_choice is 'any'"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name is 'x'"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type is 'between_tools'"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type is 'xml'"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}},
            "output_config.format.schema",
        ),
        ({"container": "x"}, "container is not supported"),
        ({"context_management": {"edits": [{"type": "x"}]}}, "context_management.edits[0] is"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"temperature": -1}, "temperature is -1"),
        ({"stop_sequences": ["a", "b", "c", "d", "e"]}, "stop_sequences has 5 strings"),
        ({"stop_sequences": [""]}, "stop_sequences has an empty string"),
        ({"messages": [{"role": "user", "content": "word " * 600}]}, "512"),
    ],
)
def test_what_is_not_done_is_refused_by_name(one, body, said):
    with pytest.raises(anthropic.BadRequestError) as refusal:
        one.ask(extra_body=body)
    told = refusal.value.body
    assert told["type"] == "error"
    assert told["error"]["type"] == "invalid_request_error"
    assert said in told["error"]["message"]


def test_other_errors_have_the_same_form(one):
    with pytest.raises(anthropic.NotFoundError) as absent:
        one.ask(model="other")
    assert absent.value.body["error"]["type"] == "not_found_error"
    with (
        anthropic.Anthropic(base_url=one.url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError) as refusal,
    ):
        stranger.messages.create(model="m", messages=SUM, max_tokens=1)
    assert refusal.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.BadRequestError) as missing:
        one.client.post("/v1/messages", body={"messages": SUM, "max_tokens": 1}, cast_to=object)
    assert "model is missing" in missing.value.body["error"]["message"]


def test_what_asks_for_nothing_is_taken(one):
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}]
    body = {"context_management": {"edits": edits}, "metadata": {"user_id": "x"}}
    assert one.ask(extra_body=body, max_tokens=1).usage.output_tokens == 1


def test_a_ping_follows_the_start(one):
    body = {"model": "m", "messages": SUM, "max_tokens": 2, "stream": True}
    request = urllib.request.Request(
        f"{one.url}/v1/messages",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "x-api-key": "key"},
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        names = [line for line in response.read().decode().splitlines() if "event:" in line]
    assert names[:2] == ["event: message_start", "event: ping"]
    assert names[-1] == "event: message_stop"
