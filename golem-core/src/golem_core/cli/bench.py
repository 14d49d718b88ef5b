"""`golem bench`: how fast a model reads and generates, and what share of the machine that is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import click

from golem_core.cli.options import (
    as_json,
    effective,
    human,
    model_argument,
    note,
    print_json,
    setting_options,
    table,
)
from golem_core.cli.terminal import Waiting
from golem_core.errors import BadRequest

if TYPE_CHECKING:
    from golem_core.api import LanguageModel

READ_BYTES = 256 << 20  # a thread's share; larger than any cache that it has for itself
LIMIT_SECONDS = 0.25


@click.command()
@model_argument
@click.option("--read", default=256, show_default=True, help="Tokens of the prompt.")
@click.option("--generate", default=64, show_default=True, help="Tokens of the answer.")
@click.option("--repeat", default=3, show_default=True, help="Times that it is measured.")
@as_json
@setting_options("device", "threads")
def command(
    model: str, read: int, generate: int, repeat: int, as_json: bool, **options: Any
) -> None:
    """Measure reading and generating against the machine's limit.

    Generating cannot be faster than the weights are read from memory, reading a prompt not faster
    than bytes are multiplied. Both limits are measured here, with the same threads, by loops that
    do nothing else. Rates are medians; a busy machine makes all of them meaningless.

    A model that embeds reads texts of --read tokens, one at a time; `golem embed bench` has more
    options.
    """
    if read < 1 or generate < 2 or repeat < 1:
        raise BadRequest("bench needs --read of at least 1, --generate of 2, --repeat of 1")
    settings = effective(options)
    from golem_core import threads
    from golem_core.api import load

    workers = threads.choose(settings["threads"]).count
    if _embeds(model):
        _bench_embedder(model, settings["device"], workers, read, repeat, as_json)
        return
    with (
        Waiting("measuring") as waiting,
        load(
            model,
            device=settings["device"],
            threads=workers,
            context=None,
            max_sequences=1,
            draft="off",
            say=note,
        ) as loaded,
    ):
        if read + generate > loaded.context:
            raise BadRequest(
                f"--read {read} and --generate {generate} together pass the context of "
                f"{loaded.context} tokens"
            )
        waiting.say("warming up")
        _measure(loaded, read, 2, seed=0)
        runs = []
        for i in range(repeat):
            waiting.say(f"measuring, {i + 1} of {repeat},")
            runs.append(_measure(loaded, read, generate, seed=i + 1))
        cost = _cost(loaded, read)
        found: dict[str, Any] = {
            "model": model,
            "device": settings["device"],
            "threads": workers,
            "read_tokens": read,
            "generate_tokens": generate,
            "read_per_second": statistics.median(r for r, _ in runs),
            "generate_per_second": statistics.median(g for _, g in runs),
            "runs": [{"read_per_second": r, "generate_per_second": g} for r, g in runs],
            **cost,
        }
        waiting.say("measuring the machine,")
        if settings["device"] == "cpu":
            found.update(_shares(found, workers))
    if as_json:
        print_json(found)
    else:
        _print(found)


def _embeds(model: str) -> bool:
    """Whether a model is published for making vectors of texts, or scores."""
    from golem_core import hub, plugins
    from golem_core.model import Embedder
    from golem_core.weights import open_weights

    with open_weights(hub.resolve(model, say=note)) as weights:
        return issubclass(plugins.meant(weights), Embedder)


def _bench_embedder(
    model: str, device: str, workers: int, read: int, repeat: int, as_json: bool
) -> None:
    from golem_core.api import load_embedder
    from golem_core.cli.bench_embedder import measure, show

    with load_embedder(model, device=device, threads=workers, say=note) as loaded:
        found = measure(loaded, min(read, loaded.length), 1, repeat)
    if as_json:
        print_json({**found, "model": model, "device": device, "threads": workers})
    else:
        show(found)
        click.echo(f"{device}, {workers} thread{'s' * (workers != 1)}")


def _measure(model: LanguageModel, read: int, generate: int, seed: int) -> tuple[float, float]:
    """Tokens a second of reading and of generating, for a prompt that was never read before."""
    import numpy as np

    from golem_core.engine import Request
    from golem_core.sampling import Sampling

    ids = np.random.default_rng(seed).integers(0, model.engine.vocabulary, read)
    request = Request(ids, Sampling(temperature=0.0), max_tokens=generate, ignore_eos=True)
    timings = model.engine.submit(request).result().timings
    # The first token of the answer comes out of reading.
    wrote = (timings["generated_tokens"] - 1) / timings["generate_seconds"]
    return timings["prompt_tokens"] / timings["prompt_seconds"], wrote


def _cost(model: LanguageModel, read: int) -> dict[str, int]:
    """What a token takes at least: bytes of weights to generate it, products to read it."""
    from golem_core.graph import Graph
    from golem_core.graph.cost import cost

    graph = Graph(model.weights, drafts=False)
    graph.result = model.model.forward(graph)
    found = cost(graph)
    return {
        "bytes_per_token": found.bytes,
        "products_per_token": found.column + found.output // read,
    }


def _shares(found: dict[str, Any], workers: int) -> dict[str, Any]:
    """The machine's two limits with so many threads, and what share of them was reached."""
    bandwidth, products = limits(workers)
    from golem_core.cpu import dispatch

    return {
        "layer": dispatch.layer(),
        "limit_bytes_per_second": bandwidth,
        "limit_products_per_second": products,
        "generate_share": found["generate_per_second"] * found["bytes_per_token"] / bandwidth,
        "read_share": found["read_per_second"] * found["products_per_token"] / products,
    }


def limits(workers: int) -> tuple[float, float]:
    """Bytes a second that so many threads read, and products of bytes a second that they add."""
    import numpy as np

    from golem_core.cpu import dispatch
    from golem_core.cpu.limits import Limits

    loops = Limits(dispatch.layer())
    blocks = [np.ones(READ_BYTES, np.uint8) for _ in range(workers)]
    bandwidth = _together(workers, lambda i: loops.read(blocks[i]))
    return bandwidth, _together(workers, lambda i: loops.multiply(1 << 20))


def _together(workers: int, work: Callable[[int], int]) -> float:
    """The most that the threads did together in a second, of a few tries."""
    best = 0.0
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
        end = time.perf_counter() + 4 * LIMIT_SECONDS
        while time.perf_counter() < end:
            start = time.perf_counter()
            done = sum(pool.map(work, range(workers)))
            best = max(best, done / (time.perf_counter() - start))
    return best


def _print(found: dict[str, Any]) -> None:
    shared = "generate_share" in found
    rows = [
        (
            f"reading {found['read_tokens']} tokens",
            f"{found['read_per_second']:.1f}",
            f"{found['read_share']:.0%}" if shared else "-",
            f"{found['limit_products_per_second'] / 1e9:.0f} G products/s" if shared else "-",
        ),
        (
            f"generating {found['generate_tokens']}",
            f"{found['generate_per_second']:.1f}",
            f"{found['generate_share']:.0%}" if shared else "-",
            f"{human(found['limit_bytes_per_second'])}/s" if shared else "-",
        ),
    ]
    table(("", "TOKENS/S", "SHARE", "OF THE LIMIT"), rows)
    threads = f"{found['threads']} thread{'s' * (found['threads'] != 1)}"
    layer = f", {found['layer']}" if shared else ""
    click.echo(f"{found['device']}, {threads}{layer}")
