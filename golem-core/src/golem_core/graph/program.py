"""What a compiled graph is to its caller: a width, groups of pages, and `run`.

Every backend's program is a `Program`. A pass is described by a `Batch`: which tokens stand at
which positions of which sequences, and where each sequence's pages lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PAGE = 32  # positions in a page


@dataclass(frozen=True)
class PageGroup:
    """Layers that keep the same positions, and so share page tables."""

    window: int | None  # None: every position is kept
    layers: int
    bytes_per_page: int  # over all its layers
    pages: int  # that the program has room for


@dataclass
class Batch:
    """One pass: n columns of s sequences.

    The columns of one sequence stand together, with ascending, successive positions. Position p
    lies in page ``pages[group][sequence, p // 32]``; entries that no column reads may be -1.
    """

    ids: np.ndarray  # int32 [n]
    positions: np.ndarray  # int32 [n]
    sequence: np.ndarray  # int32 [n], a row of the page tables
    pages: tuple[np.ndarray, ...]  # for each group int32 [s, pages of the longest sequence]
    outputs: np.ndarray  # int32 [m], ascending: the columns whose logits are wanted


class Program(ABC):
    """A graph compiled for one backend; owned by one thread at a time."""

    device: str
    width: int  # most columns of a pass
    outputs: int  # most rows of logits of a pass
    groups: tuple[PageGroup, ...]
    vocabulary: int

    @abstractmethod
    def run(self, batch: Batch) -> np.ndarray:
        """Replays the program: logits float32 [m, vocabulary], valid until the next `run`."""

    @abstractmethod
    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """As `run`, and gives the named waypoints (all: None), each float32 [rows, *shape]."""

    @abstractmethod
    def close(self) -> None:
        """Gives the memory back; the program cannot be run afterwards."""
