"""The event loop stays awake: health is answered at once, whatever the models are doing.

What is held is that nobody waits for the work itself: on a machine that does nothing else an answer
comes within SOON, which `bench/server.py` prints; here others may be at work on the same cores, and
so a quarter of the work's own time is allowed, which anything that blocks the loop would exceed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from golem_server.serving import SWITCH

SOON = 0.050  # seconds
PART = 0.25  # of the time that the work takes
TRIES = 3  # the machine may be busy with something else


async def slowest_health(url: str, work: asyncio.Task[Any]) -> float:
    """The longest that /health takes until `work` is done, in seconds."""
    slowest, count = 0.0, 0
    async with aiohttp.ClientSession() as client:
        while not work.done() or count < 20:
            begun = time.perf_counter()
            async with client.get(f"{url}/health") as answer:
                assert answer.status == 200
            slowest = max(slowest, time.perf_counter() - begun)
            count += 1
            await asyncio.sleep(0.002)
    return slowest


TEXT = "The quick brown fox jumps over the lazy dog, naïvely; 12,345 times.\n"
LONG_TEXT = TEXT * 6000  # 400 thousand characters

WORK = {
    "tokenise": ("/tokenize", {"content": LONG_TEXT}),
    "tokenise one word": ("/tokenize", {"content": "a" * 400_000}),
    "template": (
        "/apply-template",
        {"messages": [{"role": "user", "content": "x" * 100}, {"role": "assistant",
         "content": "y" * 100}] * 4000},
    ),
    "refused for its length": ("/v1/completions", {"prompt": LONG_TEXT}),
    "a long prompt": ("/v1/completions", {"prompt": "a b" * 3000, "max_tokens": 1}),
    "many answers": (
        "/v1/completions",
        {"prompt": "a", "n": 8, "max_tokens": 400, "ignore_eos": True, "stream": True},
    ),
    "detokenise": ("/detokenize", {"tokens": [65 + i % 26 for i in range(100_000)]}),
    "pieces": ("/tokenize", {"content": TEXT * 1000, "with_pieces": True}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def as_served() -> Iterator[None]:
    """Threads take turns as they do in a server."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", WORK)
async def test_health_while(serve: Any, long_model: Path, name: str) -> None:
    path, body = WORK[name]
    data = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    measured = []
    async with (
        serve(long_model, context=20_000, threads=1) as server,
        aiohttp.ClientSession(headers=headers) as client,
    ):
        for _ in range(TRIES):

            async def work() -> bytes:
                async with client.post(server.url + path, data=data) as answer:
                    return await answer.read()

            begun = time.perf_counter()
            slowest = await slowest_health(server.url, asyncio.create_task(work()))
            measured.append((slowest, time.perf_counter() - begun))
            if slowest < max(SOON, PART * measured[-1][1]):
                return
    pytest.fail(f"/health took so many seconds, the work so many: {measured}")


async def test_a_short_prompt_does_not_wait_for_a_long_one(serve: Any, long_model: Path) -> None:
    async with (
        serve(long_model, context=20_000, max_sequences=2, draft="off") as server,
        aiohttp.ClientSession() as client,
    ):

        async def first(prompt: list[int]) -> float:
            """When the first event of an answer came."""
            body = {"prompt": prompt, "max_tokens": 1, "stream": True, "ignore_eos": True}
            async with client.post(f"{server.url}/v1/completions", json=body) as answer:
                assert answer.status == 200
                await answer.content.readuntil(b"\n\n")
                return time.perf_counter()

        engine = server.models.loaded()[0].model.engine
        long = asyncio.create_task(first([65 + i % 90 for i in range(16_000)]))
        while not engine.stats().read_tokens:
            await asyncio.sleep(0.001)
        begun = time.perf_counter()
        short = await first([70] * 10) - begun
        assert not long.done()
        assert short < (await long - begun) / 2


async def test_equal_clients_get_equal_shares(serve: Any, long_model: Path) -> None:
    async with (
        serve(long_model, context=4000, draft="off") as server,
        aiohttp.ClientSession() as client,
    ):
        counts = [0] * 8

        async def count(i: int) -> None:
            body = {"prompt": "ab", "max_tokens": 3000, "ignore_eos": True, "stream": True,
                    "stream_options": {"include_usage": False}}  # fmt: skip
            async with client.post(f"{server.url}/v1/completions", json=body) as answer:
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        counts[i] += 1

        clients = [asyncio.create_task(count(i)) for i in range(8)]
        while not min(counts):
            await asyncio.sleep(0.01)
        before = list(counts)  # they did not all begin at once
        while sum(counts) < sum(before) + 800:
            await asyncio.sleep(0.01)
        shares = [count - earlier for count, earlier in zip(counts, before, strict=True)]
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        mean = sum(shares) / 8
        assert all(abs(share - mean) <= mean / 4 for share in shares), shares
