"""``/v1/responses``, as OpenAI's own client drives it."""

from __future__ import annotations

import json

import openai
import pydantic
import pytest

from .chatting import STRICT
from .chatting import WEATHER as CHAT_WEATHER
from .scripted_server import scripted_server

PARIS = "What is the weather in Paris?"
SUM = "What is 12 + 7?"
WEATHER = {"type": "function", **CHAT_WEATHER["function"], "strict": False}
CALL = '<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{}"}}}}\n</tool_call>'
QUIET = {"reasoning": {"effort": "none"}}


@pytest.fixture(scope="module")
def one(trained_model, serve_in_thread):
    with serve_in_thread(f"m={trained_model}", context=512) as server:
        server.client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", **STRICT)
        server.model = server.models.loaded()[0].model
        server.ask = lambda **body: server.client.responses.create(
            **{"model": "m", "input": SUM, "temperature": 0, **body}
        )
        with server.client:
            yield server


@pytest.fixture(scope="module")
def script(trained_model, serve_in_thread):
    with scripted_server(trained_model, serve_in_thread) as script:
        script.client = openai.OpenAI(base_url=f"{script.url}/v1", api_key="-", **STRICT)
        with script.client:
            yield script


def told(script, text, **body):
    """A whole response and the events of the same one streamed; the model says `text`."""
    body = {"model": "scripted", "input": "Go on.", **body}
    counted = {k: v for k, v in body.items() if k in ("model", "input", "tools", "reasoning")}
    after = script.client.responses.input_tokens.count(**counted).input_tokens
    script.says(text, after)
    whole = script.client.responses.create(**body)
    return whole, list(script.client.responses.create(stream=True, **body))


def of(events, kind):
    return [event for event in events if event.type == kind]


# Texts


def test_the_answer_is_the_python_api_s(one):
    expected = one.model.chat(SUM, thinking=False, temperature=0).complete()
    got = one.ask(**QUIET)
    assert got.output_text == expected.text != ""
    assert (got.status, got.object, got.model, got.store) == ("completed", "response", "m", False)
    assert got.usage.input_tokens == len(expected.prompt_ids)
    assert got.usage.output_tokens == len(expected.ids)
    assert got.usage.total_tokens == got.usage.input_tokens + got.usage.output_tokens
    assert got.incomplete_details is got.error is None
    with one.client.responses.stream(model="m", input=SUM, temperature=0, **QUIET) as stream:
        deltas = [e.delta for e in stream if e.type == "response.output_text.delta"]
        assert "".join(deltas) == expected.text
        assert stream.get_final_response().output_text == expected.text


def test_instructions_and_items_are_one_conversation(one):
    items = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hello!"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
        },
        {"role": "user", "content": SUM},
    ]
    told = [
        {"role": "system", "content": "You add."},
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": SUM},
    ]
    expected = one.model.chat_ids(told)
    count = one.client.responses.input_tokens.count(model="m", input=items, instructions="You add.")
    assert count.input_tokens == len(expected)
    got = one.ask(input=items, instructions="You add.")
    assert got.usage.input_tokens == len(expected)
    assert got.output_text == one.model.chat(told, temperature=0).complete().text


def test_an_answer_that_is_cut_off_is_incomplete(one):
    got = one.ask(max_output_tokens=3, **QUIET)
    assert got.status == "incomplete"
    assert got.incomplete_details.reason == "max_output_tokens"
    assert got.output[-1].status == "incomplete"
    assert got.usage.output_tokens == 3
    events = list(one.ask(max_output_tokens=3, stream=True, **QUIET))
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == got.output_text


def test_probabilities_come_with_the_text(one):
    ways = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, **QUIET}
    whole = one.ask(**ways)
    entries = whole.output[0].content[0].logprobs
    assert bytes(b for e in entries for b in e.bytes).decode() == whole.output_text
    assert all(len(e.top_logprobs) == 2 and e.logprob <= 0 for e in entries)
    events = list(one.ask(stream=True, **ways))
    pieces = [e for event in of(events, "response.output_text.delta") for e in event.logprobs]
    assert [e.token for e in pieces] == [e.token for e in entries]
    assert one.ask(**QUIET).output[0].content[0].logprobs == []


# The events of a stream


