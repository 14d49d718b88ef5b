"""Where the time of a pass goes, by kind of stage.

    python -m bench.stages FILE [--columns 1 256] [--threads 1] [--passes 5] [--by kind|name]
                           [--depth 64] [--guessed]

For each width of a pass the milliseconds of each kind of stage, as the median over passes of the
time from its first worker's begin to its last one's end, and its share of all of them. `--by name`
sums over layers by what is computed. The columns stand behind `--depth` others, which are read
first. With `--guessed` all columns but the first are guesses, and logits are wanted after each.
Nothing else may run.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from golem_core import plugins
from golem_core.cpu.lower import lower
from golem_core.graph import PAGE, Batch, Graph
from golem_core.model import Generator, Options
from golem_core.weights import open_weights

READ = 256  # columns of the passes that read what stands before


def measure(
    file: Path, columns: int, threads: int, passes: int, depth: int, guessed: bool
) -> tuple[list[str], np.ndarray]:
    """The stages' names and median seconds, for passes of so many columns behind `depth` others."""
    with open_weights(file) as weights:
        model = plugins.find(weights.architecture).open(weights, Options())
        assert isinstance(model, Generator)
        graph = Graph(weights, drafts=False)
        graph.result = model.forward(graph)
        pages = -(-(columns + depth) // PAGE)
        program = lower(
            graph,
            device="cpu",
            width=max(columns, min(READ, depth)),
            outputs=columns if guessed else 1,
            pages=(pages,) * len(graph.windows),
            states=1,
            guesses=columns - 1 if guessed else 0,
            threads=threads,
            kv="f16",
            keep=(),
        )
        tables = tuple(np.arange(pages, dtype=np.int32)[None] for _ in graph.windows)
        rng = np.random.default_rng(3)

        def batch(start: int, count: int, guessed: bool = False) -> Batch:
            keeps = np.full(count, -1, np.int32)
            keeps[0 if guessed else -1] = 0
            return Batch(
                rng.integers(0, model.vocab, count).astype(np.int32),
                np.arange(start, start + count, dtype=np.int32),
                np.zeros(count, np.int32),
                tables,
                np.arange(0 if guessed else count - 1, count, dtype=np.int32),
                np.array([0 if start else -1], np.int32),
                keeps,
            )

        for start in range(0, depth, READ):
            program.run(batch(start, min(READ, depth - start)))
        times = program.tape.time_stages()
        program.run(batch(depth, columns, guessed))
        seen = []
        for _ in range(passes):
            times[:] = 0.0
            program.run(batch(depth, columns, guessed))
            begun = np.where(times[..., 0] > 0, times[..., 0], np.inf).min(axis=1)
            spent = times[..., 1].max(axis=1) - begun
            seen.append(np.where(np.isfinite(spent), spent, 0.0))
        del times
        names = list(program.stages)
        program.close()
    return names, np.median(seen, axis=0)


def main() -> None:
    """The command of the module's first lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--columns", nargs="+", type=int, default=[1, 256])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--by", choices=("kind", "name"), default="kind")
    parser.add_argument("--depth", type=int, default=2 * PAGE, metavar="TOKENS")
    parser.add_argument("--guessed", action="store_true")
    args = parser.parse_args()
    for columns in args.columns:
        names, spent = measure(
            args.file, columns, args.threads, args.passes, args.depth, args.guessed
        )
        sums: dict[str, float] = defaultdict(float)
        for name, seconds in zip(names, spent, strict=True):
            kind, _, what = name.partition(" ")
            what = re.sub(r"^blk\.\d+\.", "", what)
            sums[kind if args.by == "kind" else f"{kind} {what}"] += 1e3 * float(seconds)
        whole = sum(sums.values())
        print(
            f"{args.file.name}, {columns} columns behind {args.depth}, {args.threads} threads: "
            f"{whole:.2f} ms"
        )
        for kind, milliseconds in sorted(sums.items(), key=lambda item: -item[1]):
            print(f"  {kind:32} {milliseconds:9.3f} ms {milliseconds / whole:7.1%}")


if __name__ == "__main__":
    main()
