"""A lowered graph: one recorded sequence of dispatches, submitted again for every pass.

What differs between passes lies in a few small host buffers, which `run` fills: the counts, token
ids and positions (`state`, laid out as shaders/pass.glsl reads it), each column's pages, and the
cosines and sines of the rotary embeddings. Nothing is recorded, allocated or compiled in a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from golem_core.errors import BadRequest, DeviceError
from golem_core.graph.program import PAGE, Batch, PageGroup, Program
from golem_core.graph.record import Tensor
from golem_core.vulkan.memory import Device

WIDTH = 8  # columns of a pass, as in shaders/pass.glsl
STATE = 2 + 4 * WIDTH  # words: n, m, then ids, positions, since and outputs

# A not-a-number that no shader computes: where it stands after a pass, nothing ran.
UNTOUCHED = np.uint32(0x7FC0DEAD)


@dataclass(frozen=True)
class Table:
    """The page table of a group: for each column its first page's number, then pages."""

    window: int | None
    pages: int  # that exist
    room: int  # entries for a column
    buffer: Any  # uint32 [WIDTH, 1 + room]

    def fill(self, batch: Batch, pages: np.ndarray) -> None:
        """Writes the pages that each column reads or is kept in; raises ValueError for a hole."""
        rows = self.buffer.data().reshape(WIDTH, 1 + self.room)
        for column, position in enumerate(batch.positions.tolist()):
            oldest = 0 if self.window is None else max(0, position + 1 - self.window)
            first, last = oldest // PAGE, position // PAGE
            entries = pages[batch.sequence[column], first : last + 1]
            if len(entries) != last + 1 - first or not _inside(entries, self.pages):
                raise ValueError(
                    f"column {column} at position {position} needs pages {first} to {last} of its "
                    f"sequence, each in [0, {self.pages}); its table has {entries.tolist()}"
                )
            rows[column, 0] = first
            rows[column, 1 : 1 + len(entries)] = entries


@dataclass(frozen=True)
class Turns:
    """The cosines and sines of one rotary embedding."""

    frequencies: np.ndarray  # float64 [pairs], radians a position
    buffer: Any  # float32 [WIDTH, pairs, 2]

    def fill(self, positions: np.ndarray) -> None:
        """Writes those of every column."""
        angles = positions[:, None] * self.frequencies
        rows = self.buffer.data().reshape(WIDTH, len(self.frequencies), 2)
        rows[: len(positions), :, 0] = np.cos(angles)
        rows[: len(positions), :, 1] = np.sin(angles)


@dataclass(frozen=True)
class Recorded:
    """What `lower` made of a graph on `device`; the program owns all of it."""

    device: Device
    sequence: Any
    state: Any
    tables: tuple[Table, ...]
    turns: tuple[Turns, ...]
    waypoints: dict[str, tuple[Tensor, Any]]
    result: tuple[Tensor, Any]
    vocabulary_in: int  # rows of the embedding table
    owned: list[Any]  # whatever else must live as long as the sequence


class VulkanProgram(Program):
    """A graph on one Vulkan device. Kompute holds the interpreter's lock while a pass runs."""

    def __init__(
        self, recorded: Recorded, width: int, outputs: int, groups: tuple[PageGroup, ...]
    ) -> None:
        self.device = "vulkan"
        self.width, self.outputs, self.groups = width, outputs, groups
        self.vocabulary = recorded.result[0].size
        self._recorded: Recorded | None = recorded

    @property
    def device_name(self) -> str:
        """What the driver calls the device."""
        return self._open().device.limits.name

    def run(self, batch: Batch) -> np.ndarray:
        """See `Program.run`. Raises `DeviceError` when the device did not answer.

        A pass has few columns and is one submission, which is finished: `Batch.stop` is not read.
        """
        self._replay(batch)
        tensor, buffer = self._open().result
        return _read(batch, tensor, buffer)

    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """See `Program.trace`: every waypoint has a buffer of its own, so all can be asked for."""
        waypoints = self._open().waypoints
        wanted = list(waypoints) if names is None else names
        for name in wanted:
            if name not in waypoints:
                raise BadRequest(f"no waypoint {name}; see `golem trace` for the names", "names")
        self._replay(batch)
        return {name: _read(batch, *waypoints[name]) for name in wanted}

    def close(self) -> None:
        """See `Program.close`."""
        if self._recorded is not None:
            self._recorded.owned.clear()
            self._recorded.device.close()
            self._recorded = None

    def _open(self) -> Recorded:
        if self._recorded is None:
            raise ValueError("this program is closed")
        return self._recorded

    def _replay(self, batch: Batch) -> None:
        made = self._open()
        n, m = len(batch.ids), len(batch.outputs)
        if not 1 <= n <= self.width or m > self.outputs:
            raise ValueError(
                f"a pass of {n} columns and {m} outputs; this program takes 1 to {self.width} "
                f"columns and up to {self.outputs} outputs"
            )
        if not _inside(batch.ids, made.vocabulary_in) or not _inside(batch.outputs, n):
            raise ValueError(f"token ids lie in [0, {made.vocabulary_in}), outputs in [0, {n})")
        for table, pages in zip(made.tables, batch.pages, strict=True):
            table.fill(batch, pages)
        for turns in made.turns:
            turns.fill(batch.positions)
        state = made.state.data()
        state[:2] = n, m
        rows = state[2:].reshape(4, WIDTH)
        rows[0, :n], rows[1, :n], rows[3, :m] = batch.ids, batch.positions, batch.outputs
        # A sequence's columns stand together: the first of a run has its first position.
        starts = np.r_[True, batch.sequence[1:] != batch.sequence[:-1]]
        rows[2, :n] = batch.positions[starts][np.cumsum(starts) - 1]

        # Kompute drops what Vulkan answers, so a lost device would pass for a silent one.
        logits = made.result[1].data().view(np.uint32)
        logits[0] = UNTOUCHED
        made.sequence.eval()
        if m and logits[0] == UNTOUCHED:
            raise DeviceError(
                f"{made.device.limits.name} computed nothing in a pass: it was lost, or refused a "
                "shader; its driver's log says more"
            )


def _inside(values: np.ndarray, end: int) -> bool:
    return bool(np.all((values >= 0) & (values < end)))


def _read(batch: Batch, tensor: Tensor, buffer: Any) -> np.ndarray:
    """A copy of the rows that the pass wrote, float32 [rows, *shape]."""
    rows = len(batch.ids) if tensor.rows == "n" else len(batch.outputs)
    values: np.ndarray = buffer.data()[: rows * tensor.size].copy()
    return values.reshape(rows, *tensor.shape)
