"""What an engine has done and is doing, as numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GroupStats:
    """The pages of one group."""

    window: int | None
    pages: int
    free: int
    idle: int  # kept for who may come with the same beginning, given up when room is needed


@dataclass(frozen=True)
class StateStats:
    """The slots of recurrent state."""

    slots: int
    free: int
    idle: int  # snapshots for who may come back to them, given up when slots are needed


@dataclass(frozen=True)
class Stats:
    """What an engine has done and is doing."""

    running: int
    waiting: int  # not begun, or set aside
    passes: int
    read_tokens: int  # columns of all passes that were prompt
    cached_tokens: int  # that did not need to be read
    generated_tokens: int
    set_aside: int  # times that a sequence was, for want of pages
    drafted_tokens: int
    accepted_tokens: int  # of these, what was drawn as well
    pass_seconds: float  # spent inside the program
    draft_seconds: float  # spent on guesses before the passes
    groups: tuple[GroupStats, ...]
    states: StateStats | None  # None: nothing is recurrent

    @property
    def acceptance(self) -> float | None:
        """The share of the drafted tokens that were drawn; None where none was drafted."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else None
