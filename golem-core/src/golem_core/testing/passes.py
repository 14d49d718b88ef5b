"""Runs a model pass by pass as a test chooses: who is in a pass, in what pieces and pages.

An engine makes these choices itself; here they are the test's, to show that they change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType

import numpy as np
import numpy.typing as npt

from golem_core.graph import PAGE, Batch, Graph, compile
from golem_core.model import Generator
from golem_core.weights import Weights

Logits = npt.NDArray[np.float32]


class Passes:
    """A compiled model with room for `sequences` texts of `length` tokens; a context manager.

    Pages are dealt out of order, so that a program which took their numbers for positions would be
    found out.
    """

    def __init__(
        self,
        model: Generator,
        weights: Weights,
        device: str,
        *,
        length: int = 96,
        sequences: int = 1,
        threads: int | None = None,
        kv: str = "f16",
        keep: Sequence[str] | None = (),
    ) -> None:
        graph = Graph(weights)
        graph.result = model.forward(graph)
        each = -(-length // PAGE)
        width = length * sequences
        self._program = compile(
            graph,
            device,
            width=width,
            outputs=width,
            pages=[each * sequences] * len(graph.windows),
            states=sequences,
            threads=threads,
            kv=kv,
            keep=keep,
        )
        dealt = np.random.default_rng(5).permutation(each * sequences).astype(np.int32)
        self._tables = (dealt.reshape(sequences, each),) * len(graph.windows)
        self._read = [0] * sequences

    def run(self, *pieces: tuple[int, Sequence[int]], every: bool = True) -> list[Logits]:
        """One text's next ids beside others', (sequence, ids); the logits of every id of each.

        Without `every` only those of each last id are asked for. One pass, or as many as a program
        of a smaller width needs.
        """
        batch = self._batch(pieces)
        if not every:
            batch.outputs = np.cumsum([len(ids) for _, ids in pieces]).astype(np.int32) - 1
        logits = np.concatenate([np.array(self._program.run(part)) for part in self._passes(batch)])
        ends = np.cumsum([len(ids) if every else 1 for _, ids in pieces])
        return np.split(logits, ends[:-1])

    def rewind(self, sequence: int, length: int) -> None:
        """Forgets what a sequence has read after its first `length` tokens."""
        if self._program.states is not None and length:
            raise ValueError("a state holds all that was read, and no part of it")
        self._read[sequence] = length

    def trace(self, ids: Sequence[int]) -> dict[str, npt.NDArray[np.float32]]:
        """Every waypoint of the first sequence, float32 [rows, ...]."""
        parts = [
            {name: np.array(values) for name, values in self._program.trace(part, None).items()}
            for part in self._passes(self._batch([(0, ids)]))
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _passes(self, batch: Batch) -> Iterator[Batch]:
        """A batch, cut to what the program takes at a time."""
        most = min(self._program.width, self._program.outputs)
        for at in range(0, len(batch.ids), most):
            part = slice(at, at + most)
            ids = batch.ids[part]
            wanted = batch.outputs[(batch.outputs >= at) & (batch.outputs < at + most)]
            outputs = (wanted - at).astype(np.int32)
            rows = batch.positions[part], batch.sequence[part]
            one = Batch(ids, *rows, pages=batch.pages, outputs=outputs)
            if self._program.states is not None:
                self._carry(one)
            yield one

    def _carry(self, batch: Batch) -> None:
        """Every sequence has a slot of its own, which its first pass finds empty."""
        sequences = len(self._read)
        batch.states = np.full(sequences, -1, np.int32)
        batch.keeps = np.full(len(batch.ids), -1, np.int32)
        for sequence in range(sequences):
            columns = np.flatnonzero(batch.sequence == sequence)
            if len(columns):
                slot = sequences - 1 - sequence
                batch.states[sequence] = slot if batch.positions[columns[0]] else -1
                batch.keeps[columns[-1]] = slot

    def _batch(self, pieces: Sequence[tuple[int, Sequence[int]]]) -> Batch:
        rows: list[int] = []
        positions: list[int] = []
        ids: list[int] = []
        for sequence, piece in pieces:
            start = self._read[sequence]
            rows += [sequence] * len(piece)
            positions += range(start, start + len(piece))
            ids += piece
            self._read[sequence] += len(piece)
        return Batch(
            ids=np.array(ids, np.int32),
            positions=np.array(positions, np.int32),
            sequence=np.array(rows, np.int32),
            pages=self._tables,
            outputs=np.arange(len(ids), dtype=np.int32),
        )

    def __enter__(self) -> Passes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._program.close()
