"""What drawing a token takes behind the pass that gave its logits, and its share of both.

    python -m bench.sampling FILE [--threads 2] [--passes 40]

A pass leaves the caches full of weights, so that a row of logits is read from far away: drawing
from the same row again and again would say too little. Of each kind of drawing the medians over
passes, the kinds in turn. Nothing else may run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

from golem_core import plugins
from golem_core.graph import PAGE, Batch, Graph, compile
from golem_core.model import Generator, Options
from golem_core.sampling import Sampler, Sampling
from golem_core.weights import open_weights

KINDS = {
    "greedy": Sampling(temperature=0.0),
    "default": Sampling(seed=1),
    "penalties": Sampling(seed=1, repeat_penalty=1.1, frequency_penalty=0.1, presence_penalty=0.1),
    "top_p alone": Sampling(seed=1, top_k=0, min_p=0.0),
}


def rows(file: Path, threads: int, passes: int) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """So many passes of one column: the logits, the tokens so far and the pass's seconds."""
    with open_weights(file) as weights:
        model = plugins.find(weights.architecture).open(weights, Options())
        assert isinstance(model, Generator)
        graph = Graph(weights, drafts=False)
        graph.result = model.forward(graph)
        pages = -(-passes // PAGE)
        program = compile(
            graph, width=1, outputs=1, pages=[pages] * len(graph.windows), states=1, threads=threads
        )
        tables = tuple(np.arange(pages, dtype=np.int32)[None] for _ in graph.windows)
        tokens = np.random.default_rng(3).integers(0, model.vocab, passes).astype(np.int32)
        slot = np.zeros(1, np.int32)
        for at in range(passes):
            place = np.array([at], np.int32)
            batch = Batch(tokens[at : at + 1], place, slot, tables, slot)
            batch.states, batch.keeps = (slot if at else slot - 1), slot
            begun = time.perf_counter()
            logits = program.run(batch)[0]
            yield logits, tokens[: at + 1], time.perf_counter() - begun
        program.close()


def main() -> None:
    """The command of the module's first lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--passes", type=int, default=40)
    args = parser.parse_args()
    samplers = {kind: Sampler(asked) for kind, asked in KINDS.items()}
    spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
    read = []
    passes = rows(args.file, args.threads, args.passes * len(KINDS))
    for number, (logits, tokens, seconds) in enumerate(passes):
        kind = list(KINDS)[number % len(KINDS)]
        begun = time.perf_counter()
        samplers[kind].draw(logits, tokens)
        spent[kind].append(time.perf_counter() - begun)
        read.append(seconds)
    print(
        f"{args.file.name}, {len(logits)} tokens, {args.threads} threads: "
        f"a pass {1e3 * median(read):.2f} ms"
    )
    print("| drawing | us | of a token |\n|---|---|---|")
    for kind, taken in spent.items():
        took = median(taken)
        print(f"| {kind} | {1e6 * took:.0f} | {took / (took + median(read)):.2%} |")


if __name__ == "__main__":
    main()
