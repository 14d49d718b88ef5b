"""``/v1/completions``, and what is refused as long as no model can do it, by OpenAI's client."""

from __future__ import annotations

import json
import urllib.request

import openai
import pytest

from golem_core.testing import tiny as own

STRICT = {"max_retries": 0, "_strict_response_validation": True}
GREEDY = {"model": "m", "temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def served(tiny_model, serve_in_thread):
    with serve_in_thread(f"m={tiny_model}", context=256) as server:
        server.client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", **STRICT)
        # Its type has a reason of the end in every piece, which OpenAI's own pieces do not.
        lenient = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)
        clients = {False: server.client, True: lenient}

        def ask(prompt="hello there", **body):
            client = clients[body.get("stream", False)]
            return client.completions.create(**{**GREEDY, "prompt": prompt, **body})

        ask("x")
        server.model = server.models.loaded()[0].model
        server.ask = ask
        yield server


def test_the_text_is_the_python_api_s(served):
    expected = served.model.generate("hello there", temperature=0, max_tokens=12).complete()
    got = served.ask()
    assert (got.object, got.model) == ("text_completion", "m")
    assert got.choices[0].text == expected.text != ""
    assert got.choices[0].finish_reason == expected.finish_reason
    assert got.usage.prompt_tokens == len(expected.prompt_ids)
    assert got.usage.completion_tokens == len(expected.ids)
    assert got.timings["predicted_n"] == len(expected.ids)
    seeded = served.model.generate("hello", temperature=1.3, seed=9, max_tokens=12).complete()
    assert served.ask("hello", temperature=1.3, seed=9).choices[0].text == seeded.text


def test_a_stream_is_the_whole(served):
    whole = served.ask(logprobs=2)
    chunks = list(served.ask(stream=True, logprobs=2, stream_options={"include_usage": True}))
    *pieces, last = chunks
    assert last.choices == []
    assert last.usage == whole.usage.model_copy(
        update={"prompt_tokens_details": last.usage.prompt_tokens_details}
    )
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    assert [piece.choices[0].finish_reason for piece in pieces][-1] == "length"
    assert all(piece.usage is None for piece in pieces)
    gathered = {name: [] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
    for piece in pieces:
        if piece.choices[0].logprobs:
            for name, values in gathered.items():
                values += getattr(piece.choices[0].logprobs, name)
    assert gathered == {name: getattr(whole.choices[0].logprobs, name) for name in gathered}
    assert len(gathered["tokens"]) == whole.usage.completion_tokens


def test_prompts_of_every_kind(served):
    ids = served.model.tokenize("hello there")
    text = served.ask().choices[0].text
    assert served.ask(ids).choices[0].text == text
    both = served.ask(["hello there", "x"], n=2)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    x = served.ask("x").choices[0].text
    assert [choice.text for choice in both.choices] == [text, text, x, x]
    assert both.usage.prompt_tokens == len(ids) + len(served.model.tokenize("x"))
    assert [c.text for c in served.ask([ids, ids]).choices] == [text, text]


def test_echo(served):
    text = served.ask().choices[0].text
    assert served.ask(echo=True).choices[0].text == f"hello there{text}"
    pieces = served.ask(echo=True, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == f"hello there{text}"
    ids = served.model.tokenizer.encode("hello there")
    assert served.ask(ids, echo=True).choices[0].text.startswith("hello there")


def test_control_tokens_that_are_written_out_are_meant(tmp_path, serve_in_thread):
    path = tmp_path / "own.gguf"
    own.decoder("llama", layers=1).write(path)
    with serve_in_thread(f"m={path}", context=64) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", **STRICT)
        got = client.completions.create(**{**GREEDY, "max_tokens": 1}, prompt="<|begin|>a<|end|>")
        assert got.usage.prompt_tokens == 3  # one beginning, not two


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": [1.5]}, "prompt[0]"),
        ({"prompt": [["a"]]}, "prompt[0]"),
        ({"prompt": ["a", 5]}, "prompt[1]"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [999999]}, "prompt"),
        ({"prompt": "a b " * 200}, "prompt"),
        ({"prompt": ["a"] * 100, "n": 2}, "prompt"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"mirostat": 2}, "mirostat"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"model": "other"}, "model"),
    ],
)
def test_what_cannot_be_is_refused_by_name(served, body, param):
    with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as caught:
        served.ask(extra_body=body)
    assert caught.value.param == param
    assert param in caught.value.message or body["prompt"]


def test_accepted(served):
    body = {"suffix": "", "best_of": 1, "user": "x", "echo": False, "logprobs": None}
    assert served.ask(extra_body=body).choices[0].text == served.ask().choices[0].text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[]", "a list"),
        (b"null", "null"),
        (b'{"temperature": NaN}', "NaN"),
        (b'{"temperature": Infinity}', "Infinity"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "no JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"a":' * 100_000, "deep"),
    ],
)
def test_a_body_that_is_no_object(served, data, said):
    for path in ("chat/completions", "completions", "embeddings", "audio/speech"):
        request = urllib.request.Request(f"{served.url}/v1/{path}", data, method="POST")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request)
        assert caught.value.code == 400
        error = json.loads(caught.value.read())["error"]
        assert said in error["message"]
        assert error["type"] == "invalid_request_error"


HALF = rb'{"messages": [{"role": "user", "content": "\ud800"}]}'


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("completions", rb'{"prompt": "\ud800"}', 400, "prompt"),
        (
            "chat/completions",
            rb'{"messages": [{"role": "user", "content": "\ud800"}]}',
            400,
            "messages",
        ),
        ("completions", rb'{"prompt": "x", "model": "\ud800"}', 404, "model"),
    ],
)
def test_half_a_surrogate_pair(served, path, body, status, param):
    request = urllib.request.Request(f"{served.url}/v1/{path}", body, method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == status
    assert json.loads(caught.value.read())["error"]["param"] == param


CHAT = [{"role": "user", "content": "x"}]


def test_a_model_without_a_template_does_not_chat(served, monkeypatch):
    monkeypatch.setattr(served.model, "template", None)
    with pytest.raises(openai.BadRequestError, match="no chat template") as caught:
        served.client.chat.completions.create(model="m", messages=CHAT, max_tokens=1)
    assert caught.value.param == "messages"


def test_a_model_without_a_form_for_calls_has_no_tools(served):
    tool = {"type": "function", "function": {"name": "f"}}
    create = served.client.chat.completions.create
    with pytest.raises(openai.BadRequestError, match="no form for calls") as caught:
        create(model="m", messages=CHAT, max_tokens=1, tools=[tool])
    assert caught.value.param == "tools"
    assert create(model="m", messages=CHAT, max_tokens=1, tools=[tool], tool_choice="none").choices


def test_what_no_model_can(served):
    client = served.client
    with pytest.raises(openai.InternalServerError, match="makes no embeddings") as caught:
        client.embeddings.create(model="m", input="x")
    assert caught.value.status_code == 501
    assert caught.value.type == "not_supported_error"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input="x")
    with pytest.raises(openai.InternalServerError, match="does not speak") as caught:
        client.audio.speech.create(model="m", input="x", voice="alloy")
    assert caught.value.status_code == 501
    with pytest.raises(openai.InternalServerError, match="transcribe") as caught:
        client.audio.transcriptions.create(model="m", file=("a.wav", b"RIFF"))
    assert caught.value.status_code == 503
    assert caught.value.response.headers["x-should-retry"] == "false"
