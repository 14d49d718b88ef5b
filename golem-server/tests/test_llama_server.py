"""What llama.cpp's own server tests hold, where golem does the same; docs/conformance.md has all.

The requests are those of clients that were written for llama-server.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from golem_core.text import Template

CONFORMANCE = Path(__file__).parents[2] / "docs" / "conformance.md"
TURNS = [
    {"role": "system", "content": "Answer briefly."},
    {"role": "user", "content": "What is the capital of France?"},
]
QUIET = {"chat_template_kwargs": {"enable_thinking": False}}


def request(
    url: str, body: Any = None, headers: dict[str, str] | None = None, method: str | None = None
) -> SimpleNamespace:
    """Status, headers and JSON of an answer, a refusal's too."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    for name, value in (headers or {}).items():
        asked.add_header(name, value)
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            status, head, text = answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            status, head, text = error.code, error.headers, error.read().decode()
    kind = head.get("Content-Type") or ""
    return SimpleNamespace(
        status=status, headers=head, text=text, body=json.loads(text) if "json" in kind else None
    )


def events(text: str) -> list[dict[str, Any]]:
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.fixture(scope="module")
def server(trained_model: Path, serve_in_thread: Any) -> Iterator[Any]:
    with serve_in_thread(f"m={trained_model}", context=512, max_sequences=4) as served:
        served.post = lambda path, **body: request(f"{served.url}{path}", body)
        served.get = lambda path: request(f"{served.url}{path}")
        yield served


def test_paths_with_and_without_v1(server: Any) -> None:
    for path in ("/chat/completions", "/responses", "/responses/input_tokens"):
        body = {"messages": TURNS, "input": "Hi", "max_tokens": 1, "max_output_tokens": 1}
        assert {server.post(f"{v1}{path}", **body).status for v1 in ("", "/v1")} == {200}
    for path in ("/models", "/models/m"):
        assert server.get(path).body == server.get(f"/v1{path}").body
    assert server.post("/embeddings", input="Hi").status == 501


def test_props_slots_and_models(server: Any) -> None:
    server.post("/chat/completions", messages=TURNS, max_tokens=1)
    props = server.get("/props").body
    assert props["model_path"].endswith(".gguf")
    assert props["total_slots"] == 4
    assert props["default_generation_settings"]["n_ctx"] == 512
    slots = server.get("/slots").body
    assert [(slot["n_ctx"], slot["is_processing"]) for slot in slots] == [(512, False)] * 4
    assert [model["id"] for model in server.get("/models").body["data"]] == ["m"]
    page = server.get("/")
    assert page.status == 200
    assert "<!doctype html>" in page.text.lower()


def test_one_prompt_after_another_is_known_as_far_as_it_is_the_same(server: Any) -> None:
    def known(text: str) -> tuple[int, int]:
        turns = [
            {"role": "system", "content": "Count on. " * 30},
            {"role": "user", "content": text},
        ]
        usage = server.post("/chat/completions", messages=turns, max_tokens=2).body["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    counts = [known(text) for text in ("1 2 3 4 5 6", "1 2 3 4 5 6", "1 2 3 4 5 9", "9 9 9 9 9 9")]
    size, first = counts[0]
    assert first == 0
    assert 0 < counts[1][1] < size
    assert counts[1][1] >= counts[2][1] >= counts[3][1] > 0


@pytest.mark.parametrize("most", [1, 8])
def test_timings_are_numbers(server: Any, most: int) -> None:
    body = {"prompt": "Paris is", "max_tokens": most, "ignore_eos": True}
    timings = server.post("/v1/completions", **body).body["timings"]
    assert timings["predicted_n"] == most
    assert all(isinstance(value, (int, float)) and value >= 0 for value in timings.values())
    assert timings["prompt_ms"] > 0
    assert timings["prompt_per_token_ms"] > 0 or timings["prompt_n"] == 0


def test_a_stream_is_the_whole_and_the_role_comes_once(server: Any) -> None:
    body = {"messages": TURNS, "max_tokens": 12, "temperature": 0, **QUIET}
    whole = server.post("/v1/chat/completions", **body).body
    options = {"stream": True, "stream_options": {"include_usage": True}}
    pieces = events(server.post("/v1/chat/completions", **body, **options).text)
    *rest, last = pieces
    deltas = [piece["choices"][0]["delta"] for piece in rest]
    assert [("role" in delta) for delta in deltas] == [True] + [False] * (len(deltas) - 1)
    text = "".join(delta.get("content") or "" for delta in deltas)
    assert text == whole["choices"][0]["message"]["content"]
    assert "content" not in deltas[-1]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert last["timings"]["predicted_n"] == whole["usage"]["completion_tokens"]
    assert "timings" not in pieces[0]
    assert len({piece["id"] for piece in pieces}) == 1


@pytest.mark.parametrize(
    ("wanted", "pattern"),
    [
        ({"response_format": {"type": "json_object", "schema": {"const": "42"}}}, r'"42"'),
        (
            {
                "response_format": {
                    "type": "json_object",
                    "schema": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
                }
            },
            r"\[[-\d, \n]*\]",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"const": "fo"}},
                }
            },
            r'"fo"',
        ),
        ({"json_schema": {"const": "42"}}, r'"42"'),
        ({"grammar": 'root ::= "a"{5,5}'}, "a{5}"),
    ],
)
def test_forms_of_answers(server: Any, wanted: dict[str, Any], pattern: str) -> None:
    answer = server.post("/chat/completions", messages=TURNS, max_tokens=64, **wanted, **QUIET)
    assert answer.status == 200, answer.text
    assert re.fullmatch(pattern, answer.body["choices"][0]["message"]["content"].strip())


