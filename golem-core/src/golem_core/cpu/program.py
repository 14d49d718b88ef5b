"""A program of the processor: a tape, and the places of the values that may be asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from golem_core.cpu.arena import Arena
from golem_core.cpu.tape import Tape
from golem_core.errors import BadRequest
from golem_core.graph.graph import Graph
from golem_core.graph.program import PAGE, Batch, PageGroup, Program, StateGroup, Stopped
from golem_core.graph.record import PICKED, READING, Tensor, rate


class CpuProgram(Program):
    """A tape, and the places of the values that may be asked for.

    `stages` says what each stage of the tape is: a kind and what it computes.
    """

    def __init__(
        self,
        tape: Tape,
        graph: Graph,
        groups: tuple[PageGroup, ...],
        states: StateGroup | None,
        arena: Arena,
        stages: list[str],
    ) -> None:
        assert graph.result is not None
        self.device = "cpu"
        self.tape = tape
        self.width, self.outputs = tape.width, tape.most_outputs
        self.groups, self.states = groups, states
        self.vocabulary = graph.result.size
        self.stages = tuple(stages)
        self._arena = arena
        self._logits = self._value(graph.result.name, self.outputs)
        self.drafts = graph.draft is not None
        self.chains = any(op.kind == "pass_on" for op in graph.ops)
        self._inputs = {
            op.attributes["key"]: self._input(op.output)
            for op in graph.ops
            if op.kind == "input" and op.output is not None
        }
        if graph.draft is not None:
            self._drafted = self._value(graph.draft.name, self.outputs)

    def run(self, batch: Batch) -> np.ndarray:
        """See `Program.run`."""
        self._pass(batch, False)
        return self._logits[: len(batch.outputs)]

    def draft(self, batch: Batch, again: bool = False) -> np.ndarray:
        """See `Program.draft`."""
        if not self.drafts:
            return super().draft(batch)
        self._pass(batch, True, again)
        return self._drafted[: len(batch.ids)]

    def guess(self, batch: Batch, count: int, reach: int) -> np.ndarray:
        """See `Program.guess`: the head is not read beyond `reach`."""
        if not self.token_share:
            return super().guess(batch, count, reach)
        guesses = np.empty((count, len(batch.ids)), np.int32)
        self.tape.guess(
            batch.ids,
            batch.positions.copy(),
            batch.sequence,
            batch.pages,
            batch.states,
            batch.replays,
            self._drafted,
            guesses,
            reach,
        )
        return guesses

    def _input(self, tensor: Tensor) -> np.ndarray:
        """Where an input is written: [rows, size]."""
        rows = self.outputs if tensor.rows == PICKED else self.width
        found: np.ndarray = self.tape.view(self._arena.places[tensor][1], rows, tensor.size)
        return found

    def _pass(self, batch: Batch, drafting: bool, again: bool = False) -> None:
        for key, room in self._inputs.items():
            given = batch.inputs[key]
            room[: len(given)] = given.reshape(len(given), room.shape[1])
        stopped = self.tape.run(
            batch.ids,
            batch.positions,
            batch.sequence,
            batch.pages,
            batch.outputs[:0] if drafting else batch.outputs,
            batch.states,
            batch.replays,
            None if drafting else batch.keeps,
            drafting,
            batch.kinds,
            again,
            None if drafting else batch.stop,
        )
        if stopped:
            raise Stopped

    def _value(self, name: str, rows: int) -> np.ndarray:
        """The first rows of a value, [rows, size], where it lies."""
        view = self._arena.views[self._arena.shown[name]]
        _, offset, _ = self._arena.places[view.root]
        tensor, root = self._arena.shown[name], view.root
        if rate(tensor.rows) != rate(root.rows):
            rows = rows * rate(root.rows) // rate(tensor.rows)
            whole: np.ndarray = self.tape.view(offset, rows, root.size)
            return whole.reshape(-1, tensor.size)
        whole = self.tape.view(offset, rows, root.size)
        return whole[:, view.offset : view.offset + view.size]

    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """See `Program.trace`; only what `compile` was told to keep is there."""
        kept = [name for name, tensor in self._arena.shown.items() if tensor.part == READING]
        wanted = kept if names is None else list(names)
        for name in wanted:
            if name not in kept:
                raise BadRequest(
                    f"waypoint {name} was not kept when the program was compiled", "names"
                )
        self.run(batch)
        counts = {PICKED: len(batch.outputs)}
        traced = {}
        for name in wanted:
            tensor = self._arena.shown[name]
            rows = counts.get(tensor.rows, len(batch.ids) * rate(tensor.rows))
            traced[name] = self._value(name, rows).copy().reshape(rows, *tensor.shape)
        return traced

    def put(self, table: np.ndarray, first: int, kept: Sequence[np.ndarray]) -> None:
        """See `Program.put`."""
        for cache, made in enumerate(kept):
            keys, values = np.ascontiguousarray(made, np.float32)
            self.tape.put(cache, np.ascontiguousarray(table, np.int32), first, keys, values)

    def get(self, table: np.ndarray, first: int, end: int) -> list[np.ndarray]:
        """See `Program.get`."""
        found = []
        places = range(first // PAGE, -(-end // PAGE))
        for cache in range(self.tape.caches):
            pages = [np.stack(self.tape.page(cache, int(table[place]))) for place in places]
            whole = np.concatenate(pages, axis=1)  # [2, positions, heads, dim]
            found.append(whole[:, first - PAGE * places[0] : end - PAGE * places[0]].copy())
        return found

    def close(self) -> None:
        """See `Program.close`."""
        self._inputs.clear()
        self._logits = self._drafted = np.empty((0, 0), np.float32)
        self.tape.close()
