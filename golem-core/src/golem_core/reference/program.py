"""The reference backend: walks the record with the numpy reference of each operation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from golem_core.graph.graph import Cache, Graph
from golem_core.graph.ops import OPS
from golem_core.graph.program import PAGE, Batch, PageGroup, Program


class ReferenceProgram(Program):
    """Float32 throughout; keys and values are rounded to `kv`. Slow, and meant to be read."""

    def __init__(
        self, graph: Graph, width: int, outputs: int, pages: Sequence[int], kv: str
    ) -> None:
        assert graph.result is not None
        self.device = "reference"
        self.width, self.outputs = width, outputs
        self.vocabulary = graph.result.size
        self._graph = graph
        kind = np.dtype({"f16": np.float16, "f32": np.float32}[kv])
        self._kept = [
            np.zeros((2, pages[c.group], PAGE, c.heads, c.dim), kind) for c in graph.caches
        ]
        self._weights: dict[str, np.ndarray] = {}
        self.groups = tuple(
            PageGroup(
                window,
                sum(c.group == group for c in graph.caches),
                sum(
                    2 * PAGE * c.heads * c.dim * kind.itemsize
                    for c in graph.caches
                    if c.group == group
                ),
                pages[group],
            )
            for group, window in enumerate(graph.windows)
        )

    def run(self, batch: Batch) -> np.ndarray:
        """See `Program.run`."""
        assert self._graph.result is not None
        return self._replay(batch)[self._graph.result.name]

    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """See `Program.trace`."""
        values = self._replay(batch)
        return values if names is None else {name: values[name] for name in names}

    def close(self) -> None:
        """See `Program.close`."""
        self._weights.clear()
        self._kept.clear()

    def _replay(self, batch: Batch) -> dict[str, np.ndarray]:
        setting = Pages(self._kept, batch)
        values: dict[str, np.ndarray] = {}
        for op in self._graph.ops:
            inputs = [values[t.name] for t in op.inputs]
            weights = [self._weight(w.name) for w in op.weights]
            output = OPS[op.kind].reference(setting, inputs, weights, op.attributes)
            if output is not None:
                values[op.name] = output
        return values

    def _weight(self, name: str) -> np.ndarray:
        if name not in self._weights:
            self._weights[name] = self._graph.weights.tensors[name].dequantize()
        return self._weights[name]


class Pages:
    """The `ops.Setting` of one pass over the program's pages."""

    def __init__(self, kept: list[np.ndarray], batch: Batch) -> None:
        self.ids, self.positions, self.outputs = batch.ids, batch.positions, batch.outputs
        self._kept, self._batch = kept, batch

    def keep(self, cache: Cache, row: int, key: np.ndarray, value: np.ndarray) -> None:
        """See `ops.Setting.keep`."""
        position = int(self.positions[row])
        page = self._table(cache, row)[position // PAGE]
        self._kept[cache.index][0, page, position % PAGE] = key
        self._kept[cache.index][1, page, position % PAGE] = value

    def kept(self, cache: Cache, row: int) -> tuple[np.ndarray, np.ndarray]:
        """See `ops.Setting.kept`."""
        position = int(self.positions[row])
        first = 0 if cache.window is None else max(0, position - cache.window + 1)
        seen = np.arange(first, position + 1)
        page = self._table(cache, row)[seen // PAGE]
        pages = self._kept[cache.index]
        keys, values = pages[0, page, seen % PAGE], pages[1, page, seen % PAGE]
        return keys.astype(np.float32), values.astype(np.float32)

    def _table(self, cache: Cache, row: int) -> np.ndarray:
        table: np.ndarray = self._batch.pages[cache.group][self._batch.sequence[row]]
        return table


def lower(
    graph: Graph,
    *,
    device: str,
    width: int,
    outputs: int,
    pages: Sequence[int],
    threads: int | None,
    kv: str,
    keep: Sequence[str] | None,
) -> Program:
    """The backend's entry, see `golem_core.graph.compile`; it keeps every waypoint anyway."""
    return ReferenceProgram(graph, width, outputs, pages, kv)
