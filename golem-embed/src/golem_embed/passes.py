"""Texts packed into passes: whose columns stand beside each other, each seeing its own text alone.

Nothing is padded. Who asks while a pass is under way is served by the next one together with all
others who wait, whichever thread makes it; no vector depends on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np

from golem_core.graph import Batch, Program

# Columns that a pass takes at most where texts are many: what they hold stays in the second cache,
# and more of them gain nothing.
COLUMNS = 512


class Job:
    """A text on its way: its ids, which text of a pair each is of, and what came of it."""

    __slots__ = ("done", "error", "ids", "kinds", "result")

    def __init__(self, ids: Sequence[int], kinds: Sequence[int] | None = None) -> None:
        self.ids = np.asarray(ids, np.int32)
        self.kinds = None if kinds is None else np.asarray(kinds, np.int32)
        self.done = False
        self.error: BaseException | None = None
        self.result = np.empty(0, np.float32)


class Passes:
    """A program, and the jobs that wait for it.

    picks: which columns of a text of n the program gives rows of: all, its first or its last.
    """

    def __init__(self, program: Program, picks: str, columns: int = COLUMNS) -> None:
        self.program = program
        self._picks = picks
        self._columns = min(columns, program.width)
        self._waiting: deque[Job] = deque()
        self._queue = Lock()
        self._lock = Lock()

    def run(self, jobs: Sequence[Job], progress: Callable[[int], None] | None = None) -> None:
        """Returns when all are done; raises what the first pass that failed raised."""
        with self._queue:
            self._waiting.extend(jobs)
        left = 0
        while left < len(jobs):
            with self._lock:
                if not jobs[left].done:
                    self._pass()
            before = left
            while left < len(jobs) and jobs[left].done:
                left += 1
            if progress is not None and left > before:
                progress(left)
        for job in jobs:
            if job.error is not None:
                raise job.error

    def _pass(self) -> None:
        """One pass of whoever has waited longest, by text."""
        taken: list[Job] = []
        columns = rows = 0
        with self._queue:
            while self._waiting:
                n = len(self._waiting[0].ids)
                row = n if self._picks == "all" else 1
                if taken and (columns + n > self._columns or rows + row > self.program.outputs):
                    break
                taken.append(self._waiting.popleft())
                columns, rows = columns + n, rows + row
        try:
            self._serve(taken)
        except BaseException as error:
            for job in taken:
                job.error = error
        finally:
            for job in taken:
                job.done = True

    def _serve(self, jobs: list[Job]) -> None:
        counts = [len(job.ids) for job in jobs]
        ends = np.cumsum(counts, dtype=np.int32)
        total = int(ends[-1])
        positions = np.arange(total, dtype=np.int32)
        starts = ends - np.asarray(counts, np.int32)
        positions -= np.repeat(starts, counts)
        kinds = None
        if jobs[0].kinds is not None:
            kinds = np.concatenate([job.kinds for job in jobs if job.kinds is not None])
        if self._picks == "all":
            outputs = np.arange(total, dtype=np.int32)
        else:
            outputs = np.ascontiguousarray(ends - 1 if self._picks == "last" else starts)
        rows = self.program.run(
            Batch(
                ids=np.concatenate([job.ids for job in jobs]),
                positions=positions,
                sequence=np.repeat(np.arange(len(jobs), dtype=np.int32), counts),
                pages=(),
                outputs=outputs,
                kinds=kinds,
            )
        ).copy()
        for i, job in enumerate(jobs):
            whole = self._picks == "all"
            job.result = rows[starts[i] : ends[i]] if whole else rows[i]

    def close(self) -> None:
        """Gives the program's memory back."""
        with self._lock:
            self.program.close()
