"""Who is in the next pass, and with how many of its tokens.

A pass has room for `width` columns. Conversations that wait for their next token go first, with
one column each; prompts share what is left, evenly, so neither a long prompt nor many of them
hold up an answer that has begun. When the pages run out the youngest sequence is set aside: its
pages are given back, its tokens are kept, and it is read again when there is room.

A conversation that waits for its next token may guess further ones: they are columns of its own
after the newest token, where the pass, the pages and the context have room for them. Nobody gives
anything up for a guess.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Listed

from golem_core.engine.sequence import Sequence
from golem_core.graph.program import PAGE
from golem_core.memory import Memory


class Share:
    """A sequence's part of a pass: so many of its tokens, and guesses after the newest."""

    __slots__ = ("allowed", "drafts", "sequence", "tokens")

    def __init__(self, sequence: Sequence, tokens: int) -> None:
        self.sequence = sequence
        self.tokens = tokens
        self.allowed = 0  # the most guesses
        self.drafts: Listed[int] = ()


class Pace:
    """How many prompt tokens a pass may have, so that it ends soon.

    A token of another conversation waits for the end of the pass. But a pass reads and unpacks all
    weights, so narrow ones are slow: a 4B that reads 57 tokens a second 32 at a time reads 114 at
    256. Where nobody else waits, passes may therefore take longer.
    """

    LONGEST = 0.5  # seconds, what a pass should take at most
    ALONE = 4.0  # the same where there is one conversation
    FIRST = 128  # tokens, before anything was measured
    LEAST = 32  # tokens: narrower passes are not much shorter, and read much slower

    def __init__(self) -> None:
        self._rate: float | None = None  # tokens a second

    def tokens(self, alone: bool) -> int:
        """Tokens that a pass may read, a multiple of `LEAST`; `alone`: of the only conversation."""
        if self._rate is None:
            return self.FIRST
        longest = self.ALONE if alone else self.LONGEST
        return max(self.LEAST, int(self._rate * longest) // self.LEAST * self.LEAST)

    def seconds(self, tokens: int) -> float:
        """How long a pass of so many tokens should take; 0 before anything was measured."""
        return 0.0 if self._rate is None else tokens / self._rate

    def observe(self, tokens: int, seconds: float) -> None:
        """A pass of so many tokens took so long."""
        if tokens >= self.LEAST:
            rate = tokens / max(seconds, 1e-9)
            self._rate = rate if self._rate is None else (self._rate + rate) / 2


class Scheduler:
    """Which sequences run and which wait, both in the order of their arrival.

    Waiting sequences are younger than all that run: the youngest is the one set aside, and it
    waits in front. The oldest can always run, so every sequence comes to its end.

    width    the most columns of a pass
    outputs  the most columns of a pass whose logits are wanted
    most     the most sequences that run at a time
    """

    def __init__(self, memory: Memory, width: int, outputs: int, most: int) -> None:
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.set_aside = 0  # times that a sequence was
        self.cached_tokens = 0  # that were in pages already
        self.pace = Pace()
        self._memory = memory
        self._width = width
        self._outputs = outputs
        self._most = most
        if memory.states is not None:
            self._most = min(most, memory.states.pool.pages)

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

    def plan(self, drafts: int = 0) -> list[Share]:
        """The next pass; empty only if nothing runs. Its pages are reserved.

        Each sequence that waits for its next token is allowed up to so many `drafts`.
        """
        self._admit()
        if not self.running:
            return []
        if self._memory.states is not None:
            self._memory.states.budget(s.place for s in self.running)
        plan: list[Share] = []
        for sequence in self.running.copy():
            hold = sequence.hold
            if hold is None or sequence.pending > 1 or not self._has_slot(sequence):
                continue
            if self._make_room(sequence):
                plan.append(self._reserved(sequence, 1))
        if drafts:
            self._allow(plan, drafts)
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

    def give_up(self, plan: list[Share]) -> None:
        """The pass of `plan` was not finished: who was in it goes on from what is remembered."""
        for share in reversed(plan):
            self._back_to_waiting(share.sequence)

    def allow(self, share: Share, most: int) -> int:
        """Lets `share` have `most` guesses at most, of those that it was allowed; gives how many.

        Their pages are reserved, which the guessing itself may read and write.
        """
        hold = share.sequence.place
        share.allowed = min(share.allowed, most, self._memory.room(hold) - 1)
        if share.allowed:
            self._memory.reserve(hold, 1 + share.allowed)
        return share.allowed

    def draft(self, share: Share, drafts: Listed[int]) -> None:
        """`share` has these guesses as well, as many of them as it is allowed."""
        share.drafts = drafts[: share.allowed]
        if self._memory.states is not None and share.drafts:
            self._memory.states.guess(share.sequence.place, len(share.drafts))

    def _allow(self, plan: list[Share], most: int) -> None:
        """Divides what the pass has to spare, once everybody has a column, among guesses."""
        spare = min(self._width, self._outputs) - len(self.running)
        for index, share in enumerate(plan):
            sequence = share.sequence
            # Each row gives a token: the last of them must not be beyond the limit.
            left = sequence.limit - sequence.count - 1
            share.allowed = max(0, min(most, spare // (len(plan) - index), left))
            spare -= share.allowed

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
            sequence.begin(hold)
            self._follow(sequence)
            self.running.append(sequence)
            self._count_cached(sequence, cached)

    def _follow(self, sequence: Sequence) -> None:
        """Lets `sequence`, of a recurrent program, wait for one that reads its beginning now.

        That one is told to remember its state where the two texts part, because without a state
        its pages would be of no use.
        """
        sequence.follows = None
        if self._memory.states is None:
            return
        alike = len(sequence.place.nodes)
        for other in self.running:
            if other.pending > 1:
                pages = sequence.alike(other)
                if pages > max(alike, len(other.place.nodes)):
                    alike = pages
                    sequence.follows = other, pages
        if sequence.follows is not None:
            sequence.follows[0].place.wanted.add(alike)

    def _share_out(self, plan: list[Share], readers: list[Sequence]) -> None:
        """Adds to `plan` those of `readers` whose turn it is, with what each may read."""
        memory = self._memory
        ready: list[Sequence] = []
        claimed: set[tuple[int, bytes]] = set()
        for sequence in readers:
            hold = sequence.place
            if sequence.is_following:
                continue
            self._count_cached(sequence, memory.extend(hold, sequence.keys, sequence.count))
            if memory.room(hold) < 1 or not self._has_slot(sequence):
                continue
            page = len(hold.nodes)
            if memory.states is None and (page + 1) * PAGE <= sequence.count:
                # Two that would read the same page: one does, the other takes it over afterwards.
                mark = (id(hold.nodes[-1]) if page else 0, sequence.keys(page))
                if mark in claimed:
                    continue
                claimed.add(mark)
            ready.append(sequence)
        columns = len(plan) + sum(share.allowed for share in plan)
        alone = len(self.running) + len(self.waiting) == 1
        left = max(len(ready), min(self._width - columns, self.pace.tokens(alone)))
        # The shortest first: what it does not need of its share goes to the others.
        ready.sort(key=lambda sequence: sequence.pending)
        for index, sequence in enumerate(ready):
            share = min(left // (len(ready) - index), sequence.pending, memory.room(sequence.place))
            if share and self._has_slot(sequence):
                plan.append(self._reserved(sequence, share))
                left -= share

    def _reserved(self, sequence: Sequence, tokens: int) -> Share:
        self._memory.reserve(sequence.place, tokens)
        if self._memory.states is not None:
            self._memory.states.keep(sequence.place, tokens)
        return Share(sequence, tokens)

    def _has_slot(self, sequence: Sequence) -> bool:
        """Whether the state after a pass of `sequence` has a slot.

        It may have none while others go on from the same one. The first in a pass has.
        """
        states = self._memory.states
        return states is None or states.is_ready(sequence.place)

    def _make_room(self, sequence: Sequence) -> bool:
        """Room for one token of `sequence`; False if it was set aside itself."""
        while self._memory.room(sequence.place) < 1:
            if self._set_aside() is sequence:
                return False
        return True

    def _set_aside(self) -> Sequence:
        youngest = self.running[-1]
        assert len(self.running) > 1  # the pool holds at least one sequence of the whole context
        self.set_aside += 1
        self._back_to_waiting(youngest)
        return youngest

    def _back_to_waiting(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._memory.close(sequence.place)
        sequence.hold = None
        sequence.set_aside += 1
        self.waiting.appendleft(sequence)

    def _count_cached(self, sequence: Sequence, tokens: int) -> None:
        self.cached_tokens += tokens
        if not sequence.set_aside:
            sequence.cached += tokens
