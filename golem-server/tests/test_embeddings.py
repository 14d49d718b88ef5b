"""Vectors and scores over HTTP: what OpenAI's and ollama's clients ask, and who is refused."""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ollama
import openai
import pytest

import golem_core

CHECKPOINTS = Path(__file__).parents[2] / "golem-embed" / "tests" / "checkpoints"
TEXTS = ["the quick brown fox", "a vector is a list of numbers", ""]


@pytest.fixture(scope="module")
def served(tiny_model: Path, serve_in_thread: Any) -> Iterator[Any]:
    models = (
        f"bert={CHECKPOINTS / 'bert-cls'}",
        f"cross={CHECKPOINTS / 'cross-bert'}",
        f"writes={tiny_model}",
    )
    with serve_in_thread(models=models) as server:
        yield server


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    with golem_core.load_embedder(CHECKPOINTS / "bert-cls") as model:
        return model.embed(TEXTS).vectors


def post(url: str, body: object) -> tuple[int, Any]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_openai_s_client(served: Any, wanted: np.ndarray) -> None:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        plain = client.embeddings.create(model="bert", input=TEXTS, encoding_format="float")
        assert [each.index for each in plain.data] == [0, 1, 2]
        found = np.array([each.embedding for each in plain.data], np.float32)
        assert np.array_equal(found, wanted)
        assert plain.model == "bert"
        assert plain.usage.prompt_tokens == plain.usage.total_tokens > 6
        short = client.embeddings.create(
            model="bert", input=TEXTS[0], dimensions=8
        )  # base64 inside
        np.testing.assert_allclose(
            short.data[0].embedding, wanted[0, :8] / np.linalg.norm(wanted[0, :8]), atol=1e-6
        )


def test_base64_and_token_ids(served: Any, wanted: np.ndarray) -> None:
    with golem_core.load_embedder(CHECKPOINTS / "bert-cls") as model:
        ids = [model.tokenize(text) for text in TEXTS]
    for given in (ids, ids[0]):
        status, body = post(
            f"{served.url}/v1/embeddings",
            {"model": "bert", "input": given, "encoding_format": "base64"},
        )
        assert status == 200
        for each, vector in zip(body["data"], wanted, strict=False):
            data = base64.b64decode(each["embedding"])
            assert np.array_equal(np.frombuffer(data, "<f4"), vector)


def test_ollama_s_client(served: Any, wanted: np.ndarray) -> None:
    with ollama.Client(host=served.url) as client:
        found = client.embed("bert", TEXTS)
        assert np.array_equal(np.array(found.embeddings, np.float32), wanted)
        with golem_core.load_embedder(CHECKPOINTS / "bert-cls") as model:
            assert found.prompt_eval_count == sum(len(model.tokenize(text)) for text in TEXTS)
        assert client.embed("bert", []).embeddings == []


def test_prompts_and_truncation(served: Any) -> None:
    url = f"{served.url}/v1/embeddings"
    written = post(url, {"model": "bert", "input": "search: fox"})[1]["data"]
    named = post(url, {"model": "bert", "input": "fox", "prompt_name": "query"})[1]["data"]
    assert named == written
    status, body = post(url, {"model": "bert", "input": "fox " * 400, "truncate": False})
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    assert "bert-cls reads 96" in body["error"]["message"]
    assert post(url, {"model": "bert", "input": "fox " * 400})[0] == 200