def test_events_come_in_their_order(script):
    text = "<think>\nHm.\n</think>\n\nLet me look.\n" + CALL.format("Paris")
    whole, events = told(script, text, tools=[WEATHER])
    kinds = [event.type.removeprefix("response.") for event in events]
    runs = [kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]
    assert runs == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call"]
    assert whole.output[0].content[0].text == "Hm."
    assert whole.output_text == "Let me look."
    assert json.loads(whole.output[2].arguments) == {"city": "Paris"}
    assert 0 < whole.usage.output_tokens_details.reasoning_tokens < whole.usage.output_tokens

    added, done = of(events, "response.output_item.added"), of(events, "response.output_item.done")
    assert [e.output_index for e in added] == [e.output_index for e in done] == [0, 1, 2]
    assert [e.item.status for e in added] == ["in_progress"] * 3
    assert [e.item.status for e in done] == ["completed"] * 3
    assert [e.item for e in done] == events[-1].response.output
    ids = [e.item.id for e in added]
    assert ids == [e.item.id for e in done]
    assert len(set(ids)) == 3
    for event in events:
        if hasattr(event, "item_id"):
            assert event.item_id == ids[event.output_index]
            assert getattr(event, "content_index", 0) == 0
    assert added[0].item.content == added[1].item.content == []
    assert added[2].item.arguments == ""
    assert events[0].response.output == events[1].response.output == []
    for kind in ("reasoning_text", "output_text"):
        deltas = "".join(e.delta for e in of(events, f"response.{kind}.delta"))
        assert deltas == of(events, f"response.{kind}.done")[0].text
    # What is in a response does not depend on whether it was streamed.
    plain = [item.to_dict() for item in whole.output]
    last = [item.to_dict() for item in events[-1].response.output]
    for item in (*plain, *last):
        del item["id"]
        item.pop("call_id", None)
    assert plain == last


def test_parallel_calls_are_items_of_their_own(script):
    text = f"{CALL.format('Paris')}\n{CALL.format('Oslo')}"
    whole, events = told(script, text, tools=[WEATHER], **QUIET)
    calls = whole.output
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Paris", "Oslo"]
    assert len({call.call_id for call in calls}) == len({call.id for call in calls}) == 2
    assert {
        event.output_index for event in of(events, "response.function_call_arguments.done")
    } == {0, 1}
    body = {"model": "scripted", "input": "Go on.", "tools": [WEATHER], **QUIET}
    with script.client.responses.stream(**body) as stream:
        gathered = stream.get_final_response().output
    assert [json.loads(call.arguments) for call in gathered] == [
        {"city": "Paris"},
        {"city": "Oslo"},
    ]
    alone, _ = told(script, text, tools=[WEATHER], parallel_tool_calls=False, **QUIET)
    assert [json.loads(call.arguments)["city"] for call in alone.output] == ["Paris"]


def test_a_call_that_is_cut_off_is_text(script):
    cut = '<tool_call>\n{"name": "get_weather", "argum'
    whole, _ = told(script, cut, tools=[WEATHER], **QUIET)
    assert [item.type for item in whole.output] == ["message"]
    assert "get_weather" in whole.output_text


def test_an_empty_answer_is_an_empty_message(script):
    whole, events = told(script, "", **QUIET)
    assert [(item.type, item.content[0].text) for item in whole.output] == [("message", "")]
    assert of(events, "response.output_text.done")[0].text == ""


def test_a_failure_in_the_middle_is_the_last_event(script):
    ids = [*script.tokenizer.encode("Look"), script.program.NAN]
    body = {"model": "scripted", "input": "Go on.", **QUIET}
    after = script.client.responses.input_tokens.count(**body).input_tokens
    script.draws(ids, after)
    events = list(script.client.responses.create(stream=True, **body))
    assert events[-1].type == "response.failed"
    assert events[-1].response.status == "failed"
    assert events[-1].response.error.code == "server_error"
    assert events[-1].response.error.type == "nan_logits"
    assert events[-1].sequence_number == len(events) - 1
    assert events[-2].type == "response.output_item.done"
    with pytest.raises(openai.InternalServerError) as failure:
        script.client.responses.create(**body)
    assert failure.value.code == "nan_logits"


# Tools


