"""How fast an encoder is: for `golem bench`, and for `golem embed bench` with more options."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import click

from golem_core.errors import BadRequest

if TYPE_CHECKING:
    from golem_core.embedding import Embedding

WORDS = "the quick brown fox jumps over the lazy dog "


def measure(model: Embedding, tokens: int, batch: int, repeat: int) -> dict[str, Any]:
    """The median time of `batch` texts of so many tokens at once, or of so many pairs to score.

    Of texts ids are given, so that the tokenizer is left out; of pairs it is part of the time. A
    pair is a word and a text of so many tokens. Raises `BadRequest`.
    """
    if batch < 1 or repeat < 1 or tokens < 3:
        raise BadRequest("bench needs at least one text, one repetition and 3 tokens of a text")
    if tokens > model.length:
        raise BadRequest(
            f"{tokens} tokens are more than the {model.length} that {model.name} reads"
        )
    ids = model.tokenize(WORDS * tokens)
    texts = [WORDS * max(1, tokens // 9)] * batch
    given = [ids[: tokens - 1] + ids[-1:]] * batch

    def once() -> int:
        return sum((model.rank("fox", texts) if model.scores else model.embed(given)).tokens)

    read = once()
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        once()
        times.append(time.perf_counter() - begun)
    median = statistics.median(times)
    return {
        "model": model.name,
        "precision": model.precision,
        "tokens": read // batch,
        "batch": batch,
        "milliseconds": 1e3 * median,
        "fastest": 1e3 * min(times),
        "tokens_per_second": read / median,
        "texts_per_second": batch / median,
    }


def show(found: dict[str, Any]) -> None:
    """A line of what was measured."""
    click.echo(
        f"{found['milliseconds']:.2f} ms, {found['texts_per_second']:.1f} texts/s, "
        f"{found['tokens_per_second']:.0f} tokens/s "
        f"({found['precision']}, {found['batch']} x {found['tokens']})"
    )