def test_reranking(served: Any) -> None:
    golden = json.loads((CHECKPOINTS / "cross-bert" / "golden.json").read_text(encoding="utf-8"))
    cases = golden["cases"][:5]
    given = {"model": "cross", "query": "the fox", "documents": [case["text"] for case in cases]}
    status, body = post(f"{served.url}/v1/rerank", {**given, "top_n": 3, "return_documents": True})
    assert status == 200
    scores = [1 / (1 + np.exp(-case["logit"])) for case in cases]
    order = sorted(range(5), key=lambda i: -scores[i])[:3]
    assert [each["index"] for each in body["results"]] == order
    for each in body["results"]:
        np.testing.assert_allclose(each["relevance_score"], scores[each["index"]], atol=1e-5)
        assert each["document"] == {"text": cases[each["index"]]["text"]}
    assert len(post(f"{served.url}/rerank", given)[1]["results"]) == 5


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        (
            "embeddings",
            {"model": "writes", "input": "a"},
            501,
            "writes text and makes no embeddings",
        ),
        ("embeddings", {"model": "cross", "input": "a"}, 501, "cross makes no embeddings"),
        ("rerank", {"model": "bert", "query": "a", "documents": ["b"]}, 501, "does not rerank"),
        ("completions", {"model": "bert", "prompt": "a"}, 501, "bert embeds and writes no text"),
        ("embeddings", {"model": "bert", "input": []}, 400, "input must be a text"),
        ("embeddings", {"model": "bert", "input": [1, "a"]}, 400, "input[0] is neither"),
        ("embeddings", {"model": "bert", "input": [99999]}, 400, "has ids outside of"),
        ("embeddings", {"model": "bert", "input": "a", "dimensions": 33}, 400, "expected 1 to 32"),
        ("embeddings", {"model": "bert", "input": "a", "prompt_name": "x"}, 400, "no prompt 'x'"),
        ("embeddings", {"model": "none", "input": "a"}, 404, "no model is named 'none'"),
        ("rerank", {"model": "cross", "query": "a", "documents": [1]}, 400, "documents[0]"),
    ],
)
def test_refusals(served: Any, path: str, body: dict[str, Any], status: int, said: str) -> None:
    found, answer = post(f"{served.url}/v1/{path}", body)
    assert (found, said in answer["error"]["message"]) == (status, True), answer


def test_the_precision_of_the_server_is_what_runs(serve_in_thread: Any) -> None:
    with (
        serve_in_thread(models=(f"bert={CHECKPOINTS / 'bert-cls'}",), precision="bf16") as server,
        golem_core.load_embedder(CHECKPOINTS / "bert-cls", precision="bf16") as model,
        ollama.Client(host=server.url) as client,
    ):
        found = np.array(client.embed("bert", TEXTS).embeddings, np.float32)
        assert np.array_equal(found, model.embed(TEXTS).vectors)
        (entry,) = client.ps().models
        assert entry.details is not None
        assert entry.details.quantization_level == "bf16"


def test_requests_at_the_same_time_get_their_own_vectors(served: Any, wanted: np.ndarray) -> None:
    found: dict[int, Any] = {}

    def ask(i: int) -> None:
        body = {"model": "bert", "input": TEXTS[i % 3]}
        found[i] = post(f"{served.url}/v1/embeddings", body)[1]["data"][0]["embedding"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(24):
        assert np.array_equal(np.array(found[i], np.float32), wanted[i % 3])


def counted(url: str) -> dict[str, float]:
    """The samples of ``/metrics``."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


def test_what_is_counted(served: Any) -> None:
    bert = '{model_name="bert"}'
    ended = 'golem:request_success_total{finished_reason="stop",model_name="bert"}'
    post(f"{served.url}/v1/embeddings", {"model": "bert", "input": "fox"})  # has it loaded
    before = counted(served.url)
    answer = post(f"{served.url}/v1/embeddings", {"model": "bert", "input": TEXTS})[1]
    post(f"{served.url}/v1/embeddings", {"model": "bert", "input": [99999]})  # counts as refused
    after = counted(served.url)
    assert after[f"golem:embedded_texts_total{bert}"] - before[
        f"golem:embedded_texts_total{bert}"
    ] == len(TEXTS)
    tokens = f"golem:embedded_tokens_total{bert}"
    assert after[tokens] - before[tokens] == answer["usage"]["total_tokens"]
    assert after[ended] - before[ended] == 1
    times = f"golem:e2e_request_latency_seconds_count{bert}"
    assert after[times] - before[times] == 1
    assert after[f"golem:num_requests_running{bert}"] == 0
    assert after["golem:models_loaded"] >= 1
