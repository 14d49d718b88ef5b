"""``/api/…``, as ollama's own client drives it, and by hand where that one says too little."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

import pytest

from golem_server.dialects import ollama_request as read
from golem_server.errors import ApiError

from . import chatting
from .chatting import PARIS, SUM
from .scripted_server import scripted_server

ollama = pytest.importorskip("ollama")

CALL = '<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{}"}}}}\n</tool_call>'
# The client writes the keys of a tool in an order of its own, and templates print them.
WEATHER = ollama.Tool(**chatting.WEATHER).model_dump(exclude_none=True)
GREEDY = {"temperature": 0}


@pytest.fixture(scope="module")
def one(trained_model, serve_in_thread):
    with serve_in_thread(f"m={trained_model}", context=512) as server:
        server.model = server.models.loaded()[0].model
        with ollama.Client(server.url) as server.client:
            yield server


@pytest.fixture(scope="module")
def script(trained_model, serve_in_thread):
    with scripted_server(trained_model, serve_in_thread) as script:
        script.client = ollama.Client(script.url)
        with script.client:
            yield script


def post(url, body):
    """Status, type and lines of an answer."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            kind, data, status = response.headers["Content-Type"], response.read(), 200
    except urllib.error.HTTPError as error:
        with error:
            kind, data, status = error.headers["Content-Type"], error.read(), error.code
    return status, kind, [json.loads(line) for line in data.splitlines()]


# Answers


def test_a_chat_is_the_python_api_s(one):
    expected = one.model.chat(SUM, thinking=False, temperature=0).complete()
    whole = one.client.chat("m", SUM, think=False, options=GREEDY)
    assert whole.message.content == expected.text != ""
    assert (whole.message.role, whole.done, whole.done_reason) == ("assistant", True, "stop")
    assert whole.prompt_eval_count == len(expected.prompt_ids)
    assert whole.eval_count == len(expected.ids)
    assert whole.total_duration >= whole.prompt_eval_duration + whole.eval_duration > 1000
    assert whole.load_duration >= 0
    *pieces, last = one.client.chat("m:latest", SUM, think=False, options=GREEDY, stream=True)
    assert "".join(piece.message.content for piece in pieces) == expected.text
    assert all(not piece.done and piece.model == "m:latest" for piece in pieces)
    assert (last.done, last.message.content, last.eval_count) == (True, "", len(expected.ids))


def test_a_prompt_goes_through_the_template_or_not(one):
    turns = [{"role": "system", "content": "You add."}, *SUM]
    expected = one.model.chat(turns, thinking=False, temperature=0).complete()
    whole = one.client.generate(
        "m", SUM[0]["content"], system="You add.", think=False, options=GREEDY
    )
    assert whole.response == expected.text
    assert whole.prompt_eval_count == len(expected.prompt_ids)
    raw = one.model.generate("Once upon a time", temperature=0, max_tokens=8).complete()
    got = one.client.generate(
        "m", "Once upon a time", raw=True, options={**GREEDY, "num_predict": 8}
    )
    assert (got.response, got.done_reason) == (raw.text, "length")
    pieces = one.client.generate(
        "m", "Once upon a time", raw=True, options={**GREEDY, "num_predict": 8}, stream=True
    )
    assert "".join(piece.response for piece in pieces) == raw.text


def test_a_stream_is_an_object_a_line(one):
    body = {"model": "m", "messages": SUM, "think": False, "options": GREEDY}
    status, kind, lines = post(f"{one.url}/api/chat", body)
    assert (status, kind) == (200, "application/x-ndjson")
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    status, kind, whole = post(f"{one.url}/api/chat", {**body, "stream": False})
    assert (status, kind.split(";")[0], len(whole)) == (200, "application/json", 1)


def test_options_are_obeyed(one):
    text = one.model.chat(SUM, thinking=False, temperature=0).complete().text
    stopped = one.client.chat("m", SUM, think=False, options={**GREEDY, "stop": [text[3:6]]})
    assert stopped.message.content == text[:3]
    cut = one.client.chat("m", SUM, think=False, options={**GREEDY, "num_predict": 2})
    assert (cut.eval_count, cut.done_reason) == (2, "length")
    ways = {"temperature": 1.5, "seed": 7, "top_k": 0, "min_p": 0.0, "top_p": 1.0}
    expected = one.model.chat(SUM, thinking=False, max_tokens=20, **ways).complete()
    drawn = one.client.chat("m", SUM, think=False, options={**ways, "num_predict": 20})
    assert drawn.message.content == expected.text
    harmless = {"num_gpu": 99, "num_thread": 2, "mirostat": 0, "num_ctx": 512}
    assert one.client.chat("m", SUM, options={**harmless, "num_predict": 1}).eval_count == 1


def test_probabilities_come_with_the_tokens(one):
    body = {"model": "m", "messages": SUM, "think": False, "options": GREEDY,
            "logprobs": True, "top_logprobs": 2}  # fmt: skip
    _, _, [whole] = post(f"{one.url}/api/chat", {**body, "stream": False})
    _, _, lines = post(f"{one.url}/api/chat", body)
    streamed = [entry for line in lines for entry in line.get("logprobs", [])]
    assert streamed == whole["logprobs"]
    assert bytes(b for e in streamed for b in e["bytes"]).decode() == whole["message"]["content"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in streamed)


