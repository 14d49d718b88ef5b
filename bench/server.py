"""golem serve beside llama-server: many clients at once on the same file.

    python bench/server.py --peer FOLDER FILE... [--clients 1 2 4 8 16] [--threads 2] [--rounds 3]

FOLDER holds llama-server (`bench/build_peer.sh`). Each round starts both servers in turn, every
other round in the other order, and lets so many clients ask at once, each for a text of TOKENS
tokens after a prompt of its own of some fifty; every client asks ASKS times, one after the other.
The table has medians over rounds: tokens a second of all clients together, and milliseconds to the
first token, median and 95th of a hundred; `health` is the longest that /health took meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from bench.peers import QUIET, processor, wait_for_quiet

TOKENS, ASKS = 64, 2
START = 180.0  # seconds that a server may take to be ready
WORDS = (
    *("river", "stone", "lamp", "market", "winter", "copper", "letter", "garden", "engine"),
    *("bridge", "paper", "island", "morning", "window", "harbour", "thread", "mirror"),
)


@dataclass
class Seen:
    """What the clients of one run saw."""

    tokens: int = 0
    seconds: float = 0.0
    first: list[float] = field(default_factory=list)  # seconds
    health: float = 0.0


def prompt(number: int) -> str:
    """About fifty tokens that no other client sends."""
    drawn = random.Random(number)
    return f"Story {number}. " + " ".join(drawn.choice(WORDS) for _ in range(40)) + ". Then"


async def ask(session: aiohttp.ClientSession, url: str, number: int, seen: Seen) -> None:
    """One streamed completion; counts its tokens and the time to the first."""
    body = {
        "prompt": prompt(number),
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
    }
    begun, first, tokens = time.perf_counter(), 0.0, 0
    async with session.post(f"{url}/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event.get("error"):
                raise RuntimeError(event["error"])
            if not first and any(choice.get("text") for choice in event.get("choices", ())):
                first = time.perf_counter() - begun
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
    seen.first.append(first)
    seen.tokens += tokens


async def clients(url: str, count: int, salt: int) -> Seen:
    """So many clients at once, and one that only asks for the server's health."""
    seen = Seen()
    timeout = aiohttp.ClientTimeout(total=None)
    # A connection for each request: llama-server closes those that it kept as it likes.
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def client(number: int) -> None:
            for turn in range(ASKS):
                await ask(session, url, salt + 1000 * turn + number, seen)

        async def watch() -> None:
            while True:
                begun = time.perf_counter()
                async with session.get(f"{url}/health") as response:
                    await response.read()
                seen.health = max(seen.health, time.perf_counter() - begun)
                await asyncio.sleep(0.05)

        await ask(session, url, salt + 999_999, Seen())  # warm
        watching = asyncio.create_task(watch())
        begun = time.perf_counter()
        await asyncio.gather(*(client(number) for number in range(count)))
        seen.seconds = time.perf_counter() - begun
        watching.cancel()
    return seen


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def command(side: str, args: argparse.Namespace, file: Path, port: int, most: int) -> list[str]:
    """How a server is started."""
    if side == "golem":
        return [
            *(str(Path(sys.executable).with_name("golem")), "serve", str(file)),
            *("--port", str(port), "--threads", str(args.threads)),
            *("--max-sequences", str(most), "--context", "512"),
        ]
    return [
        *(str(args.peer / "llama-server"), "-m", str(file), "--port", str(port)),
        *("-t", str(args.threads), "-np", str(most), "-c", str(512 * most), "--no-webui"),
    ]


async def ready(url: str, server: subprocess.Popen[bytes]) -> None:
    """Waits until a server answers that it is well; exits where it does not come to that."""
    end = time.monotonic() + START
    async with aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{url}/health") as response:
                    if response.status == 200:
                        return
            if server.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"a server does not start: {server.args!r}")
            await asyncio.sleep(0.1)


async def run(side: str, args: argparse.Namespace, file: Path, salt: int) -> dict[int, Seen]:
    """One server's life: started, asked by each number of clients, ended."""
    port, most = free_port(), max(args.clients)
    server = subprocess.Popen(
        command(side, args, file, port, most), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await ready(url, server)
        return {
            count: await clients(url, count, salt + 10_000_000 * count) for count in args.clients
        }
    finally:
        server.terminate()
        server.wait(30)


def table(file: Path, found: dict[str, list[dict[int, Seen]]], counts: list[int]) -> list[str]:
    """The rows of one file."""

    def median(side: str, count: int, what: Any) -> float:
        return statistics.median(what(seen[count]) for seen in found[side])

    def rate(seen: Seen) -> float:
        return seen.tokens / seen.seconds

    def first(seen: Seen) -> float:
        return 1e3 * statistics.median(seen.first)

    def late(seen: Seen) -> float:
        ordered = sorted(seen.first)
        return 1e3 * ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]

    def health(seen: Seen) -> float:
        return 1e3 * seen.health

    rows = []
    for count in counts:
        ours, theirs = median("golem", count, rate), median("peer", count, rate)
        times = [
            f"{median('golem', count, what):.0f} | {median('peer', count, what):.0f}"
            for what in (first, late)
        ]
        longest = max(health(seen[count]) for seen in found["golem"])
        rows.append(
            f"| {file.name} | {count} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} "
            f"| {times[0]} | {times[1]} | {longest:.0f} |"
        )
    return rows


def main() -> None:
    """The command of the module's first lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="measure on a machine that is in use")
    args = parser.parse_args()
    print(f"{processor()}; medians of {args.rounds} rounds; {' '.join(sys.argv)}\n")
    print(
        "| file | clients | golem tokens/s | llama-server | ratio | first token ms | llama-server "
        "| 95 % ms | llama-server | health ms |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    worst = 0.0
    for file in args.files:
        found: dict[str, list[dict[int, Seen]]] = {"golem": [], "peer": []}
        for turn in range(args.rounds):
            for side in sorted(found, reverse=bool(turn % 2)):
                worst = max(worst, wait_for_quiet(args.busy))
                found[side].append(asyncio.run(run(side, args, file, 1 + turn)))
        print("\n".join(table(file, found, args.clients)), flush=True)
    if worst > QUIET:
        print(f"\nThe machine was in use meanwhile: up to {worst:.2f} cores. Not to be quoted.")


if __name__ == "__main__":
    main()
