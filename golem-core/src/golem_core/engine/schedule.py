"""Who is in the next pass, and with how many of its tokens.

A pass has room for `width` columns. Conversations that wait for their next token go first, with
one column each; prompts share what is left, evenly, so neither a long prompt nor many of them
hold up an answer that has begun. When the pages run out the youngest sequence is set aside: its
pages are given back, its tokens are kept, and it is read again when there is room.
"""

from __future__ import annotations

from collections import deque

from golem_core.engine.sequence import Sequence
from golem_core.graph.program import PAGE
from golem_core.memory import Memory

Share = tuple[Sequence, int]  # of a pass: a sequence and how many of its tokens


class Pace:
    """How many prompt tokens a pass may have, so that it ends soon.

    A token of another conversation, and a cancellation, wait for the end of the pass. Wide passes
    read faster, and little is gained beyond what a machine reads in half a second.
    """

    LONGEST = 0.5  # seconds, what a pass should take at most
    FIRST = 128  # tokens, before anything was measured
    LEAST = 32  # tokens: narrower passes are not much shorter, and read much slower

    def __init__(self) -> None:
        self._rate = self.FIRST / self.LONGEST  # tokens a second

    @property
    def tokens(self) -> int:
        """Tokens that a pass may read, a multiple of `LEAST`."""
        return max(self.LEAST, int(self._rate * self.LONGEST) // self.LEAST * self.LEAST)

    def observe(self, tokens: int, seconds: float) -> None:
        """A pass of so many tokens took so long."""
        if tokens >= self.LEAST:
            self._rate += 0.5 * (tokens / max(seconds, 1e-9) - self._rate)


class Scheduler:
    """Which sequences run and which wait, both in the order of their arrival.

    Waiting sequences are younger than all that run: the youngest is the one set aside, and it
    waits in front. The oldest can always run, so every sequence comes to its end.
    """

    def __init__(self, memory: Memory, width: int, most: int) -> None:
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.set_aside = 0  # times that a sequence was
        self.cached_tokens = 0  # that were in pages already
        self.pace = Pace()
        self._memory = memory
        self._width = width
        self._most = most

    def add(self, sequence: Sequence) -> None:
        """`sequence` waits for its turn."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """`sequence` has ended: its pages are given back."""
        if sequence.hold is None:
            self.waiting.remove(sequence)
            return
        self.running.remove(sequence)
        self._memory.close(sequence.hold)
        sequence.hold = None

    def plan(self) -> list[Share]:
        """The next pass; empty only if nothing runs. Its pages are reserved."""
        self._admit()
        if not self.running:
            return []
        plan: list[Share] = []
        for sequence in self.running.copy():
            if sequence.hold is not None and sequence.pending == 1 and self._make_room(sequence):
                plan.append(self._reserved(sequence, 1))
        readers = [s for s in self.running if s.pending > 1]
        if readers:
            self._share_out(plan, readers)
        if not plan:
            # Prompts alone, and between them they hold every page: the oldest goes on.
            oldest = self.running[0]
            while self._memory.room(oldest.place) < 1:
                self._set_aside()
            self._share_out(plan, [oldest])
        return plan

    def _admit(self) -> None:
        memory = self._memory
        while self.waiting and memory.has_row and len(self.running) < self._most:
            sequence = self.waiting[0]
            hold = memory.open()
            cached = memory.extend(hold, sequence.keys, sequence.count)
            # Each that runs will soon want its next page.
            spare = len(self.running) + 1
            if self.running and not memory.could_read(hold, sequence.count, self._width, spare):
                memory.close(hold)
                return
            self.waiting.popleft()
            self.running.append(sequence)
            sequence.begin(hold)
            self._count_cached(sequence, cached)

    def _share_out(self, plan: list[Share], readers: list[Sequence]) -> None:
        """Adds to `plan` those of `readers` whose turn it is, with what each may read."""
        memory = self._memory
        ready: list[Sequence] = []
        claimed: set[tuple[int, bytes]] = set()
        for sequence in readers:
            hold = sequence.place
            self._count_cached(sequence, memory.extend(hold, sequence.keys, sequence.count))
            if memory.room(hold) < 1:
                continue
            page = len(hold.nodes)
            if (page + 1) * PAGE <= sequence.count:
                # Two that would read the same page: one does, the other takes it over afterwards.
                mark = (id(hold.nodes[-1]) if page else 0, sequence.keys(page))
                if mark in claimed:
                    continue
                claimed.add(mark)
            ready.append(sequence)
        left = max(len(ready), min(self._width - len(plan), self.pace.tokens))
        # The shortest first: what it does not need of its share goes to the others.
        ready.sort(key=lambda sequence: sequence.pending)
        for index, sequence in enumerate(ready):
            share = min(left // (len(ready) - index), sequence.pending, memory.room(sequence.place))
            if share:
                plan.append(self._reserved(sequence, share))
                left -= share

    def _reserved(self, sequence: Sequence, tokens: int) -> Share:
        self._memory.reserve(sequence.place, tokens)
        return sequence, tokens

    def _make_room(self, sequence: Sequence) -> bool:
        """Room for one token of `sequence`; False if it was set aside itself."""
        while self._memory.room(sequence.place) < 1:
            if self._set_aside() is sequence:
                return False
        return True

    def _set_aside(self) -> Sequence:
        youngest = self.running.pop()
        assert self.running  # the pool holds at least one sequence of the whole context
        assert youngest.hold is not None  # it was running
        self._memory.close(youngest.hold)
        youngest.hold = None
        youngest.set_aside += 1
        self.set_aside += 1
        self.waiting.appendleft(youngest)
        return youngest

    def _count_cached(self, sequence: Sequence, tokens: int) -> None:
        self.cached_tokens += tokens
        if not sequence.set_aside:
            sequence.cached += tokens
