"""How many tokens to guess at a time, where a guess can be made from a guess.

A further guess is right only where those before it are, and each makes the pass wider. So two
things are measured while texts are drawn: how often the guess at each depth is right, given that
those before it are, and what passes with so many guesses take. The number that promises most
tokens a second is used; its neighbours are tried for a few passes now and then, because both
depend on the text and on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# What is left of the past with each pass's time, and with each guess.
PASSES = 0.95
GUESSES = 0.98


@dataclass
class _Mean:
    """A mean in which older values count for less."""

    forget: float  # what is left of the past with each value
    values: int = 0
    _sum: float = 0.0
    _weight: float = 0.0

    def add(self, value: float) -> None:
        self.values += 1
        self._sum = self.forget * self._sum + value
        self._weight = self.forget * self._weight + 1.0

    @property
    def value(self) -> float:
        return self._sum / self._weight if self._weight else 0.0


@dataclass
class _Course:
    """What is known of passes in which so many conversations draw."""

    seconds: list[_Mean]  # of a pass with so many guesses
    right: list[_Mean]  # of the guesses at each depth, the share that was right
    rest: int = 0  # passes without guesses that are still to come
    longer: int = 0  # how many there will be when guessing next does not pay
    trying: int = 0  # guesses that are tried
    tries: int = 0  # passes with them that are still to come
    since: int = 0  # passes since something was tried
    up: bool = True  # whether more will be tried next, or fewer

    def try_anew(self, tries: int) -> None:
        """After a rest: what was known of one guess is too old to judge by."""
        self.trying, self.tries = 1, tries
        self.seconds[1], self.right[0] = _Mean(PASSES), _Mean(GUESSES)


class Depths:
    """How many guesses the next pass has, 0 included where `least` is 0.

    most   guesses at a time
    least  guesses that are made whether they pay or not
    """

    FIRST = 6  # passes with each number of guesses before anything is chosen
    TRIES = 4  # passes with another number, now and then
    EVERY = 48  # passes after which one is tried
    REST = 64  # passes without guesses where these do not pay, at first
    LONGEST = 1024
    GAIN = 1.02  # what more guesses must promise over fewer

    def __init__(self, most: int, least: int = 0) -> None:
        self._most, self._least = most, least
        self._courses: dict[int, _Course] = {}

    def wants(self, drawing: int, most: int) -> int:
        """Guesses, `most` at most, for the next pass, in which so many conversations draw."""
        course, most = self._course(drawing), min(most, self._most)
        if course.rest > 0 or most < self._least:
            return self._least if most >= self._least else most
        if course.tries > 0:
            return min(course.trying, most)
        for count in range(self._least, most + 1):
            if course.seconds[count].values < self.FIRST:
                return count
        return self._best(course, most)

    def observe(
        self, drawing: int, count: int, seconds: float, guesses: Iterable[tuple[int, int]]
    ) -> None:
        """A pass with `count` guesses took so long; of each conversation's so many were right."""
        course = self._course(drawing)
        course.seconds[count].add(seconds)
        for made, right in guesses:
            for depth in range(min(made, right + 1)):
                course.right[depth].add(depth < right)
        if course.rest > 0:
            course.rest -= 1
            if not course.rest:
                course.try_anew(2 * self.TRIES)
            return
        if course.tries > 0:
            course.tries -= 1
            return
        counts = range(self._least, self._most + 1)
        known = [n for n in counts if course.seconds[n].values >= self.FIRST]
        if len(known) < 2:
            return
        best = self._best(course, known[-1])
        if best == 0:
            course.rest = course.longer = min(2 * course.longer, self.LONGEST) or self.REST
            return
        course.since += 1
        if course.since >= self.EVERY:
            course.since, course.longer = 0, 0
            course.trying = best + 1 if course.up else best - 1
            course.up = not course.up
            if self._least <= course.trying <= known[-1]:
                course.tries = self.TRIES

    def _best(self, course: _Course, most: int) -> int:
        best, rate, tokens, chance = 0, 0.0, 1.0, 1.0
        for count in range(most + 1):
            if count:
                chance *= course.right[count - 1].value
                tokens += chance
            if count >= self._least and course.seconds[count].values:
                promised = tokens / max(course.seconds[count].value, 1e-9)
                # Nearly as much is not enough: each guess also widens what others wait for.
                if promised > (self.GAIN if rate else 1.0) * rate:
                    best, rate = count, promised
        return best

    def _course(self, drawing: int) -> _Course:
        if drawing not in self._courses:
            self._courses[drawing] = _Course(
                [_Mean(PASSES) for _ in range(self._most + 1)],
                [_Mean(GUESSES) for _ in range(self._most)],
            )
        return self._courses[drawing]