def test_tools_there_and_back(one):
    first = one.ask(input=PARIS, tools=[WEATHER])
    call = next(item for item in first.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    items = [
        {"role": "user", "content": PARIS},
        *[item.to_dict() for item in first.output],
        {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"},
    ]
    second = one.ask(input=items, tools=[WEATHER])
    thoughts = "".join(i.content[0].text for i in first.output if i.type == "reasoning")
    turns = [
        {"role": "user", "content": PARIS},
        {
            "role": "assistant",
            "content": first.output_text,
            "reasoning_content": thoughts,
            "tool_calls": [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": {"city": "Paris"}},
                }
            ],
        },
        {
            "role": "tool",
            "tool_call_id": call.call_id,
            "name": "get_weather",
            "content": "18 degrees",
        },
    ]
    expected = one.model.chat(turns, tools=[CHAT_WEATHER], temperature=0).complete()
    assert second.usage.input_tokens == len(expected.prompt_ids)
    assert second.output_text == expected.text != ""


def test_only_what_is_allowed_is_offered(one):
    other = {**WEATHER, "name": "get_time"}
    choice = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "get_weather"}],
    }
    both = one.ask(input=PARIS, tools=[WEATHER, other])
    allowed = one.ask(input=PARIS, tools=[WEATHER, other], tool_choice=choice)
    alone = one.ask(input=PARIS, tools=[WEATHER])
    none = one.ask(input=PARIS, tools=[WEATHER], tool_choice="none")
    assert allowed.usage.input_tokens == alone.usage.input_tokens < both.usage.input_tokens
    assert none.usage.input_tokens < alone.usage.input_tokens
    assert all(item.type != "function_call" for item in none.output)


# What the answer is to be


class Person(pydantic.BaseModel):
    name: str
    age: int


def test_an_answer_is_parsed_by_a_schema(one):
    pytest.importorskip("llguidance")
    asked = "Give me a JSON object with the name Tom and the age 7."
    got = one.client.responses.parse(
        model="m", input=asked, text_format=Person, temperature=0, max_output_tokens=200
    )
    assert isinstance(got.output_parsed, Person)
    made = one.ask(input=asked, text={"format": {"type": "json_object"}}, max_output_tokens=200)
    assert isinstance(json.loads(made.output_text), dict)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "get_time"}),
        ({"type": "function", "name": "get_time"}, {"get_time"}),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "get_time"}],
            },
            {"get_time"},
        ),
    ],
)
def test_a_call_is_forced(one, choice, names):
    pytest.importorskip("llguidance")
    other = {**WEATHER, "name": "get_time", "description": "Get the time in a city"}
    got = one.ask(
        tools=[WEATHER, other], tool_choice=choice, max_output_tokens=120, stream=False, **QUIET
    )
    calls = [item for item in got.output if item.type == "function_call"]
    assert calls
    assert {call.name for call in calls} <= names
    assert all(isinstance(json.loads(call.arguments)["city"], str) for call in calls)


def test_a_form_that_cannot_be_is_refused_by_its_place(one):
    pytest.importorskip("llguidance")
    form = {"type": "json_schema", "name": "x", "schema": {"type": "nothing"}}
    with pytest.raises(openai.BadRequestError) as refusal:
        one.ask(text={"format": form})
    assert refusal.value.param.startswith("text.format.schema")
    with pytest.raises(openai.BadRequestError) as both:
        one.ask(text={"format": {"type": "json_object"}}, tools=[WEATHER])
    assert both.value.param == "text.format"


# Refusals, each by its name


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"type": "computer_call_output", "call_id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0]",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]},
            "input[0].call_id",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "hosted"}}, "tool_choice.type"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
    ],
)
def test_what_is_not_done_is_refused_by_name(one, body, param):
    with pytest.raises(openai.BadRequestError) as refusal:
        one.client.responses.create(
            **{"model": "m", "input": SUM, "extra_body": body, "timeout": 10}
        )
    assert refusal.value.param == param
    assert refusal.value.message


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(one):
    with pytest.raises(openai.BadRequestError) as refusal:
        one.ask(input="word " * 600, stream=True)
    assert (refusal.value.code, refusal.value.param) == ("context_length_exceeded", "input")
    assert refusal.value.body["n_ctx"] == 512
    with pytest.raises(openai.NotFoundError) as absent:
        one.ask(model="other")
    assert absent.value.code == "model_not_found"
