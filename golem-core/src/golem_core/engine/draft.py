"""Drafting: guesses of the next tokens, so that one pass may give several.

A guess is a column of the pass that reads the newest token, and the logits after each are wanted.
The truth is drawn from the first row, and while it is what was guessed, from the next: every token
is drawn by the request's own sampler from the logits that it would have seen anyway, so a text does
not depend on whether, or how well, it was guessed. What it costs is the guessing and a wider pass;
`Judge` measures whether that pays, and `depth.Depths` how many guesses at a time do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from golem_core.engine.columns import Columns
from golem_core.engine.reach import Reach
from golem_core.engine.schedule import Share
from golem_core.graph.program import Program

# What `--draft` may say, and `start_engine`.
WAYS = ("auto", "off", "mtp", "ngram")


class Drafter(Protocol):
    """Guesses what comes next."""

    most: int  # tokens guessed at a time

    def see(self, tokens: Sequence[int]) -> None:
        """These tokens were drawn."""

    def propose(self, asked: Sequence[Share]) -> list[list[int]]:
        """For each share at most `Share.allowed` tokens to follow its newest; maybe none.

        The pages of these tokens are reserved.
        """


class Block:
    """The model's own prediction block: the likeliest token, and from that the next.

    The drafting pass reads the newest token's state and pages.
    """

    MOST = 3  # of a block that can go on from its own guess

    def __init__(self, program: Program, columns: Columns) -> None:
        self.most = self.MOST if program.chains else 1
        self.reach = Reach(program.vocabulary, program.token_share)
        self._program = program
        self._columns = columns

    def see(self, tokens: Sequence[int]) -> None:
        """See `Drafter.see`."""
        self.reach.see(tokens)

    def propose(self, asked: Sequence[Share]) -> list[list[int]]:
        """See `Drafter.propose`: as many passes for all of them as each is allowed guesses."""
        count = min(share.allowed for share in asked)
        batch = self._columns.fill(asked)
        guesses: list[list[int]] = self._program.guess(batch, count, self.reach.tokens).T.tolist()
        return guesses


class Recurrence:
    """What followed when the text's last tokens stood in it before."""

    most = 4

    LEAST = 2  # tokens that must be the same: a single one says little
    LONGEST = 16  # tokens that are compared

    def see(self, tokens: Sequence[int]) -> None:
        """See `Drafter.see`; it looks at the texts themselves."""

    def propose(self, asked: Sequence[Share]) -> list[list[int]]:
        """See `Drafter.propose`."""
        return [
            self.after(share.sequence.tokens[: share.sequence.count], share.allowed)
            for share in asked
        ]

    def after(self, tokens: np.ndarray, most: int) -> list[int]:
        """Up to `most` tokens to follow `tokens` (int32); none if its end is new.

        Of the places that agree with the end of the text for longest, the last. No more tokens
        than agree are guessed: a longer agreement is likelier to go on.
        """
        last = len(tokens) - 1
        ends = np.flatnonzero(tokens[:last] == tokens[last])
        same = 1
        while same < self.LONGEST and len(ends):
            earlier = ends[ends >= same]
            earlier = earlier[tokens[earlier - same] == tokens[last - same]]
            if not len(earlier):
                break
            ends = earlier
            same += 1
        if same < self.LEAST or not len(ends):
            return []
        # A place so near to the end that the text is a repetition goes on into the guesses.
        begin, period = int(ends[-1]) + 1, last - int(ends[-1])
        return [int(tokens[begin + i % period]) for i in range(min(most, same))]


@dataclass
class _Rate:
    """Tokens a second of late: older passes count for less."""

    passes: int = 0
    tokens: float = 0.0
    seconds: float = 0.0

    FORGET = 0.95  # what is left of the past with each pass

    def add(self, tokens: int, seconds: float) -> None:
        self.passes += 1
        self.tokens = self.FORGET * self.tokens + tokens
        self.seconds = self.FORGET * self.seconds + seconds

    @property
    def value(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


@dataclass
class _Course:
    """How drafting does with one number of conversations."""

    plain: _Rate
    drafted: _Rate
    rest: int  # passes without drafts that are still to come
    longer: int  # how many there will be when it next does not pay


class Judge:
    """Whether drafting pays, by the tokens a second of passes with and without guesses.

    What a wider pass costs depends on how wide it is anyway, so each number of conversations that
    draw is judged by itself. Drafting that does not pay is left for a while, each time longer, and
    tried again; while it pays, a few passes go without it now and then, to know what it saves.
    """

    PLAIN = 4  # passes without guesses that are enough to compare with
    TRIAL = 16  # passes with guesses that are enough to judge by
    EVERY = 256  # passes with guesses, after which those without are measured again
    REST = 64  # passes without, at first
    LONGEST = 1024

    def __init__(self) -> None:
        self._courses: dict[int, _Course] = {}

    def wants(self, drawing: int, most: int) -> int:
        """Guesses for the next pass, in which so many conversations draw: `most` or none."""
        course = self._course(drawing)
        if course.rest > 0:
            return 0
        if course.plain.passes < self.PLAIN:
            course.rest = self.PLAIN - course.plain.passes
            return 0
        return most

    def observe(
        self, drawing: int, count: int, seconds: float, guesses: Sequence[tuple[int, int]]
    ) -> None:
        """See `Depths.observe`."""
        course = self._course(drawing)
        tokens = sum(right + 1 for _, right in guesses)
        if not count:
            course.plain.add(tokens, seconds)
            course.rest = max(0, course.rest - 1)
            return
        course.drafted.add(tokens, seconds)
        if course.drafted.passes < self.TRIAL:
            return
        if course.drafted.value < course.plain.value:
            course.rest = course.longer
            course.longer = min(2 * course.longer, self.LONGEST)
            course.drafted = _Rate()
        elif course.drafted.passes >= self.EVERY:
            course.rest, course.longer = self.PLAIN, self.REST
            course.drafted.passes = self.TRIAL

    def _course(self, drawing: int) -> _Course:
        if drawing not in self._courses:
            self._courses[drawing] = _Course(_Rate(), _Rate(), 0, self.REST)
        return self._courses[drawing]


class Always(Judge):
    """Drafts in every pass, whether it pays or not."""

    def wants(self, drawing: int, most: int) -> int:
        """Always."""
        return most