@pytest.mark.parametrize(
    "wanted",
    [
        {"response_format": {"type": "sound"}},
        {"response_format": {"type": "json_object", "schema": 123}},
        {"response_format": {"type": "json_object", "schema": {"type": 123}}},
        {"response_format": {"type": "json_object", "schema": {"type": "hiccup"}}},
        {"grammar": "root ::= this is (not valid GBNF"},
        {"messages": None},
        {"messages": "string"},
        {"messages": [123]},
        {"messages": [{}]},
        {"messages": [{"role": 123}]},
        {"messages": [{"role": "system", "content": 123}]},
        {"messages": [{"role": "system", "content": "test"}, {}]},
        {"add_generation_prompt": True, "continue_final_message": True},
    ],
    ids=json.dumps,
)
def test_what_cannot_be_asked_for(server: Any, wanted: dict[str, Any]) -> None:
    answer = server.post("/chat/completions", **{"messages": TURNS, "max_tokens": 4, **wanted})
    assert answer.status == 400, answer.text
    assert answer.body["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_does_not_fit(server: Any, stream: bool) -> None:
    answer = server.post("/chat/completions", messages=TURNS * 100, stream=stream)
    assert answer.status == 400
    error = answer.body["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["n_prompt_tokens"] > error["n_ctx"] == 512


def test_an_answer_may_fill_the_context(server: Any) -> None:
    body = {"prompt": "Hi how are you", "n_predict": -1, "ignore_eos": True}
    answer = server.post("/v1/completions", **body).body
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 512


@pytest.mark.parametrize("style", [list, dict])
def test_tokens_that_are_never_drawn(server: Any, style: type) -> None:
    body = {"prompt": "The capital of France is", "max_tokens": 24, "temperature": 0}
    drawn = server.post("/v1/completions", **body, logprobs=0).body["choices"][0]["logprobs"]
    ids = [server.post("/tokenize", content=text).body["tokens"] for text in drawn["tokens"][:4]]
    never = {one for several in ids for one in several}
    pairs = [[token, False] for token in never]
    bias: Any = pairs if style is list else {str(token): -100 for token in never}
    other = server.post("/v1/completions", **body, logit_bias=bias, logprobs=0).body
    assert not set(other["choices"][0]["logprobs"]["tokens"]) & set(drawn["tokens"][:4])


def test_seeds(server: Any) -> None:
    def drawn(seed: int) -> str:
        body = {"prompt": "I believe", "seed": seed, "temperature": 1.5, "max_tokens": 16}
        return server.post("/v1/completions", **body).body["choices"][0]["text"]

    assert drawn(42) == drawn(42)
    assert len({drawn(seed) for seed in range(4)}) == 4


def test_prompts_as_text_and_as_tokens(server: Any) -> None:
    text = "I believe the meaning of life is"
    tokens = server.post("/tokenize", content=text, add_special=True).body["tokens"]
    body = {"prompt": [tokens, text], "temperature": 0, "max_tokens": 8}
    first, second = server.post("/v1/completions", **body).body["choices"]
    assert first["text"] == second["text"]
    alone = server.post("/v1/completions", **{**body, "prompt": tokens}).body["choices"][0]
    assert alone["text"] == first["text"]


def test_tokens_there_and_back(server: Any) -> None:
    content = "What is the capital of France ? 媽 🤗"
    tokens = server.post("/tokenize", content=content).body["tokens"]
    assert server.post("/detokenize", tokens=tokens).body["content"] == content
    for token in server.post("/tokenize", content=content, with_pieces=True).body["tokens"]:
        assert token["id"] >= 0
        assert len(token["piece"]) > 0


@pytest.mark.parametrize("clients", [3, 6])
def test_more_clients_than_places(server: Any, clients: int) -> None:
    body = {"messages": TURNS, "max_tokens": 24, "temperature": 0, **QUIET}
    with ThreadPoolExecutor(clients) as pool:
        asked = [pool.submit(server.post, "/v1/chat/completions", **body) for _ in range(clients)]
        answers = [one.result() for one in asked]
    assert {answer.status for answer in answers} == {200}
    assert len({a.body["choices"][0]["message"]["content"] for a in answers}) == 1
    assert not any(slot["is_processing"] for slot in server.get("/slots").body)


def test_who_leaves_frees_the_place(server: Any) -> None:
    data = json.dumps({"prompt": "I believe", "ignore_eos": True, "stream": True}).encode()
    asked = urllib.request.Request(f"{server.url}/v1/completions", data)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        answer.readline()
    for _ in range(200):
        if not any(slot["is_processing"] for slot in server.get("/slots").body):
            return
        time.sleep(0.05)
    raise AssertionError("the place is not free")


def test_keys_of_both_kinds(trained_model: Path, serve_in_thread: Any) -> None:
    with serve_in_thread(f"m={trained_model}", context=256, api_keys=("secret",)) as server:
        body = {"messages": TURNS, "max_tokens": 1}
        url = f"{server.url}/chat/completions"
        right = ({"Authorization": "Bearer secret"}, {"X-Api-Key": "secret"})
        assert [request(url, body, headers).status for headers in right] == [200, 200]
        for wrong in ({}, {"Authorization": "Bearer invalid-key"}):
            refused = request(url, body, wrong)
            assert refused.status == 401
            assert refused.body["error"]["type"] == "authentication_error"
        for path in ("/health", "/"):
            assert request(f"{server.url}{path}").status == 200


@pytest.mark.parametrize("thinks", [True, False])
def test_the_end_of_a_rendered_prompt(server: Any, thinks: bool) -> None:
    variables = {"chat_template_kwargs": {"enable_thinking": thinks}}
    rendered = server.post("/apply-template", messages=TURNS, **variables).body["prompt"]
    assert rendered.endswith("assistant\n" if thinks else "</think>\n\n")
    without = server.post("/apply-template", messages=TURNS, add_generation_prompt=False)
    assert not without.body["prompt"].endswith("assistant\n")


def test_a_template_knows_the_date(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = server.models.loaded()[0].model
    source = "{{ strftime_now('%d %b %Y') }}: {{ messages[0].content }}"
    monkeypatch.setattr(model, "template", Template(source))
    before = date.today()
    rendered = server.post("/apply-template", messages=TURNS).body["prompt"]
    days = {f"{day:%d %b %Y}: {TURNS[0]['content']}" for day in (before, date.today())}
    assert rendered in days


def test_thoughts_that_are_sent_back_are_counted(server: Any) -> None:
    tool = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "It rains."}

    def counted(*thoughts: dict[str, Any]) -> int:
        turns = [
            {"role": "user", "content": "Look outside."},
            {"role": "assistant", "content": [*thoughts, call]},
            {"role": "user", "content": [result]},
        ]
        body = {"model": "m", "tools": [tool], "messages": turns}
        return server.post("/v1/messages/count_tokens", **body).body["input_tokens"]

    thought = {"type": "thinking", "thinking": "I should look out of the window.", "signature": ""}
    assert counted(thought) > counted()


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_an_image_is_refused_by_its_place(server: Any, path: str) -> None:
    url = "data:image/png;base64,iVBORw0KGgo="
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    image: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    if path == "/v1/messages":
        image = {"type": "image", "source": source}
    content = [{"type": "text", "text": "What is it?"}, image]
    turns = [{"role": "user", "content": content}]
    refused = server.post(path, model="m", max_tokens=4, messages=turns)
    assert refused.status == 400
    assert refused.body["error"]["message"].startswith("messages[0].content[1] is an image")


def test_the_page_names_tests_that_there_are() -> None:
    """docs/conformance.md says which test holds what; each of them is there."""
    page = CONFORMANCE.read_text(encoding="utf-8")
    folder = Path(__file__).parent
    for name, test in re.findall(r"`(test_\w+)\.(test_\w+)`", page):
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        assert f"def {test}(" in source, f"{name}.{test}"
