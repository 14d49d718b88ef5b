"""The reference backend: walks the record with the numpy reference of each operation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from golem_core.graph.graph import Graph
from golem_core.graph.ops import OPS
from golem_core.graph.program import PAGE, Batch, PageGroup, Program, StateGroup, Stopped
from golem_core.graph.record import DRAFTING, READING, Cache, State, Weight

# Of each state, by slot: what it was after the columns behind the one that was kept.
After = list[dict[int, list[np.ndarray]]]


class ReferenceProgram(Program):
    """Float32 throughout; keys and values are rounded to `kv`. Slow, and meant to be read."""

    def __init__(
        self,
        graph: Graph,
        width: int,
        outputs: int,
        pages: Sequence[int],
        states: int,
        guesses: int,
        kv: str,
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
        self._carried = [np.zeros((states, *s.shape), np.float32) for s in graph.states]
        self._after: After = [{} for _ in graph.states]
        self._guesses = guesses
        if graph.states:
            self.states = StateGroup(states, sum(4 * s.size for s in graph.states), guesses)
        self.drafts = graph.draft is not None
        self.chains = any(op.kind == "pass_on" for op in graph.ops)
        self._passed: dict[tuple[int, int], np.ndarray] = {}  # between drafting passes
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
        return self._replay(batch, READING)[self._graph.result.name]

    def draft(self, batch: Batch, again: bool = False) -> np.ndarray:
        """See `Program.draft`."""
        assert self._graph.draft is not None
        if not again:
            self._passed.clear()
        return self._replay(batch, DRAFTING)[self._graph.draft.name]

    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """See `Program.trace`."""
        values = self._replay(batch, READING)
        return values if names is None else {name: values[name] for name in names}

    def put(self, table: np.ndarray, first: int, kept: Sequence[np.ndarray]) -> None:
        """See `Program.put`."""
        for pages, made in zip(self._kept, kept, strict=True):
            at = np.arange(first, first + made.shape[1])
            pages[:, table[at // PAGE], at % PAGE] = made

    def get(self, table: np.ndarray, first: int, end: int) -> list[np.ndarray]:
        """See `Program.get`."""
        at = np.arange(first, end)
        return [pages[:, table[at // PAGE], at % PAGE].astype(np.float32) for pages in self._kept]

    def close(self) -> None:
        """See `Program.close`."""
        self._weights.clear()
        self._kept.clear()
        self._carried.clear()
        self._after.clear()

    def _replay(self, batch: Batch, part: str) -> dict[str, np.ndarray]:
        passed = self._passed if part == DRAFTING else {}
        states = (self._carried, self._after, self._guesses)
        setting = Pages(self._kept, states, batch, part == READING, passed)
        values: dict[str, np.ndarray] = {}
        for stage, op in enumerate(self._graph.part(part)):
            if part == READING and batch.stop is not None and 0 < batch.stop[0] <= stage:
                raise Stopped
            inputs = [values[t.name] for t in op.inputs]
            weights = [self._weight(w) for w in op.weights]
            output = OPS[op.kind].reference(setting, inputs, weights, op.attributes)
            if output is not None:
                values[op.name] = output
        return values

    def _weight(self, weight: Weight) -> np.ndarray:
        if weight.name not in self._weights:
            self._weights[weight.name] = weight.floats()
        return self._weights[weight.name]


class Pages:
    """The `spec.Setting` of one pass over the program's pages and states."""

    def __init__(
        self,
        kept: list[np.ndarray],
        states: tuple[list[np.ndarray], After, int],
        batch: Batch,
        writes: bool,
        passed: dict[tuple[int, int], np.ndarray],
    ) -> None:
        self.ids, self.positions, self.outputs = batch.ids, batch.positions, batch.outputs
        self.sequence = batch.sequence
        self.kinds = np.zeros_like(batch.ids) if batch.kinds is None else batch.kinds
        self._kept, self._batch, self._writes = kept, batch, writes
        self._slots, self._after, self._guesses = states
        self._behind: dict[tuple[int, int], list[list[np.ndarray]]] = {}  # the lists to go on with
        self._now: dict[tuple[int, int], np.ndarray] = dict(passed)  # by state and sequence
        self._passed = passed

    def given(self, key: str) -> np.ndarray:
        """See `spec.Setting.given`."""
        return np.asarray(self._batch.inputs[key], np.float32)

    def keep(self, cache: Cache, row: int, key: np.ndarray, value: np.ndarray) -> None:
        """See `spec.Setting.keep`."""
        position = int(self.positions[row])
        page = self._table(cache, row)[position // PAGE]
        self._kept[cache.index][0, page, position % PAGE] = key
        self._kept[cache.index][1, page, position % PAGE] = value

    def kept(self, cache: Cache, row: int) -> tuple[np.ndarray, np.ndarray]:
        """See `spec.Setting.kept`."""
        position = int(self.positions[row])
        first = 0 if cache.window is None else max(0, position - cache.window + 1)
        seen = np.arange(first, position + 1)
        page = self._table(cache, row)[seen // PAGE]
        pages = self._kept[cache.index]
        keys, values = pages[0, page, seen % PAGE], pages[1, page, seen % PAGE]
        return keys.astype(np.float32), values.astype(np.float32)

    def carried(self, state: State, row: int) -> np.ndarray:
        """See `spec.Setting.carried`."""
        assert self._batch.states is not None
        sequence = int(self._batch.sequence[row])
        if (state.index, sequence) not in self._now:
            slot = int(self._batch.states[sequence])
            replays = 0 if self._batch.replays is None else int(self._batch.replays[sequence])
            if slot < 0:
                now = np.zeros(state.shape, np.float32)
            elif replays:
                now = self._after[state.index][slot][replays - 1]
            else:
                now = self._slots[state.index][slot].copy()
            self._now[state.index, sequence] = now
        return self._now[state.index, sequence]

    def carry(self, state: State, row: int, value: np.ndarray) -> None:
        """See `spec.Setting.carry`."""
        assert self._batch.keeps is not None
        sequence = int(self._batch.sequence[row])
        self._now[state.index, sequence] = value
        if not self._writes:
            return
        behind = self._behind.setdefault((state.index, sequence), [])
        for after in behind:
            if len(after) < self._guesses:
                after.append(value)
        slot = int(self._batch.keeps[row])
        if slot >= 0:
            self._slots[state.index][slot] = value
            after = self._after[state.index][slot] = []
            behind.append(after)

    def pass_on(self, state: State, row: int, value: np.ndarray) -> None:
        """See `spec.Setting.pass_on`."""
        self._passed[state.index, int(self._batch.sequence[row])] = value

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
    states: int,
    guesses: int,
    threads: int | None,
    kv: str,
    keep: Sequence[str] | None,
) -> Program:
    """The backend's entry, see `golem_core.graph.compile`; it keeps every waypoint anyway."""
    return ReferenceProgram(graph, width, outputs, pages, states, guesses, kv)
