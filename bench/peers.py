"""Golem beside llama.cpp on the same files: reading prompts and generating 64 tokens.

    python bench/peers.py --peer FOLDER FILE... [--threads 1 2] [--rounds 5] [--json OUT]
                          [--read 64 256 512] [--depth 4096]

FOLDER holds llama-bench (`bench/build_peer.sh`). In every round both engines run in turn, each in
a process of its own that loads the file, warms up and measures once; every other round the order
is turned. The table has medians and, in brackets, the least and the most. Before each process the
machine must be quiet, see QUIET; `--busy` measures regardless and says so.

Beside each figure of golem's stands its share of the machine's limit with as many threads: the
bytes of weights that a token needs of those that memory gives, the products of a prompt of those
that the processor's integer units could add up (`golem bench` measures both limits the same way).

With --depth everything is measured behind a text of so many tokens, which both have read before.

llama-bench times the passes alone. Golem's times are an engine's: from a request's beginning to
its first token, and from the first to the last, with sampling and text. `--huge` gives llama.cpp
its weights in huge pages through malloc (golem asks for such pages itself).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

READ, GENERATE = (64, 256, 512), 64
QUIET = 0.05  # of one core: what else may run
PATIENCE = 120.0  # seconds to wait for that


def busy_cores(seconds: float = 0.5) -> float:
    """Cores that are in use while this process sleeps, from /proc/stat."""

    def now() -> int:
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        return sum(fields[:3]) + sum(fields[5:8])  # all but idle and waiting for a disk

    start = now()
    time.sleep(seconds)
    return (now() - start) / os.sysconf("SC_CLK_TCK") / seconds


def wait_for_quiet(busy: bool) -> float:
    """Waits until nothing else runs and gives what still did; exits where it does not end."""
    end = time.monotonic() + PATIENCE
    while (used := busy_cores()) > QUIET and not busy:
        if time.monotonic() > end:
            sys.exit(f"peers: {used:.2f} cores are in use; stop what runs, or measure with --busy")
    return used


def golem(file: Path, threads: int, read: list[int], depth: int) -> dict[str, float]:
    """Golem's tokens a second and shares of the limit, measured in a process of its own."""
    lengths = [str(length) for length in read]
    command = [sys.executable, __file__, str(file), "--measure", str(threads)]
    command += ["--depth", str(depth), "--read", *lengths]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(file: Path, threads: int, lengths: list[int], depth: int) -> dict[str, float]:
    """The inside of that process: an engine, a warm-up, and one request of each kind."""
    from golem_core import plugins
    from golem_core.cli.bench import limits
    from golem_core.engine import Request, start_engine
    from golem_core.graph import Graph
    from golem_core.graph.cost import cost
    from golem_core.model import Generator, Options
    from golem_core.sampling import Sampling
    from golem_core.weights import open_weights

    with open_weights(file) as weights:
        model = plugins.find(weights.architecture).open(weights, Options())
        assert isinstance(model, Generator)
        draw = random.Random(1).randrange
        greedy = Sampling(temperature=0.0)
        graph = Graph(weights, drafts=False)
        graph.result = model.forward(graph)
        least = cost(graph)
        bandwidth, products = limits(threads)
        before = [draw(model.vocab) for _ in range(depth)]
        context = depth + 1024
        with start_engine(
            model, weights, context=context, max_sequences=1, threads=threads
        ) as engine:

            def ask(prompt: int, answer: int) -> dict[str, float]:
                ids = before + [draw(model.vocab) for _ in range(prompt)]  # never read before
                request = Request(ids, greedy, max_tokens=answer, ignore_eos=True)
                timings = engine.submit(request).result().timings
                read, made = timings["prompt_seconds"], timings["generate_seconds"]
                fresh = len(ids) - timings["cached_tokens"]
                return {"read": fresh / read, "generate": (answer - 1) / made if made else 0.0}

            ask(max(lengths), 4)
            found = {}
            for length in lengths:
                rate = ask(length, 1)["read"]
                needed = least.column + least.output / length
                found[f"read{length}"] = rate
                found[f"read{length}_share"] = rate * needed / products
            found["generate"] = ask(1, GENERATE + 1)["generate"]
            found["generate_share"] = found["generate"] * least.bytes / bandwidth
            return found


