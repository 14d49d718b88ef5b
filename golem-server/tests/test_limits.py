"""Limits: the queue, the time of a request, the context, and what a client that leaves frees."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from golem_server.app import LIMITS

LONG = {"prompt": "ab", "max_tokens": 100_000, "ignore_eos": True}
SHORT = {"prompt": "ab", "max_tokens": 2, "ignore_eos": True}


async def until(found: Callable[[], object], seconds: float = 5.0) -> None:
    """Waits for `found()` to be true."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "it does not become true"
        await asyncio.sleep(0.005)


def running(server: Any) -> int:
    """Answers that an engine draws or will draw."""
    stats = [served.model.engine.stats() for served in server.models.loaded()]
    return sum(found.running + found.waiting for found in stats)


async def gauge(client: aiohttp.ClientSession, url: str, name: str) -> float:
    """One number of /metrics, summed over the models."""
    async with client.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


async def test_one_request_too_many(serve: Any, long_model: Path) -> None:
    async with (
        serve(long_model, max_sequences=1, max_queue=1) as server,
        aiohttp.ClientSession() as client,
    ):
        complete = f"{server.url}/v1/completions"

        async def post(body: dict[str, Any]) -> int:
            async with client.post(complete, json=body) as answer:
                return answer.status

        tasks = [asyncio.create_task(post(LONG)) for _ in range(2)]
        await until(lambda: server.app[LIMITS].active == 2)
        async with client.post(complete, json=SHORT) as answer:
            error = (await answer.json())["error"]
            assert answer.status == 429
            assert 1 <= int(answer.headers["Retry-After"]) <= 60
            assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
            assert "--max-queue 1" in error["message"]
        for path in ("/health", "/v1/models", "/metrics", "/slots"):  # no work for a model
            async with client.get(server.url + path) as answer:
                assert answer.status == 200
        async with client.get(f"{server.url}/slots?fail_on_no_slot=1") as answer:
            assert answer.status == 503
        assert await gauge(client, server.url, "golem:requests_refused_total") == 2
        for task in tasks:
            task.cancel()
        await until(lambda: server.app[LIMITS].active == 0)
        async with client.post(complete, json=SHORT) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_s_time(serve: Any, long_model: Path, stream: bool) -> None:
    async with serve(long_model, timeout=0.3) as server, aiohttp.ClientSession() as client:
        begun = time.monotonic()
        body = {**LONG, "stream": stream}
        async with client.post(f"{server.url}/v1/completions", json=body) as answer:
            text = await answer.text()
        assert time.monotonic() - begun < 2
        if stream:
            assert answer.status == 200
            *_, last, done = [line for line in text.split("\n\n") if line]
            assert done == "data: [DONE]"
            error = json.loads(last.removeprefix("data: "))["error"]
        else:
            assert answer.status == 504
            assert answer.headers["x-should-retry"] == "false"
            error = json.loads(text)["error"]
        assert error["code"] == "request_timeout"
        assert "0.3 seconds, which --timeout allows" in error["message"]
        await until(lambda: running(server) == 0)
        async with client.post(f"{server.url}/v1/completions", json=SHORT) as answer:
            assert answer.status == 200


async def test_the_cap_of_tokens_ends_answers(serve: Any, long_model: Path) -> None:
    async with serve(long_model, max_tokens=5) as server, aiohttp.ClientSession() as client:
        for body in (LONG, {"prompt": "ab", "ignore_eos": True}):
            async with client.post(f"{server.url}/v1/completions", json=body) as answer:
                found = await answer.json()
            assert found["choices"][0]["finish_reason"] == "length"
            assert found["usage"]["completion_tokens"] == 5


# A prompt that does not fit, and one that just does.


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("most", [None, 1, 10])
@pytest.mark.parametrize("tokens", [62, 63, 64, 65])
async def test_context(
    serve: Any, tiny_model: Path, tokens: int, most: int | None, stream: bool
) -> None:
    async with serve(tiny_model, context=64) as server, aiohttp.ClientSession() as client:
        body = {
            "prompt": [65 + i % 20 for i in range(tokens)],
            "ignore_eos": True,
            "stream": stream,
            **({} if most is None else {"max_tokens": most}),
        }
        if most is None:
            body["max_tokens"] = None
        async with client.post(f"{server.url}/v1/completions", json=body) as answer:
            text = await answer.text()
        if tokens >= 64:
            error = json.loads(text)["error"]
            assert answer.status == 400  # which the clients do not try again
            assert error["code"] == "context_length_exceeded"
            assert (error["n_prompt_tokens"], error["n_ctx"]) == (tokens, 64)
        else:
            assert answer.status == 200
            if stream:
                events = [json.loads(e[6:]) for e in text.split("\n\n") if e.startswith("data: {")]
                reasons = [event["choices"][0]["finish_reason"] for event in events]
                assert reasons[-1] == "length"
            else:
                found = json.loads(text)
                assert found["choices"][0]["finish_reason"] == "length"
                room = 64 - tokens
                drawn = min(room, most or room)
                assert found["usage"]["prompt_tokens"] == tokens  # nothing was cut off
                assert found["usage"]["completion_tokens"] == drawn
        assert running(server) == 0
        async with client.post(f"{server.url}/v1/completions", json=SHORT) as answer:
            assert answer.status == 200  # the place is free


