"""A plan as a `Batch`: arrays made once, filled for each pass."""

from __future__ import annotations

import numpy as np

from golem_core.engine.schedule import Share
from golem_core.graph.program import Batch


class Columns:
    """The arrays of a pass of at most `width` columns over `tables`, one for each page group."""

    def __init__(self, width: int, context: int, tables: tuple[np.ndarray, ...]) -> None:
        self._tables = tables
        self._ids = np.zeros(width, dtype=np.int32)
        self._positions = np.zeros(width, dtype=np.int32)
        self._sequence = np.zeros(width, dtype=np.int32)
        self._outputs = np.zeros(width, dtype=np.int32)
        self._count = np.arange(context, dtype=np.int32)
        self._batch = self._views(0, 0)

    def fill(self, plan: list[Share]) -> Batch:
        """The batch of `plan`, valid until the next one. Logits are wanted of the last columns."""
        at = 0
        for index, (sequence, tokens) in enumerate(plan):
            hold = sequence.place
            start = hold.length
            if tokens == 1:
                self._ids[at] = sequence.tokens[start]
                self._positions[at] = start
                self._sequence[at] = hold.row
            else:
                self._ids[at : at + tokens] = sequence.tokens[start : start + tokens]
                self._positions[at : at + tokens] = self._count[start : start + tokens]
                self._sequence[at : at + tokens] = hold.row
            at += tokens
            self._outputs[index] = at - 1
        # Most passes are as wide as the one before: one token of each conversation.
        if len(self._batch.ids) != at or len(self._batch.outputs) != len(plan):
            self._batch = self._views(at, len(plan))
        return self._batch

    def _views(self, columns: int, outputs: int) -> Batch:
        return Batch(
            ids=self._ids[:columns],
            positions=self._positions[:columns],
            sequence=self._sequence[:columns],
            pages=self._tables,
            outputs=self._outputs[:outputs],
        )
