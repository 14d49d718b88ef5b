"""A program of the processor: a tape of stages that a pool of workers replays.

`lower.py` writes a tape once. A pass hands it the pass's numbers and is one call without the GIL:
the workers walk the stages together, take rows, tiles or heads from a counter of each stage until
it is used up, and meet at a barrier. Nothing is allocated and no Python runs in a pass.

This file takes a pass: it checks what it is given and has it replayed. Where the rest is:

    tape.pxd       the structures: stages, row operations, products, what is kept
    replay.pxi     the workers' way through the stages, and the numbers of a pass
    rows.pxi       operations on single rows
    multiply.pxi   products with matrices; mixture.pxi: with those of experts, convolve.pxi: with
                   windows of rows
    attention.pxi  attention over pages, and within texts
    scan.pxi       what goes on from row to row
    memory.pxi     pages of memory from the kernel; kept.pxi: keys and values from outside a pass
    room.pxi       all memory of a tape, as a class
    writing.pxi    how a tape is written, as a class upon that
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.math cimport cos, exp, ldexp, log1p, sin
from libc.string cimport memcpy, memset

import numpy as np

from golem_core.cpu.dispatch cimport TILE_COLUMNS, columns_at_once, kernels
from golem_core.cpu.kernels.table cimport (
    ATTEND_ROWS, ATTEND_SCRATCH, DELTA_LANES, PAGE, Attend, Columns, Glu, Kernels, Pack, Packed,
    Product, Rope, View, WITHIN,
)
from golem_core.cpu.pool cimport Pool, Shared, arrive, proceed

include "replay.pxi"
include "rows.pxi"
include "multiply.pxi"
include "attention.pxi"
include "mixture.pxi"
include "scan.pxi"
include "convolve.pxi"
include "kept.pxi"
include "memory.pxi"
include "room.pxi"
include "writing.pxi"


cdef int likeliest(const float* logits, Py_ssize_t count) noexcept nogil:
    """The first of the largest."""
    cdef Py_ssize_t i, best = 0
    cdef float peak = logits[0]
    for i in range(1, count):
        if logits[i] > peak:
            peak = logits[i]
            best = i
    return best


cdef class Tape(_Writer):
    """A tape is written by the methods of `_Writer`, up to `finish`; `run` replays it."""

    def run(self, const int[::1] ids, const int[::1] positions, const int[::1] sequence,
            tables, const int[::1] outputs, const int[::1] states, const int[::1] replays,
            const int[::1] keeps, bint drafting, const int[::1] kinds=None, bint again=False,
            const int[::1] stop=None):
        """One pass; the shapes are those of `golem_core.graph.Batch`. Gives whether it was given up.

        again  a drafting pass goes on from the one before, of which every sequence had a column
        """
        cdef int most = self.most_outputs if drafting else self.width
        cdef Pass* p = &self.code.now
        cdef const int[:, ::1] table
        cdef int group, sequences
        p.n = ids.shape[0]
        p.m = outputs.shape[0]
        if self.code.counters == NULL:
            raise ValueError("the tape is not finished, or closed")
        if not 1 <= p.n <= most:
            raise ValueError(f"a pass of {p.n} columns; this program takes 1 to {most}")
        if p.m > self.most_outputs:
            raise ValueError(f"{p.m} rows of logits; this program gives {self.most_outputs}")
        if positions.shape[0] != p.n or sequence.shape[0] != p.n:
            raise ValueError("ids, positions and sequence differ in length")
        if len(tables) != self.groups:
            raise ValueError(f"{len(tables)} page tables for {self.groups} groups")
        p.ids = &ids[0]
        p.positions = &positions[0]
        p.sequence = &sequence[0]
        p.outputs = &outputs[0] if p.m else NULL
        p.kinds = NULL
        if kinds is not None:
            if kinds.shape[0] != p.n:
                raise ValueError(f"{kinds.shape[0]} kinds for {p.n} columns")
            p.kinds = &kinds[0]
        sequences = 0
        for group in range(self.groups):
            table = tables[group]
            sequences = table.shape[0]
            p.tables[group] = &table[0, 0]
            p.table_width[group] = table.shape[1]
            self.check_table(table, positions, sequence, group)
        self.check_columns(sequences)
        p.states = p.replays = p.keeps = NULL
        if self.state_count:
            self.check_states(states, replays, keeps, drafting)
        p.again = again
        p.stop = NULL
        if stop is not None:
            if stop.shape[0] != 1:
                raise ValueError(f"{stop.shape[0]} numbers say when to stop; one does")
            p.stop = <const atomic_int*>&stop[0]
        if drafting and self.passes_on and sequences > self.most_outputs:
            raise ValueError(f"{sequences} sequences; this program drafts for {self.most_outputs}")
        self.code.first = self.code.drafting if drafting else 0
        self.code.end = self.code.stage_count if drafting else self.code.drafting
        with nogil:
            self.replay()
        return bool(self.code.stopped)

    def guess(self, ids, int[::1] positions, sequence, tables, states, replays,
              const float[:, :] logits, int[:, ::1] guesses, Py_ssize_t reach):
        """Drafting passes, each of what the one before found likeliest: a row of `guesses` each.

        positions  those of the first, and are counted up
        logits     where the passes leave them
        reach      rows of the last stage's matrix that are read
        """
        cdef Job* head = self.code.stages[self.code.stage_count - 1].jobs
        cdef Py_ssize_t whole
        if head == NULL or not 1 <= reach <= head.weight.rows:
            raise ValueError(f"the last stage has no {reach} rows")
        whole = head.weight.rows
        head.weight.rows = reach
        try:
            self.chain(ids, positions, sequence, tables, states, replays, logits, guesses)
        finally:
            head.weight.rows = whole

    cdef int chain(self, ids, int[::1] positions, sequence, tables, states, replays,
                   const float[:, :] logits, int[:, ::1] guesses) except -1:
        cdef Py_ssize_t step, row
        cdef Job* head = self.code.stages[self.code.stage_count - 1].jobs
        nothing = np.empty(0, np.int32)
        for step in range(guesses.shape[0]):
            if step:
                for row in range(positions.shape[0]):
                    positions[row] += 1
                ids = guesses[step - 1]
            self.run(ids, positions, sequence, tables, nothing, states, replays, None, True, None,
                     step > 0)
            for row in range(positions.shape[0]):
                guesses[step, row] = likeliest(&logits[row, 0], head.weight.rows)
        return 0

    cdef int check_columns(self, int sequences) except -1:
        """Ids, sequences and outputs in range; makes the runs."""
        cdef Pass* p = &self.code.now
        cdef int i, column
        # Long runs read a page for many rows; short ones are more pieces to share out.
        cdef int most = max(8, min(<int>ATTEND_ROWS, p.n // (2 * self.workers)))
        cdef Run* run = NULL
        cdef Run* span = NULL
        p.runs = p.spans = 0
        for i in range(p.n):
            if not 0 <= p.ids[i] < self.vocabulary_rows:
                raise ValueError(f"token id {p.ids[i]} is outside 0..{self.vocabulary_rows - 1}")
            if p.kinds != NULL and not 0 <= p.kinds[i] < self.kind_rows:
                raise ValueError(f"kind {p.kinds[i]} is outside 0..{self.kind_rows - 1}")
            if not 0 <= p.positions[i] < self.position_rows:
                raise ValueError(
                    f"position {p.positions[i]} is outside 0..{self.position_rows - 1}")
            if self.groups and not 0 <= p.sequence[i] < sequences:
                raise ValueError(f"sequence {p.sequence[i]} of {sequences}")
            if (run == NULL or run.rows == most or run.sequence != p.sequence[i]
                    or p.positions[i] != p.positions[i - 1] + 1):
                run = &self.code.runs[p.runs]
                p.runs += 1
                run.first = i
                run.rows = 0
                run.sequence = p.sequence[i]
            run.rows += 1
            if (span == NULL or span.sequence != p.sequence[i]
                    or p.positions[i] != p.positions[i - 1] + 1):
                span = &self.code.spans[p.spans]
                p.spans += 1
                span.first = i
                span.rows = 0
                span.sequence = p.sequence[i]
            span.rows += 1
        run = NULL
        p.picked_runs = 0
        for i in range(p.m):
            column = p.outputs[i]
            if not 0 <= column < p.n:
                raise ValueError(f"output row {column} of {p.n} columns")
            p.picked_positions[i] = p.positions[column]
            if (run == NULL or run.rows == most or run.sequence != p.sequence[column]
                    or p.picked_positions[i] != p.picked_positions[i - 1] + 1):
                run = &self.code.picked[p.picked_runs]
                p.picked_runs += 1
                run.first = i
                run.rows = 0
                run.sequence = p.sequence[column]
            run.rows += 1
        return 0

    cdef int check_states(self, const int[::1] states, const int[::1] replays,
                          const int[::1] keeps, bint drafting) except -1:
        """Slots exist; a sequence's columns stand together."""
        cdef Pass* p = &self.code.now
        cdef int i, j
        if states is None or (keeps is None and not drafting):
            raise ValueError("a program with states needs to know the slots of a pass")
        for i in range(p.spans):
            for j in range(i):
                if self.code.spans[j].sequence == self.code.spans[i].sequence:
                    raise ValueError(f"sequence {self.code.spans[i].sequence} stands in two places")
            if self.code.spans[i].sequence >= states.shape[0]:
                raise ValueError(f"sequence {self.code.spans[i].sequence} has no slot")
        for i in range(states.shape[0]):
            if not -1 <= states[i] < self.slots:
                raise ValueError(f"slot {states[i]} of {self.slots}")
        p.states = &states[0]
        if replays is not None:
            if replays.shape[0] != states.shape[0]:
                raise ValueError(f"{replays.shape[0]} replays for {states.shape[0]} sequences")
            for i in range(states.shape[0]):
                if not 0 <= replays[i] <= (self.guesses if states[i] >= 0 else 0):
                    raise ValueError(f"{replays[i]} columns after slot {states[i]} to go on from; "
                                     f"this program remembers {self.guesses}")
            p.replays = &replays[0]
        if keeps is not None:
            if keeps.shape[0] != p.n:
                raise ValueError(f"{keeps.shape[0]} slots for {p.n} columns")
            for i in range(p.n):
                if not -1 <= keeps[i] < self.slots:
                    raise ValueError(f"slot {keeps[i]} of {self.slots}")
            p.keeps = &keeps[0]
        return 0

    cdef int check_table(self, const int[:, ::1] table, const int[::1] positions,
                         const int[::1] sequence, int group) except -1:
        """Every page that a column may read or write exists."""
        cdef int i, page, first, pages = self.group_pages[group]
        cdef Py_ssize_t window = 0
        cdef int c
        for c in range(self.cache_count):
            if self.caches[c].group == group:
                window = self.caches[c].window
        for i in range(positions.shape[0]):
            if positions[i] < 0 or positions[i] // PAGE >= table.shape[1]:
                raise ValueError(f"position {positions[i]} has no entry in the page table")
            if not 0 <= sequence[i] < table.shape[0]:
                raise ValueError(f"sequence {sequence[i]} of {table.shape[0]}")
            # Within a prompt's chunk a row differs from the one before it by its newest page only.
            first = 0 if window == 0 else max(0, positions[i] - window + 1) // PAGE
            if i > 0 and sequence[i] == sequence[i - 1] and positions[i] == positions[i - 1] + 1:
                first = positions[i] // PAGE
            for page in range(first, positions[i] // PAGE + 1):
                if not 0 <= table[sequence[i], page] < pages:
                    raise ValueError(
                        f"page {table[sequence[i], page]} of {pages} at position {page * PAGE}")
        return 0

    cdef void replay(self) noexcept nogil:
        cdef int s
        self.code.stopped = False
        for s in range(self.code.first, self.code.end):
            atomic_store_explicit(&self.code.counters[s], 0, memory_order_relaxed)
        self.pool.run(walk, &self.code)

    def time_stages(self):
        """From now on, notes when workers begin and end the stages of a pass.

        Gives the array of the notes, float64 [stages, workers, 2], seconds of the monotonic clock;
        0 where a worker had no part in a stage. Every pass overwrites it.
        """
        cdef double[:, :, ::1] times = np.zeros((self.code.stage_count, self.workers, 2))
        self.code.times = &times[0, 0, 0]
        self.alive.append(times)
        return np.asarray(times)


def delta_floats(Py_ssize_t keys):
    """Floats by which DELTA_LANES values of a column are remembered for a delta net."""
    return keys + DELTA_ROW


def within_floats(Py_ssize_t length, Py_ssize_t dim):
    """Floats of scratch that an attention within a text of so many rows needs."""
    cdef Py_ssize_t positions = (length + 15) // 16 * 16, wide = (dim + 15) // 16 * 16
    return 16 + (2 * wide + WITHIN) * positions + 2 * WITHIN * wide
