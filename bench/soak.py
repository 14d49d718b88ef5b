"""Many clients at one server for a long time, a third of whom hang up: nothing lost, nothing kept.

    python -m bench.soak FILE [--minutes 10] [--clients 16] [--threads 2]

Every answer that is heard to its end must be the one that the same request got alone at first. At
the end no request may be left in the server and every page must be free or idle; the memory of
the process is printed each tenth of the time, and must not have grown by more than a twentieth
between the second of these and the last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
from bench.server import free_port, prompt, ready

REQUESTS, TOKENS = 24, 32


def resident(process: int) -> int:
    """Bytes of a process's memory that no file backs."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return 1024 * int(found[1])


def body(number: int, stream: bool) -> dict[str, object]:
    """A request whose answer depends on nothing but its number."""
    return {
        "prompt": prompt(number),
        "max_tokens": TOKENS,
        "temperature": 0.9,
        "seed": number,
        "stream": stream,
    }


async def alone(session: aiohttp.ClientSession, url: str, number: int) -> str:
    """The text of one request by itself."""
    async with session.post(f"{url}/v1/completions", json=body(number, False)) as response:
        response.raise_for_status()
        text: str = (await response.json())["choices"][0]["text"]
        return text


async def heard(
    session: aiohttp.ClientSession, url: str, number: int, leaves_after: int | None
) -> str | None:
    """The whole text, or None of one that was left after so many events."""
    text, events = "", 0
    async with session.post(f"{url}/v1/completions", json=body(number, True)) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(event["error"])
            text += "".join(choice["text"] for choice in event["choices"])
            events += 1
            if leaves_after is not None and events >= leaves_after:
                return None
    return text


async def metric(session: aiohttp.ClientSession, url: str, name: str) -> float:
    """The sum over labels of a number of /metrics."""
    async with session.get(f"{url}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if re.match(rf"{name}(\{{|\s)", line)
    )


async def soak(args: argparse.Namespace, url: str, process: int) -> None:
    """The clients, and what is left when they have gone."""
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        expected = [await alone(session, url, number) for number in range(REQUESTS)]
        end = time.monotonic() + 60 * args.minutes
        whole = left = 0

        async def client(salt: int) -> None:
            nonlocal whole, left
            rng = random.Random(salt)
            while time.monotonic() < end:
                number = rng.randrange(REQUESTS)
                leaves = rng.randrange(1, TOKENS) if rng.random() < 1 / 3 else None
                text = await heard(session, url, number, leaves)
                if text is None:
                    left += 1
                elif text == expected[number]:
                    whole += 1
                else:
                    raise SystemExit(f"soak: request {number} was answered otherwise than alone")

        async def watch() -> list[int]:
            sizes = []
            for tenth in range(10):
                await asyncio.sleep(6 * args.minutes)
                sizes.append(resident(process))
                print(
                    f"{(tenth + 1) * args.minutes / 10:.1f} min: {whole} answers, {left} left, "
                    f"{sizes[-1] / 2**20:.1f} MiB",
                    flush=True,
                )
            return sizes

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(client(salt) for salt in range(args.clients)))
        sizes = await watching
        await asyncio.sleep(1)
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
            assert await metric(session, url, f"golem:{name}") == 0, name
        async with session.get(f"{url}/slots") as response:
            print(json.dumps(await response.json()))
        assert sizes[-1] <= 1.05 * sizes[1], "the server's memory grew"
        print(f"{whole} answers equal to those alone, {left} clients left")


def main() -> None:
    """The command of the module's first lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(Path(sys.executable).with_name("golem")), "serve", str(args.file)]
    command += ["--port", str(port), "--context", "512", "--threads", str(args.threads)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(ready(url, server))
        asyncio.run(soak(args, url, server.pid))
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    main()
