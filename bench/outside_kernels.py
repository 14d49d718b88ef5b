"""How much of a pass of one token is spent outside kernels.

    python bench/outside_kernels.py FILE [--threads 1 2] [--passes 400] [--json]

For each number of threads: the time of a pass; the share of it in which no worker was in a kernel
(counters, barriers, the call itself); and the share in which a worker, on average, was in none
(also while it waits for another that does a single row or ends later). Nothing else may run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np

from golem_core import plugins
from golem_core.cpu.lower import lower
from golem_core.graph import PAGE, Batch, Graph
from golem_core.model import Generator, Options
from golem_core.weights import open_weights


def measure(file: Path, threads: int, passes: int) -> dict[str, float]:
    """Medians over passes of one token behind a context of 64."""
    with open_weights(file) as weights:
        model = plugins.find(weights.architecture).open(weights, Options())
        assert isinstance(model, Generator)
        graph = Graph(weights)
        graph.result = model.forward(graph)
        program = lower(
            graph,
            device="cpu",
            width=64,
            outputs=1,
            pages=(4,) * len(graph.windows),
            threads=threads,
            kv="f16",
            keep=(),
        )
        tables = tuple(np.arange(4, dtype=np.int32)[None] for _ in graph.windows)

        def batch(start: int, count: int) -> Batch:
            return Batch(
                np.full(count, 7, np.int32),
                np.arange(start, start + count, dtype=np.int32),
                np.zeros(count, np.int32),
                tables,
                np.array([count - 1], np.int32),
            )

        program.run(batch(0, 2 * PAGE))
        one = batch(2 * PAGE, 1)
        plain = []
        for _ in range(passes):
            start = time.perf_counter()
            program.run(one)
            plain.append(time.perf_counter() - start)
        times = program.tape.time_stages()
        whole, none, idle = [], [], []
        for _ in range(passes):
            times[:] = 0.0
            start = time.perf_counter()
            program.run(one)
            took = time.perf_counter() - start
            begun = np.where(times[..., 0] > 0, times[..., 0], np.inf).min(axis=1)
            whole.append(took)
            none.append(1 - (times[..., 1].max(axis=1) - begun).sum() / took)
            idle.append(1 - (times[..., 1] - times[..., 0]).sum() / (threads * took))
        del times
        program.close()
    return {
        "threads": threads,
        "pass_ms": 1e3 * statistics.median(plain),
        "timed_pass_ms": 1e3 * statistics.median(whole),
        "no_kernel_share": statistics.median(none),
        "worker_idle_share": statistics.median(idle),
    }


def main() -> None:
    """Prints a line for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--passes", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = [measure(given.file, threads, given.passes) for threads in given.threads]
    if given.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(
            f"{row['threads']} threads: {row['pass_ms']:.3f} ms a pass ({row['timed_pass_ms']:.3f} "
            f"with the clocks on), {100 * row['no_kernel_share']:.1f} % in no kernel, "
            f"{100 * row['worker_idle_share']:.1f} % of a worker's time"
        )


if __name__ == "__main__":
    main()
