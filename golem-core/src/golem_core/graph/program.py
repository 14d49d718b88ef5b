"""What a compiled graph is to its caller: a width, groups of pages, and `run`.

Every backend's program is a `Program`. A pass is described by a `Batch`: which tokens stand at
which positions of which sequences, and where each sequence's pages lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

PAGE = 32  # positions in a page


@dataclass(frozen=True)
class PageGroup:
    """Layers that keep the same positions, and so share page tables."""

    window: int | None  # None: every position is kept
    layers: int
    bytes_per_page: int  # over all its layers
    pages: int  # that the program has room for


@dataclass(frozen=True)
class StateGroup:
    """Room for what sequences carry: a slot has every state of the program, once."""

    slots: int
    bytes_per_slot: int
    guesses: int = 0  # columns after a kept state that a sequence may go on from, too


class Stopped(Exception):
    """A pass was given up because its batch said so.

    What it would have written, pages at its positions and the slots that it keeps states in, holds
    nothing of use.
    """


@dataclass
class Batch:
    """One pass: n columns of s sequences.

    The columns of one sequence stand together, with ascending, successive positions. Position p
    lies in page ``pages[group][sequence, p // 32]``; entries that no column reads may be -1.

    In a program with states a sequence goes on from the state in slot ``states[sequence]``, or
    from zeros where that is -1, and what it has after column i is written to slot ``keeps[i]``
    unless that is -1. The slot that is read may be the one that is written.

    Another thread may write `stop` while the pass goes on. Where it is s and not 0, a program that
    can gives the pass up before its stage s, or before the next one where that has begun, and
    raises `Stopped`. Each can but Vulkan's, which has short passes and finishes them.

    Columns that are guesses need no slots: the first `StateGroup.guesses` columns after one whose
    state is kept are remembered with its slot, and the sequence may go on from that slot and from
    ``replays[sequence]`` of them.
    """

    ids: np.ndarray  # int32 [n]
    positions: np.ndarray  # int32 [n]
    sequence: np.ndarray  # int32 [n], a row of the page tables
    pages: tuple[np.ndarray, ...]  # for each group int32 [s, pages of the longest sequence]
    outputs: np.ndarray  # int32 [m], ascending: the columns whose logits are wanted
    states: np.ndarray | None = None  # int32 [s]
    keeps: np.ndarray | None = None  # int32 [n]
    kinds: np.ndarray | None = None  # int32 [n], for tables that are looked up by them; None: 0
    replays: np.ndarray | None = None  # int32 [s]; None: 0
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)  # float32 [n or m, *shape]
    stop: np.ndarray | None = None  # int32 [1]


class Program(ABC):
    """A graph compiled for one backend; owned by one thread at a time."""

    device: str
    width: int  # most columns of a pass
    outputs: int  # most rows of logits of a pass
    groups: tuple[PageGroup, ...]
    states: StateGroup | None = None  # None: no sequence carries anything
    drafts: bool = False  # whether there is a drafting pass
    chains: bool = False  # whether it can go on from itself
    # What a drafting pass reads for each token that it considers, of what a reading pass reads;
    # 0 where it considers all of them anyway.
    token_share: float = 0.0
    vocabulary: int

    @abstractmethod
    def run(self, batch: Batch) -> np.ndarray:
        """Replays the program: logits float32 [m, vocabulary], valid until the next `run`.

        Raises `Stopped`, see `Batch`.
        """

    def draft(self, batch: Batch, again: bool = False) -> np.ndarray:
        """The drafting pass: logits float32 [n, vocabulary], valid until the next pass.

        One column a sequence, its newest token, which no `run` has read yet; n is `outputs` at
        most. The logits are of the token after it. `keeps` and `outputs` are not read, states not
        changed. With `again` a column is what was guessed of its sequence by the drafting pass
        before, one position further, and goes on from that.
        """
        raise NotImplementedError(f"{self.device} has no drafting pass")

    def guess(self, batch: Batch, count: int, reach: int) -> np.ndarray:
        """The likeliest of the first `reach` tokens after each column, and so on, `count` times.

        Gives int32 [count, n]. As `draft`, again and again; `count` may be more than one if
        `chains`. The pages of the positions that are guessed from must be there.
        """
        guesses = np.empty((count, len(batch.ids)), np.int32)
        for step in range(count):
            guesses[step] = self.draft(batch, step > 0)[:, :reach].argmax(axis=1)
            if step + 1 < count:
                batch = replace(batch, ids=guesses[step], positions=batch.positions + 1)
        return guesses

    @abstractmethod
    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """As `run`, and gives the named waypoints (all: None), each float32 [rows, *shape]."""

    def put(self, table: np.ndarray, first: int, kept: Sequence[np.ndarray]) -> None:
        """Writes keys and values that another pass, or another program, has made.

        kept is for each cache float32 [2, positions, heads, dim], keys then values; they stand at
        positions from `first` on, in the pages of `table` int32 [pages of the sequence].
        """
        raise NotImplementedError(f"{self.device} takes no keys and values")

    def get(self, table: np.ndarray, first: int, end: int) -> list[np.ndarray]:
        """The keys and values of positions first to end, as `put` takes them."""
        raise NotImplementedError(f"{self.device} gives no keys and values")

    @abstractmethod
    def close(self) -> None:
        """Gives the memory back; the program cannot be run afterwards."""
