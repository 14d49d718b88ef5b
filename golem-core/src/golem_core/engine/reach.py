"""How many tokens of a vocabulary a guess is chosen from.

A vocabulary is learnt from the frequent to the rare, so most of a text are tokens with low numbers,
and a guess that considers only these reads a part of the head. What it misses are the tokens
beyond. How many those are is counted in what is drawn: a text in another script reaches further.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

# What a guess that is missed, and those that would follow it, cost: so many passes.
WORTH = 1.0


class Reach:
    """Counts tokens; `tokens` says how many, from the first, are worth considering.

    vocabulary  tokens that there are
    share       what each of them costs a guess, in passes; 0: all are considered
    """

    LEAST = 1024
    FORGET = 0.8  # what is left of the counts when the reach was chosen anew
    EVERY = 64  # tokens after which it is

    def __init__(self, vocabulary: int, share: float) -> None:
        self.tokens = vocabulary
        ends = [vocabulary]
        while share and (end := -(-ends[-1] // 32) * 16) >= self.LEAST:
            ends.append(end)
        self._ends = ends[::-1]
        self._share = share
        self._counts = [0.0] * len(ends)
        self._seen = 0

    def see(self, tokens: Sequence[int]) -> None:
        """These tokens were drawn."""
        if len(self._ends) == 1:
            return
        for token in tokens:
            self._counts[bisect_right(self._ends, token)] += 1
        self._seen += len(tokens)
        if self._seen >= self.EVERY:
            self._seen = 0
            missed = 1.0
            costs = []
            for count, end in zip(self._counts, self._ends, strict=True):
                missed -= count / sum(self._counts)
                costs.append((end * self._share + WORTH * missed, end))
            self.tokens = min(costs)[1]
            self._counts = [self.FORGET * count for count in self._counts]