# Thoughts and tools


def test_thoughts_and_calls_stand_beside_the_text(script):
    after = len(script.model.chat_ids(SUM, tools=[WEATHER], enable_thinking=True))
    text = f"<think>\nHm.\n</think>\n\nLook.\n{CALL.format('Paris')}\n{CALL.format('Oslo')}"
    script.says(text, after)
    ways = {"tools": [WEATHER], "think": True, "options": GREEDY}
    whole = script.client.chat("scripted", SUM, **ways)
    assert (whole.message.thinking, whole.message.content) == ("Hm.", "Look.")
    calls = [(c.function.name, c.function.arguments) for c in whole.message.tool_calls]
    assert calls == [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Oslo"})]
    lines = list(script.client.chat("scripted", SUM, stream=True, **ways))
    assert "".join(line.message.thinking or "" for line in lines) == "Hm."
    assert "".join(line.message.content or "" for line in lines) == "Look."
    assert [
        (call.function.name, call.function.arguments)
        for line in lines
        for call in line.message.tool_calls or []
    ] == calls
    body = {"model": "scripted", "messages": SUM, "tools": [WEATHER], "think": True}
    _, _, raw = post(f"{script.url}/api/chat", body)
    made = [call for line in raw for call in line["message"].get("tool_calls", [])]
    assert [call["function"]["index"] for call in made] == [0, 1]
    assert len({call["id"] for call in made}) == 2


def test_tools_there_and_back(one):
    first = one.client.chat("m", PARIS, tools=[WEATHER], think=False, options=GREEDY)
    [call] = first.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Paris"})
    turns = [*PARIS, first.message]
    turns.append({"role": "tool", "tool_name": "get_weather", "content": "18 degrees"})
    second = one.client.chat("m", turns, tools=[WEATHER], think=False, options=GREEDY)
    asked = {"name": "get_weather", "arguments": {"city": "Paris"}}
    told = [
        *PARIS,
        {
            "role": "assistant",
            "content": first.message.content or "",
            "tool_calls": [{"id": "x", "type": "function", "function": asked}],
        },
        {"role": "tool", "name": "get_weather", "content": "18 degrees"},
    ]
    ways = {"tools": [WEATHER], "thinking": False, "temperature": 0}
    expected = one.model.chat(told, **ways).complete()
    assert second.message.content == expected.text != ""
    assert second.prompt_eval_count == len(expected.prompt_ids)


def test_a_failure_in_the_middle_is_the_last_line(script):
    after = len(script.model.chat_ids(SUM, enable_thinking=False))
    script.draws([*script.tokenizer.encode("Look"), script.program.NAN], after)
    with pytest.raises(ollama.ResponseError, match="NaN"):
        list(script.client.chat("scripted", SUM, think=False, stream=True))
    body = {"model": "scripted", "messages": SUM, "think": False}
    _, _, lines = post(f"{script.url}/api/chat", body)
    assert list(lines[-1]) == ["error"]
    assert lines[0]["message"]["content"]


def test_an_answer_has_the_form_that_is_asked_for(one):
    pytest.importorskip("llguidance")
    asked = [{"role": "user", "content": "Give me a JSON object with the name Tom and the age 7."}]
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    ways = {"options": {**GREEDY, "num_predict": 100}}
    made = json.loads(one.client.chat("m", asked, format=schema, **ways).message.content)
    assert sorted(made) == ["age", "name"]
    free = one.client.chat("m", asked, format="json", **ways).message.content
    assert isinstance(json.loads(free), dict)


# Models


def test_what_is_said_of_models(one, trained_model):
    [listed] = one.client.list().models
    assert (listed.model, listed.size) == ("m", trained_model.stat().st_size)
    assert (listed.details.family, listed.details.format) == ("qwen3", "gguf")
    assert listed.details.quantization_level == "Q8_0"
    assert listed.details.parameter_size == "11.54M"
    shown = one.client.show("m:latest")
    assert shown.template == one.model.template.source
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert shown.modelinfo["qwen3.block_count"] == 12
    assert shown.modelinfo["tokenizer.ggml.tokens"] == []
    _, _, [verbose] = post(f"{one.url}/api/show", {"model": "m", "verbose": True})
    assert len(verbose["model_info"]["tokenizer.ggml.tokens"]) == len(one.model.tokenizer)
    [running] = one.client.ps().models
    assert (running.name, running.context_length, running.size_vram) == ("m", 512, 0)
    assert (running.digest, running.expires_at.year) == (listed.digest, 9999)
    with urllib.request.urlopen(f"{one.url}/api/version", timeout=20) as response:
        assert {"version", "golem"} == set(json.load(response))


def test_a_model_stays_as_long_as_its_client_wants(trained_model, serve_in_thread):
    with (
        serve_in_thread(f"m={trained_model}", context=256) as server,
        ollama.Client(server.url) as client,
    ):

        def names():
            return [model.name for model in client.ps().models]

        def gone():
            ends = time.monotonic() + 10
            while names() and time.monotonic() < ends:
                time.sleep(0.02)
            return not names()

        assert client.generate("m").done_reason == "load"
        assert names() == ["m"]
        assert client.generate("m", keep_alive=0).done_reason == "unload"
        assert gone()
        client.chat("m", SUM, options={"num_predict": 1}, keep_alive="1h")
        left = client.ps().models[0].expires_at.timestamp() - time.time()
        assert 3500 < left < 3601
        client.chat("m", SUM, options={"num_predict": 1}, keep_alive=-1)
        assert client.ps().models[0].expires_at.year == 9999
        client.chat("m", SUM, options={"num_predict": 1}, keep_alive="100ms")
        assert gone()
        client.chat("m", SUM, options={"num_predict": 1}, keep_alive=0)
        assert gone()


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (None, None), (0, 0), (2.5, 2.5), (-1, -1), ("0", 0), ("-1", -1), ("30", 30),
        ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("1.5s", 1.5), ("-1m", -1), ("0s", 0),
    ],
)  # fmt: skip
def test_durations_are_read(given, seconds):
    assert read.keep_alive_of({"keep_alive": given}) == seconds


