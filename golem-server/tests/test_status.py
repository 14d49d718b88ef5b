"""What is asked of the server itself: metrics, props, slots, versions; and its log."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from golem_server import logs

BODY = {"prompt": "ab", "max_tokens": 5, "ignore_eos": True}


async def metrics(client: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """All numbers by name and labels without the model's; the text is checked on the way."""
    async with client.get(f"{url}/metrics") as answer:
        assert answer.content_type == "text/plain"
        text = await answer.text()
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name.endswith(("_total", "_created")), sample.name
            labels = {k: v for k, v in sample.labels.items() if k != "model_name"}
            found[sample.name + "".join(f"{{{k}={v}}}" for k, v in sorted(labels.items()))] = (
                sample.value
            )
    headers = [line for line in text.splitlines() if line.startswith("# HELP")]
    assert len(headers) == len(set(headers))
    return found


async def test_what_is_counted(serve: Any, long_model: Path) -> None:
    async with serve(long_model) as server, aiohttp.ClientSession() as client:
        before = await metrics(client, server.url)
        prompt = [65 + i % 90 for i in range(1000)]
        for _ in range(2):
            async with client.post(
                f"{server.url}/v1/completions", json={**BODY, "prompt": prompt}
            ) as answer:
                assert answer.status == 200
        found = await metrics(client, server.url)
        assert before["golem:prompt_tokens_total"] == 0
        assert found["golem:prompt_tokens_total"] == 2000
        # What both begin with was read once.
        assert found["golem:prompt_tokens_cached_total"] >= 900
        assert found["golem:generation_tokens_total"] >= 10
        assert found["golem:request_success_total{finished_reason=length}"] == 2
        for name in (
            "time_to_first_token", "e2e_request_latency", "request_queue_time",
            "request_prefill_time", "request_decode_time",
        ):  # fmt: skip
            assert found[f"golem:{name}_seconds_count"] == 2, name
            assert found[f"golem:{name}_seconds_sum"] > 0, name
        assert found["golem:inter_token_latency_seconds_count"] == 8
        assert found["golem:num_requests_running"] == 0
        assert found["golem:num_requests_waiting"] == 0
        states = ("used", "idle", "free")
        pages = [found[f"golem:kv_cache_pages{{state={s}}}{{window=all}}"] for s in states]
        stats = server.models.loaded()[0].model.engine.stats()
        assert sum(pages) == stats.groups[0].pages
        assert (pages[1], pages[2]) == (stats.groups[0].idle, stats.groups[0].free)
        assert pages[1] > 0
        assert found["golem:models_loaded"] == 1
        assert found["process_resident_memory_bytes"] > 1e6
        await server.models.unload("long")
        later = await metrics(client, server.url)
        assert later["golem:models_loaded"] == 0
        assert later["golem:prompt_tokens_total"] == 2000  # sums never fall


async def test_each_server_counts_for_itself(serve: Any, tiny_model: Path) -> None:
    async with (
        serve(tiny_model) as one,
        serve(tiny_model) as two,
        aiohttp.ClientSession() as client,
    ):
        async with client.post(f"{one.url}/v1/completions", json=BODY) as answer:
            assert answer.status == 200
        assert (await metrics(client, one.url))["golem:prompt_tokens_total"] == 2
        assert (await metrics(client, two.url))["golem:prompt_tokens_total"] == 0


async def test_props_slots_version(serve: Any, tiny_model: Path) -> None:
    async with (
        serve([tiny_model, f"b={tiny_model}"], max_sequences=3, context=128) as server,
        aiohttp.ClientSession() as client,
    ):
        async with client.get(f"{server.url}/props") as answer:
            found = await answer.json()
        assert found["model_alias"] == "tiny"
        assert found["total_slots"] == 3
        assert found["default_generation_settings"]["n_ctx"] == 128
        assert "<|assistant|>" in found["chat_template"]
        assert (found["bos_token"], found["eos_token"]) == ("<|begin|>", "<|end|>")
        async with client.get(f"{server.url}/slots") as answer:
            slots = await answer.json()
        assert [slot["is_processing"] for slot in slots] == [False] * 3
        assert slots[0]["n_ctx"] == 128
        async with client.get(f"{server.url}/props?model=b") as answer:
            assert (await answer.json())["is_sleeping"] is True
        assert [served.id for served in server.models.loaded()] == ["tiny"]  # looking loads none
        async with client.get(f"{server.url}/props?model=c") as answer:
            assert answer.status == 404
        async with client.get(f"{server.url}/version") as answer:
            assert set(await answer.json()) == {"version", "golem_core"}
        async with client.head(f"{server.url}/health") as answer:
            assert answer.status == 200


