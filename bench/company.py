"""What company costs: passes of 1, 2, 4 and 8 columns, each the next token of its own conversation.

    python bench/company.py FILE... [--threads 2] [--columns 1 2 4 8] [--tokens 24] [--json OUT]

For each number of conversations an engine answers so many requests at once. A pass is the time
from one token of a conversation to its next while all of them draw: the products, the attention,
the sampling and what Python does between two passes. The table has the median, the least and the
most of these times, their ratio to those of one conversation, and the tokens a second of all
conversations together, with their ratio likewise. The numbers of conversations are measured in
turn, `--rounds` times. Nothing else may run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from golem_core import plugins
from golem_core.engine import Engine, Request, start_engine
from golem_core.model import Generator, Options
from golem_core.sampling import Sampling
from golem_core.weights import open_weights

PROMPT = 16  # tokens of each conversation's prompt, its own


def intervals(engine: Engine, conversations: int, tokens: int, rng: np.random.Generator) -> Any:
    """Seconds from token to token of one conversation while `conversations` draw."""
    seen: list[tuple[float, int]] = []  # of every token: when, and of which conversation

    def noting(number: int) -> Any:
        return lambda event: seen.append((time.perf_counter(), number))

    streams = [
        engine.submit(
            Request(
                rng.integers(0, engine.vocabulary, PROMPT),
                Sampling(temperature=0.0),
                max_tokens=tokens + 8,
                ignore_eos=True,
                shared=False,
                on_event=noting(number),
            )
        )
        for number in range(conversations)
    ]
    while any(not ended(seen, number, tokens) for number in range(len(streams))):
        time.sleep(0.005)
    begun = max(next(at for at, who in seen if who == n) for n in range(conversations))
    last = [[at for at, who in seen if who == n][tokens + 7] for n in range(conversations)]
    times = [at for at, who in seen if who == 0 and begun <= at <= min(last)]
    return np.diff(times)[1:]


def ended(seen: list[tuple[float, int]], number: int, tokens: int) -> bool:
    """Whether a conversation has had all its tokens and its result."""
    return sum(who == number for _, who in list(seen)) >= tokens + 9


def measure(file: Path, threads: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one file and thread count."""
    rng = np.random.default_rng(5)
    samples: dict[int, list[float]] = {columns: [] for columns in args.columns}
    with open_weights(file) as weights:
        model = plugins.find(weights.architecture).open(weights, Options())
        assert isinstance(model, Generator)
        with start_engine(
            model, weights, context=256, max_sequences=max(args.columns), threads=threads
        ) as engine:
            intervals(engine, max(args.columns), 4, rng)
            for _ in range(args.rounds):
                for columns in args.columns:
                    samples[columns] += list(intervals(engine, columns, args.tokens, rng))
    alone = statistics.median(samples[args.columns[0]]) / args.columns[0]
    rows = []
    for columns, seconds in samples.items():
        median = statistics.median(seconds)
        row = {"file": file.name, "threads": threads, "columns": columns, "ms": 1e3 * median}
        row["least_ms"], row["most_ms"] = 1e3 * min(seconds), 1e3 * max(seconds)
        row["ratio"] = median / alone
        row["tokens"], row["tokens_ratio"] = columns / median, columns * alone / median
        rows.append(row)
    return rows


def main() -> None:
    """The command of the module's first lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=int, default=24, help="of each conversation")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the rows here too")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("| file | threads | columns | ms a pass | to one | tokens/s | to one |")
    print("|---|---|---|---|---|---|---|")
    for file in args.files:
        for threads in args.threads:
            for row in measure(file, threads, args):
                rows.append(row)
                print(
                    f"| {row['file']} | {threads} | {row['columns']} | {row['ms']:.2f} "
                    f"({row['least_ms']:.2f}-{row['most_ms']:.2f}) | {row['ratio']:.2f} "
                    f"| {row['tokens']:.1f} | {row['tokens_ratio']:.2f} |",
                    flush=True,
                )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
