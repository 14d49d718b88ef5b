"""What a row of the table of operations is, and what a reference may know of its pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Shape = tuple[int, ...]


class Setting(Protocol):
    """What a row knows of its pass."""

    ids: np.ndarray  # int32 [n]
    positions: np.ndarray  # int32 [n]
    outputs: np.ndarray  # int32 [m]
    sequence: np.ndarray  # int32 [n]
    kinds: np.ndarray  # int32 [n]

    def given(self, key: str) -> np.ndarray:
        """What the caller of the pass gives under a name."""

    def keep(self, cache: Any, row: int, key: np.ndarray, value: np.ndarray) -> None:
        """Keeps one position's keys and values [heads, dim] in the row's sequence."""

    def kept(self, cache: Any, row: int) -> tuple[np.ndarray, np.ndarray]:
        """The keys and values [positions, heads, dim] that the row sees, oldest first."""

    def carried(self, state: Any, row: int) -> np.ndarray:
        """The state that the row's sequence has, after its last `carry` in this pass."""

    def carry(self, state: Any, row: int, value: np.ndarray) -> None:
        """What the row's sequence has from now on; kept where the pass asks for it."""

    def pass_on(self, state: Any, row: int, value: np.ndarray) -> None:
        """What the row's sequence has in the drafting pass that goes on from this one."""


@dataclass(frozen=True)
class OpSpec:
    """A row of the table."""

    shape: Callable[[str, list[Shape], list[Shape], Mapping[str, Any]], Shape | None]
    reference: Callable[
        [Setting, Sequence[np.ndarray], Sequence[np.ndarray], Mapping[str, Any]], np.ndarray | None
    ]


def need(true: bool, name: str, what: str) -> None:
    """Raises `ValueError` for the operation `name` unless `true`."""
    if not true:
        raise ValueError(f"{name}: {what}")
