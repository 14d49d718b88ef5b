"""Runs a file on golem pass by pass, for the tests that compare logits.

An engine chooses its own passes; here the caller does: which pieces of which sequences stand in a
pass, and in which pages their positions lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from golem_core import plugins
from golem_core.graph import PAGE, Graph, compile
from golem_core.graph.program import Batch
from golem_core.model import Generator, Options
from golem_core.weights import Weights, open_weights
from ref.quantise import Floats


def open_model(path: Path) -> tuple[Weights, Generator]:
    """The weights of a file and the model that their architecture's plugin makes of them."""
    weights = open_weights(path)
    kind = plugins.find(weights.architecture)
    model = kind.open(weights, Options())
    assert isinstance(model, Generator)
    return weights, model


@dataclass(frozen=True)
class Piece:
    """Successive tokens of one sequence in a pass: `ids` stand at positions from `start` on."""

    sequence: int
    start: int
    ids: Sequence[int]


class Replay:
    """A compiled file with room for `sequences` texts of `length` tokens; a context manager.

    Sequence s keeps position p in page ``table[s, p // 32]`` of every group; `tables` may be
    changed by the caller, to share pages or to put them elsewhere. What a sequence carries besides
    lies in slot ``slots[s]``, from its last piece to its next. Logits are given of the last `count`
    positions of each piece, of all where that is None.
    """

    def __init__(
        self,
        path: Path,
        *,
        length: int,
        sequences: int = 1,
        device: str = "cpu",
        width: int = 512,
        threads: int | None = None,
        kv: str = "f16",
        count: int | None = None,
    ) -> None:
        self.weights, model = open_model(path)
        graph = Graph(self.weights)
        graph.result = model.forward(graph)
        per_sequence = -(-length // PAGE)
        pages = sequences * per_sequence
        self._program = compile(
            graph,
            device,
            width=width,
            outputs=width if count is None else min(width, sequences * count),
            pages=[pages] * len(graph.windows),
            states=sequences,
            threads=threads,
            kv=kv,
        )
        self.tables = np.arange(pages, dtype=np.int32).reshape(sequences, per_sequence)
        self.slots = np.arange(sequences, dtype=np.int32)
        self._groups = len(graph.windows)
        self._count = count

    def __enter__(self) -> Replay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._program.close()
        self.weights.close()

    def run(self, pieces: Sequence[Piece]) -> list[Floats]:
        """One pass; for each piece its logits [positions, vocabulary]."""
        sizes = [len(piece.ids) for piece in pieces]
        kept = [size if self._count is None else min(size, self._count) for size in sizes]
        ends = np.cumsum(sizes)
        rows = [np.arange(end - keep, end) for end, keep in zip(ends, kept, strict=True)]
        batch = self._batch(pieces, np.concatenate(rows))
        logits = self._program.run(batch).copy()
        return np.split(logits, np.cumsum(kept)[:-1])

    def draft(self, pieces: Sequence[Piece]) -> Floats:
        """One drafting pass, each piece a single new token: logits [pieces, vocabulary]."""
        guesses: Floats = self._program.draft(self._batch(pieces, np.arange(len(pieces)))).copy()
        return guesses

    def _batch(self, pieces: Sequence[Piece], outputs: np.ndarray) -> Batch:
        sizes = [len(piece.ids) for piece in pieces]
        positions = [np.arange(piece.start, piece.start + len(piece.ids)) for piece in pieces]
        batch = Batch(
            ids=np.concatenate([piece.ids for piece in pieces]).astype(np.int32),
            positions=np.concatenate(positions).astype(np.int32),
            sequence=np.repeat([piece.sequence for piece in pieces], sizes).astype(np.int32),
            pages=(self.tables,) * self._groups,
            outputs=outputs.astype(np.int32),
        )
        if self._program.states is not None:
            batch.states = np.full(len(self.tables), -1, np.int32)
            batch.keeps = np.full(len(batch.ids), -1, np.int32)
            for piece, end in zip(pieces, np.cumsum(sizes), strict=True):
                slot = self.slots[piece.sequence]
                batch.states[piece.sequence] = slot if piece.start else -1
                batch.keeps[end - 1] = slot
        return batch

    def read(self, ids: Sequence[int], *, piece: int = 512, sequence: int = 0) -> Floats:
        """One sequence alone, `piece` tokens a pass: logits [positions, vocabulary]."""
        passes = [
            self.run([Piece(sequence, start, ids[start : start + piece])])[0]
            for start in range(0, len(ids), piece)
        ]
        return np.concatenate(passes)