# The log.


class Lines(logging.Handler):
    """Keeps what a formatter makes of golem's records."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def kept() -> Any:
    """A function from a formatter to its lines."""
    golem, handlers = logging.getLogger("golem"), []

    def keep(formatter: logging.Formatter) -> list[str]:
        handler = Lines(formatter)
        handlers.append(handler)
        golem.addHandler(handler)
        return handler.lines

    level = golem.level
    golem.setLevel(logging.INFO)
    yield keep
    golem.setLevel(level)
    for handler in handlers:
        golem.removeHandler(handler)


SECRET = "the treasure lies below the oak"


async def ask(url: str) -> None:
    async with aiohttp.ClientSession(headers={"x-request-id": "id-1"}) as client:
        body = {**BODY, "prompt": SECRET}
        async with client.post(f"{url}/v1/completions", json=body) as answer:
            assert answer.status == 200
        async with client.get(f"{url}/health") as answer:
            assert answer.status == 200
        async with client.get(f"{url}/no%0Athing") as answer:
            assert answer.status == 404


async def test_one_line_a_request(serve: Any, tiny_model: Path, kept: Any) -> None:
    text, values = kept(logs.Text()), kept(logs.Json())
    async with serve(tiny_model) as server:
        text.clear()
        values.clear()
        await ask(server.url)
        lines, found = list(text), [json.loads(line) for line in values]
    assert len(lines) == len(found) == 2  # who asks for health every second leaves no trace
    assert "POST /v1/completions 200" in lines[0]
    assert "tiny read 24 wrote 5" in lines[0]
    assert all(word in lines[0] for word in ("waiting 0.", "reading 0.", "drawing 0.", " length "))
    assert lines[0].endswith(" id-1")
    assert "GET /no\\nthing 404" in lines[1]  # which forges no line
    assert 'error: "nothing is served at this path"' in lines[1]
    assert SECRET not in "".join([*lines, *values])
    first = found[0]
    assert first["id"] == "id-1"
    assert (first["method"], first["path"], first["status"]) == ("POST", "/v1/completions", 200)
    assert (first["prompt_tokens"], first["generated_tokens"]) == (24, 5)
    assert first["cached_tokens"] == 0
    assert first["reason"] == "length"
    assert first["level"] == "info"
    assert abs(first["time"] - time.time()) < 60
    parts = first["waiting_seconds"] + first["reading_seconds"] + first["drawing_seconds"]
    assert 0 < parts <= first["seconds"]


async def test_texts_only_when_asked_for(serve: Any, tiny_model: Path, kept: Any) -> None:
    lines = kept(logs.Text())
    async with serve(tiny_model, log_prompts=True) as server:
        await ask(server.url)
    told = [line for line in lines if " id-1: " in line]
    assert len(told) == 2
    assert SECRET in next(line for line in told if "request id-1" in line)
    assert any("answer id-1" in line for line in told)


async def test_who_leaves_is_in_the_log(serve: Any, long_model: Path, kept: Any) -> None:
    lines = kept(logs.Text())
    async with serve(long_model) as server, aiohttp.ClientSession() as client:
        body = {**BODY, "max_tokens": 100_000, "stream": True}
        async with client.post(f"{server.url}/v1/completions", json=body) as answer:
            await answer.content.readuntil(b"\n\n")
            answer.close()
    assert any("POST /v1/completions left" in line for line in lines)
