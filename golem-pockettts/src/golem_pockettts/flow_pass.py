"""A pass of the flow model: a column of each line that is drawn, the text of those that begin.

The pass of several lines costs little more than that of one, since it reads the weights once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from golem_core.errors import PassFailed
from golem_core.graph import Batch
from golem_pockettts.derived import Array
from golem_pockettts.drawing import Drawn

if TYPE_CHECKING:
    from golem_pockettts.model import PocketTts

__all__ = ["FlowPass"]

WIDTH = 64  # columns of a pass: a line of usual length; more would only take memory

# What a pass does for a line: its table, where its columns stand, what they are given, who draws.
Part = tuple[np.ndarray, int, Array, "Drawn | None"]


class FlowPass:
    """The flow model's program, with `sequences` lines at most and so many pages."""

    def __init__(
        self, model: PocketTts, kept: str | None, *, sequences: int, pages: int, device: str,
        threads: int,
    ) -> None:  # fmt: skip
        self.model, self.config = model, model.config
        _, flow = part = model.flow(kept)
        self._outcome = flow.outcome
        self.program = model.program(
            part, device=device, width=WIDTH, outputs=sequences, pages=pages, states=0,
            threads=threads,
        )  # fmt: skip

    def draw(self, lines: Sequence[Drawn]) -> None:
        """A frame of each line whose text is read, and as much text as fits beside them."""
        parts: list[Part] = []
        taken: list[Drawn] = []
        room = WIDTH - sum(not len(d.waiting) for d in lines)
        for drawn in lines:
            text = drawn.waiting[:room] if len(drawn.waiting) else drawn.waiting
            if len(drawn.waiting) and not len(text):
                continue
            room -= len(text)
            rest = drawn.waiting[len(text) :]
            draws = not len(rest) and (not len(text) or room > 0)
            room -= bool(len(text) and draws)
            parts.append((drawn.table, drawn.position, text, drawn if draws else None))
            drawn.waiting = rest
            drawn.position += len(text) + draws
            if draws:
                taken.append(drawn)
        if parts:
            for row, drawn in zip(self.program.run(self._columns(parts)), taken, strict=True):
                self._take(row, drawn)

    def read(self, table: np.ndarray, given: Array) -> None:
        """Columns that nothing is drawn behind: a voice, given [positions, d]."""
        for at in range(0, len(given), WIDTH):
            self.program.run(self._columns([(table, at, given[at : at + WIDTH], None)]))

    def _take(self, row: Array, drawn: Drawn) -> None:
        """A result row to the line that it is of."""
        o, c = self._outcome, self.config
        if not np.isfinite(row[: o.eos + 1]).all():
            raise PassFailed(
                "the model computes what no sound can be made of", "result", "nan_result"
            )
        threshold = drawn.spoken.delivery.eos_threshold
        assert threshold is not None
        drawn.take(
            row[o.latent].copy(),
            row[o.scaled].copy(),
            float(row[o.eos]),
            row[o.frames].reshape(c.stride, c.outer).copy(),
            threshold,
        )

    def _columns(self, parts: Sequence[Part]) -> Batch:
        c = self.config
        counts = [len(text) + (drawn is not None) for _, _, text, drawn in parts]
        n, m = sum(counts), sum(drawn is not None for *_, drawn in parts)
        positions, sequence = np.empty(n, np.int32), np.empty(n, np.int32)
        given = np.zeros((n, c.model.width), np.float32)
        latent = np.zeros((n, c.latent), np.float32)
        noise = np.zeros((m, c.latent), np.float32)
        previous = np.zeros((m, c.latent), np.float32)
        outputs: list[int] = []
        tables = np.full((len(parts), max(len(t) for t, *_ in parts)), -1, np.int32)
        at = 0
        for i, ((table, position, text, drawn), count) in enumerate(
            zip(parts, counts, strict=True)
        ):
            tables[i, : len(table)] = table
            positions[at : at + count] = np.arange(position, position + count)
            sequence[at : at + count] = i
            given[at : at + len(text)] = text
            at += count
            if drawn is not None:
                latent[at - 1] = self._begin if drawn.latent is None else drawn.latent
                noise[len(outputs)] = drawn.draw_noise(c.latent)
                if drawn.scaled is not None:
                    previous[len(outputs)] = drawn.scaled
                outputs.append(at - 1)
        return Batch(
            ids=np.zeros(n, np.int32),
            positions=positions,
            sequence=sequence,
            pages=(tables,),
            outputs=np.array(outputs, np.int32),
            inputs={"given": given, "latent": latent, "noise": noise, "previous": previous},
        )

    @cached_property
    def _begin(self) -> Array:
        """What stands for the frame before the first."""
        return self.model.weights.tensors["flow_lm.bos_emb"].dequantize()