@pytest.mark.parametrize("given", ["", "5", "m5", "5 m", "forever", [], {}, True, "1e5s"])
def test_what_is_no_duration_is_refused(given):
    if given == "5":
        assert read.keep_alive_of({"keep_alive": given}) == 5
        return
    with pytest.raises(ApiError) as refusal:
        read.keep_alive_of({"keep_alive": given})
    assert refusal.value.param == "keep_alive"


# Refusals


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("chat", {"messages": [{"role": "robot"}]}, "messages[0].role is 'robot'"),
        ("chat", {"messages": [{"role": "user", "images": ["x"]}]}, "messages[0].images has"),
        ("chat", {"tools": [{}]}, "tools[0].function is missing"),
        ("chat", {"messages": SUM, "format": "xml"}, "format is neither"),
        ("chat", {"messages": SUM, "format": {"type": "nothing"}}, "format"),
        ("chat", {"messages": SUM, "format": "json", "tools": [WEATHER]}, "format with tools"),
        ("chat", {"messages": SUM, "think": "huge"}, "think is neither"),
        ("chat", {"messages": SUM, "truncate": True}, "truncate is not supported"),
        ("chat", {"messages": SUM, "options": {"num_ctx": 4096}}, "options.num_ctx is 4096"),
        ("chat", {"messages": SUM, "options": {"mirostat": 2}}, "options.mirostat is 2"),
        ("chat", {"messages": SUM, "options": {"fury": 2}}, "options.fury is no option"),
        ("chat", {"messages": SUM, "options": {"num_predict": 0}}, "options.num_predict is 0"),
        ("chat", {"messages": SUM, "options": {"temperature": -1}}, "options.temperature is -1"),
        ("chat", {"messages": SUM, "options": {"repeat_last_n": -2}}, "options.repeat_last_n is"),
        ("chat", {"messages": SUM, "options": {"stop": ["a"] * 5}}, "options.stop has 5"),
        ("chat", {"messages": SUM, "keep_alive": "x"}, "keep_alive is no duration"),
        ("chat", {"messages": [{"role": "user", "content": "word " * 600}]}, "512"),
        ("generate", {"prompt": "x", "suffix": "y"}, "suffix is not supported"),
        ("generate", {"prompt": "x", "template": "y"}, "template is not supported"),
        ("generate", {"prompt": "x", "context": [1]}, "context is not supported"),
        ("generate", {"prompt": "x", "images": ["y"]}, "images has images"),
        ("generate", {"prompt": "x", "raw": True, "system": "y"}, "system needs the model's"),
    ],
)
def test_what_is_not_done_is_refused_by_name(one, path, body, said):
    status, _, [answer] = post(f"{one.url}/api/{path}", {"model": "m", **body})
    assert status == 400
    assert list(answer) == ["error"]
    assert said in answer["error"]


def test_other_errors_have_the_same_form(one):
    with pytest.raises(ollama.ResponseError, match="no model is named 'other'") as absent:
        one.client.chat("other", SUM)
    assert absent.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="makes no embeddings") as refusal:
        one.client.embed("m", "x")
    assert refusal.value.status_code == 501
    status, _, [answer] = post(f"{one.url}/api/chat", [])
    assert (status, list(answer)) == (400, ["error"])


def test_a_model_without_thoughts_is_not_told_to_think(tiny_model, serve_in_thread):
    with serve_in_thread(f"tiny={tiny_model}") as server:
        body = {"model": "tiny", "messages": SUM, "options": {"num_predict": 1}}
        status, _, [answer] = post(f"{server.url}/api/chat", {**body, "think": True})
        assert (status, answer["error"]) == (400, "tiny does not think before it answers")
        assert post(f"{server.url}/api/chat", {**body, "think": False})[0] == 200