# A client that leaves.


def leave(client: socket.socket, how: str) -> None:
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


async def connect(url: str, body: dict[str, Any]) -> socket.socket:
    """Sends a completion and reads nothing."""
    host, port = url.removeprefix("http://").split(":")
    data = json.dumps(body).encode()
    client = socket.create_connection((host, int(port)))
    client.setblocking(False)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
    await asyncio.get_running_loop().sock_sendall(
        client, f"{head}Content-Type: application/json\r\n\r\n".encode() + data
    )
    return client


@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize("when", ["drawing", "reading", "waiting", "without a stream"])
async def test_who_leaves_frees_the_place(
    serve: Any, long_model: Path, how: str, when: str
) -> None:
    async with (
        serve(long_model, max_sequences=1, context=100_000) as server,
        aiohttp.ClientSession() as client,
    ):
        loop = asyncio.get_running_loop()
        engine = server.models.loaded()[0].model.engine
        pages = [group.free + group.idle for group in engine.stats().groups]
        first = None
        body = {**LONG, "stream": when != "without a stream"}
        if when == "reading":
            body["prompt"] = [65 + i % 90 for i in range(60_000)]
        if when == "waiting":
            first = await connect(server.url, {**LONG, "stream": True})
            await until(lambda: engine.stats().running == 1)
        leaving = await connect(server.url, body)
        if when == "drawing":
            for _ in range(3):
                assert await loop.sock_recv(leaving, 100)
        await until(lambda: running(server) == (2 if when == "waiting" else 1))
        if when == "reading":
            await until(lambda: engine.stats().read_tokens > 0)
            assert engine.stats().generated_tokens == 0
        leave(leaving, how)
        if first is not None:
            await until(lambda: running(server) == 1, 1)
            leave(first, how)
        await until(lambda: running(server) == 0, 1)
        await until(lambda: server.app[LIMITS].active == 0, 1)
        assert await gauge(client, server.url, "golem:num_requests_running") == 0
        assert await gauge(client, server.url, "golem:num_requests_waiting") == 0
        passes = engine.stats().passes
        await asyncio.sleep(0.1)
        assert engine.stats().passes == passes  # nothing is computed for nobody
        assert [group.free + group.idle for group in engine.stats().groups] == pages
        async with client.post(f"{server.url}/v1/completions", json=SHORT) as answer:
            assert answer.status == 200


# The end of a server.


async def test_answers_end_and_no_more_are_taken(serve: Any, long_model: Path) -> None:
    async with serve(long_model) as server, aiohttp.ClientSession() as client:
        complete = f"{server.url}/v1/completions"
        body = {**LONG, "max_tokens": 300}
        task = asyncio.create_task(client.post(complete, json=body))
        limits = server.app[LIMITS]
        await until(lambda: running(server))
        drained = asyncio.create_task(limits.drain(10))
        await asyncio.sleep(0)
        async with client.post(complete, json=SHORT) as answer:
            assert answer.status == 503
            assert answer.headers["Retry-After"]
            assert (await answer.json())["error"]["code"] == "shutting_down"
        async with client.get(f"{server.url}/health") as answer:
            assert answer.status == 503
        assert await drained
        assert (await (await task).json())["usage"]["completion_tokens"] == 300


async def test_what_does_not_end_in_time_is_cut_off(serve: Any, long_model: Path) -> None:
    async with serve(long_model) as server, aiohttp.ClientSession() as client:
        task = asyncio.create_task(client.post(f"{server.url}/v1/completions", json=LONG))
        limits = server.app[LIMITS]
        await until(lambda: running(server))
        assert not await limits.drain(0.05)
        limits.cancel()
        await until(lambda: running(server) == 0, 1)
        with contextlib.suppress(aiohttp.ClientError):
            await task
