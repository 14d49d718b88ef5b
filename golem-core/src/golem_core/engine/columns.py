"""A plan as a `Batch`: arrays made once, filled for each pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from golem_core.engine.schedule import Share
from golem_core.graph.program import Batch
from golem_core.memory import Memory


class Columns:
    """The arrays of a pass of at most `width` columns over the tables of `memory`."""

    def __init__(self, width: int, context: int, memory: Memory) -> None:
        self._tables = memory.tables
        self._states = None if memory.states is None else memory.states.read
        self._replays = None if memory.states is None else memory.states.replays
        self._ids = np.zeros(width, dtype=np.int32)
        self._positions = np.zeros(width, dtype=np.int32)
        self._sequence = np.zeros(width, dtype=np.int32)
        self._outputs = np.zeros(width, dtype=np.int32)
        self._keeps = np.zeros(width, dtype=np.int32)
        self._count = np.arange(context, dtype=np.int32)
        self._batch = self._views(0, 0)

    def fill(self, plan: Sequence[Share]) -> Batch:
        """The batch of `plan`, valid until the next one.

        Logits are wanted of the last column of each share, and of all that a guess follows.
        """
        at = row = 0
        for share in plan:
            sequence, tokens = share.sequence, share.tokens
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
            end = at + tokens + len(share.drafts)
            if self._states is not None:
                self._keeps[at:end] = -1
                for offset, slot in hold.kept:
                    self._keeps[at + offset] = slot
            at += tokens
            self._outputs[row] = at - 1
            row += 1
            for token in share.drafts:
                self._ids[at] = token
                self._positions[at] = self._positions[at - 1] + 1
                self._sequence[at] = hold.row
                self._outputs[row] = at
                at += 1
                row += 1
        # Most passes are as wide as the one before: one token of each conversation.
        if len(self._batch.ids) != at or len(self._batch.outputs) != row:
            self._batch = self._views(at, row)
        return self._batch

    def _views(self, columns: int, outputs: int) -> Batch:
        return Batch(
            ids=self._ids[:columns],
            positions=self._positions[:columns],
            sequence=self._sequence[:columns],
            pages=self._tables,
            outputs=self._outputs[:outputs],
            states=self._states,
            replays=self._replays,
            keeps=None if self._states is None else self._keeps[:columns],
        )
