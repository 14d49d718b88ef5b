"""A program whose logits are a hash of what it reads back from its pages.

It keeps the token ids themselves where a real program keeps keys and values. So a page that is
wrong, freed too early, shared wrongly or written over changes the logits, and the text differs
from `expected`, which hashes the tokens without any pages.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from golem_core.graph.program import PAGE, Batch, PageGroup, Program

VOCABULARY = 128
END = 127  # ends an answer
POISON = 126  # a token whose keys and values are NaN


def logits_of(visible: Iterable[np.ndarray]) -> np.ndarray:
    """Logits float32 [VOCABULARY] for what each group shows of a text: int32 [positions]."""
    parts = [np.ascontiguousarray(ids, dtype=np.int32) for ids in visible]
    if any((ids == POISON).any() for ids in parts):
        return np.full(VOCABULARY, np.nan, dtype=np.float32)
    state = 1
    for ids in parts:
        state = zlib.crc32(ids.tobytes(), state)
    mixed = (np.arange(VOCABULARY, dtype=np.uint64) + 1) * np.uint64(state * 2 + 1)
    mixed = (mixed ^ (mixed >> np.uint64(15))) * np.uint64(0x9E3779B97F4A7C15)
    logits = (mixed >> np.uint64(40)).astype(np.float32) / np.float32(2**22)
    logits[POISON] = -1.0
    return logits


def shown(tokens: Sequence[int], windows: Sequence[int | None]) -> list[np.ndarray]:
    """What each group shows to the last of `tokens`."""
    ids = np.asarray(tokens, dtype=np.int32)
    return [ids if window is None else ids[-window:] for window in windows]


def expected(
    prompt: Sequence[int], windows: Sequence[int | None], most: int, context: int
) -> list[int]:
    """The greedy answer, by a run that has no pages, no passes and no company."""
    tokens = list(prompt)
    while len(tokens) < min(len(prompt) + most, context):
        token = int(logits_of(shown(tokens, windows)).argmax())
        if token == END:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


class HashProgram(Program):
    """Keeps ids in pages and hashes what its page tables show.

    `before` is called with the number of each pass, on the engine's thread.
    """

    device = "fake"
    vocabulary = VOCABULARY

    def __init__(
        self,
        windows: Sequence[int | None] = (None,),
        pages: Sequence[int] = (64,),
        width: int = 64,
        outputs: int = 16,
        before: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.width = width
        self.outputs = outputs
        self.groups = tuple(
            PageGroup(window, 1, 64, count) for window, count in zip(windows, pages, strict=True)
        )
        self.before = before
        self.passes: list[tuple[int, ...]] = []  # the columns of each sequence
        self.closed = False
        self._kept = [np.full((count, PAGE), -1, dtype=np.int32) for count in pages]

    def run(self, batch: Batch) -> np.ndarray:
        n = len(batch.ids)
        self.before(len(self.passes))
        rows = np.flatnonzero(np.diff(batch.sequence, prepend=-1))
        assert len(set(batch.sequence[rows].tolist())) == len(rows), "columns of one stand together"
        self.passes.append(tuple(np.diff([*rows, n]).tolist()))
        assert 0 < n <= self.width
        assert 0 < len(batch.outputs) <= self.outputs
        assert (np.diff(batch.outputs) > 0).all()
        for array in (batch.ids, batch.positions, batch.sequence, batch.outputs, *batch.pages):
            assert array.dtype == np.int32
            assert array.flags.c_contiguous
        for table, kept in zip(batch.pages, self._kept, strict=True):
            pages = table[batch.sequence, batch.positions // PAGE]
            assert (pages >= 0).all()
            assert len(set(zip(pages, batch.positions % PAGE, strict=True))) == n, "a shared write"
            kept[pages, batch.positions % PAGE] = batch.ids
        return np.stack([self._logits(batch, int(column)) for column in batch.outputs])

    def _logits(self, batch: Batch, column: int) -> np.ndarray:
        position = int(batch.positions[column])
        visible = []
        for group, table, kept in zip(self.groups, batch.pages, self._kept, strict=True):
            first = 0 if group.window is None else max(0, position - group.window + 1)
            at = np.arange(first, position + 1)
            pages = table[batch.sequence[column], at // PAGE]
            assert (pages >= 0).all(), "reads a page that was given back"
            visible.append(kept[pages, at % PAGE])
        return logits_of(visible)

    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        return {"logits": self.run(batch)}

    def close(self) -> None:
        assert not self.closed
        self.closed = True