def llama_cpp(
    folder: Path, file: Path, threads: int, huge: bool, lengths: list[int], depth: int
) -> dict[str, float]:
    """Tokens a second of llama.cpp for each, by one run of llama-bench."""
    command = [
        str(folder / "llama-bench"), "-m", str(file), "-t", str(threads), "-r", "1", "-o", "json",
        "-p", ",".join(map(str, lengths)), "-n", str(GENERATE), "-d", str(depth),
        *(["-lm", "none"] if huge else []),
    ]  # fmt: skip
    env = dict(os.environ)
    if huge:
        env["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    rows = json.loads(done.stdout)
    return {
        (f"read{row['n_prompt']}" if row["n_prompt"] else "generate"): row["avg_ts"] for row in rows
    }


def processor() -> str:
    """The processor's name, and how many cores the process may use."""
    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def compare(args: argparse.Namespace, file: Path, threads: int) -> list[dict[str, Any]]:
    """The rows of one file and thread count."""
    sides: dict[str, Callable[[], dict[str, float]]] = {
        "golem": lambda: golem(file, threads, args.read, args.depth),
        "peer": lambda: llama_cpp(args.peer, file, threads, args.huge, args.read, args.depth),
    }
    samples: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    load = 0.0
    for turn in range(args.rounds):
        for side in sorted(sides, reverse=bool(turn % 2)):
            load = max(load, wait_for_quiet(args.busy))
            samples[side].append(sides[side]())
    rows = []
    for what in (*(f"read{length}" for length in args.read), "generate"):
        row: dict[str, Any] = {"file": file.name, "what": what, "threads": threads}
        for side, found in samples.items():
            values = [sample[what] for sample in found]
            row[side] = statistics.median(values)
            row[f"{side}_range"] = [min(values), max(values)]
        row["ratio"] = statistics.median(s[what] for s in samples["golem"]) / statistics.median(
            s[what] for s in samples["peer"]
        )
        shares = [sample[f"{what}_share"] for sample in samples["golem"]]
        rows.append({**row, "limit_share": statistics.median(shares), "load": load})
    return rows


def line(row: dict[str, Any]) -> str:
    """A row of the Markdown table."""

    def cell(side: str) -> str:
        low, high = row[f"{side}_range"]
        return f"{row[side]:.1f} ({low:.1f}-{high:.1f})"

    what = str(row["what"]).replace("read", "read ").replace("generate", f"generate {GENERATE}")
    return (
        f"| {row['file']} | {what} | {row['threads']} | {cell('golem')} | {cell('peer')} "
        f"| {row['ratio']:.2f} | {row['limit_share']:.0%} |"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--peer", type=Path, help="folder of llama-bench")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--read", type=int, nargs="+", default=list(READ), metavar="TOKENS")
    parser.add_argument("--depth", type=int, default=0, metavar="TOKENS")
    parser.add_argument("--huge", action="store_true", help="llama.cpp in huge pages")
    parser.add_argument("--busy", action="store_true", help="measure on a machine that is in use")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.files[0], args.measure, args.read, args.depth)))
        return
    if args.peer is None or not args.files:
        parser.error("name --peer FOLDER, which bench/build_peer.sh builds, and the files")
    rows: list[dict[str, Any]] = []
    print(f"{processor()}; medians of {args.rounds} rounds, tokens/s; {' '.join(sys.argv)}\n")
    print("| file | what | threads | golem | llama.cpp | ratio | of the limit |")
    print("|---|---|---|---|---|---|---|")
    for file in args.files:
        for threads in args.threads:
            for row in compare(args, file, threads):
                rows.append(row)
                print(line(row), flush=True)
    worst = max(row["load"] for row in rows)
    if worst > QUIET:
        print(f"\nThe machine was in use meanwhile: up to {worst:.2f} cores. Not to be quoted.")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
