"""What a busy neighbour costs: golem's and llama.cpp's speed with another process on the machine.

    python bench/beside.py FILE [--peer FOLDER] [--threads 2] [--rounds 3] [--read 256] [--json OUT]

Each engine reads a prompt and generates, quiet and then beside a process that does nothing but
count, which the system puts where it likes. The table has the medians of tokens a second of both,
and their ratio: with N cores, N threads and one such neighbour a share of N / (N + 1) of the time
is what is left. Without --peer (a folder of llama-bench, see `bench/build_peer.sh`) golem is
measured alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers import GENERATE, golem, llama_cpp, processor

LOOP = "while True: pass"


@contextmanager
def neighbour(wanted: bool) -> Iterator[None]:
    """A process that keeps one core busy, while this lasts."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", LOOP])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows: of each engine, what it does, quiet, beside the neighbour, and the ratio."""
    sides: dict[str, Callable[[], dict[str, float]]] = {
        "golem": lambda: golem(args.file, args.threads, args.read, 0)
    }
    if args.peer is not None:
        sides["llama.cpp"] = lambda: llama_cpp(
            args.peer, args.file, args.threads, False, args.read, 0
        )
    found: dict[tuple[str, bool], list[dict[str, float]]] = {}
    for turn in range(args.rounds):
        for busy in (False, True) if turn % 2 == 0 else (True, False):
            for side, run in sides.items():
                with neighbour(busy):
                    found.setdefault((side, busy), []).append(run())
    rows = []
    for side in sides:
        for what in (*(f"read{length}" for length in args.read), "generate"):
            quiet, beside = (
                statistics.median(sample[what] for sample in found[side, busy])
                for busy in (False, True)
            )
            row = {"engine": side, "what": what, "quiet": quiet, "beside": beside}
            rows.append({**row, "ratio": beside / quiet})
    return rows


def main() -> None:
    """The command of the module's first lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--peer", type=Path, help="folder of llama-bench")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--read", type=int, nargs="+", default=[256], metavar="TOKENS")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    args = parser.parse_args()
    rows = measure(args)
    print(f"{processor()}; {args.file.name}, {args.threads} threads, medians of {args.rounds}\n")
    print("| engine | what | tokens/s | beside a busy process | ratio |\n|---|---|---|---|---|")
    for row in rows:
        what = row["what"].replace("read", "read ").replace("generate", f"generate {GENERATE}")
        print(
            f"| {row['engine']} | {what} | {row['quiet']:.1f} | {row['beside']:.1f} "
            f"| {row['ratio']:.2f} |"
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
