"""From a row of logits to a token: one sampler for each request."""

from __future__ import annotations

import secrets
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from golem_core.errors import PassFailed
from golem_core.sampling import filters
from golem_core.sampling.parameters import Sampling
from golem_core.sampling.penalties import Bias, penalise, recent

_BLOCK = 256  # chances that are drawn at once, and weights that are summed at once


class Mask(Protocol):
    """A constraint on what may come next."""

    def __call__(self, tokens: np.ndarray, logits: np.ndarray) -> None:
        """Sets to -inf, in `logits` [vocabulary], what may not follow `tokens` (int32)."""


@runtime_checkable
class Ahead(Mask, Protocol):
    """A mask that has a state, and computes what may come next beside the pass before it."""

    def fresh(self) -> Ahead:
        """The mask at its beginning, with a state of its own, for one answer."""

    def accept(self, token: int) -> None:
        """Hears that `token` was drawn, as soon as it was; must return at once."""


class Logprobs(NamedTuple):
    """What the model thought of a drawn token, before bias, penalties and temperature."""

    logprob: float  # natural logarithm of the probability
    top: tuple[tuple[int, float], ...]  # the likeliest tokens and theirs, likeliest first


class Chances:
    """Uniform numbers in [0, 1), one for each position of a text, by a counter-based generator.

    The number depends on the seed and the position alone (Philox, Salmon et al., 2011): not on
    the company in a pass, not on how often a text was set aside and read again.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed % 2**64
        self._number = -1
        self._block = np.empty(0)

    def at(self, position: int) -> float:
        """The number of `position`."""
        number, offset = divmod(position, _BLOCK)
        if number != self._number:
            philox = np.random.Philox(key=np.array([self._seed, number], dtype=np.uint64))
            self._block = np.random.Generator(philox).random(_BLOCK)
            self._number = number
        return float(self._block[offset])


class Sampler:
    """Draws the tokens of one request.

    banned  tokens that are never drawn
    mask    a constraint, asked before each token; one that has a state is begun anew
    """

    def __init__(
        self, sampling: Sampling, banned: frozenset[int] = frozenset(), mask: Mask | None = None
    ) -> None:
        seed = sampling.seed if sampling.seed is not None else secrets.randbits(63)
        self.seed = seed
        self._sampling = sampling
        self._greedy = sampling.is_greedy
        self._bias = None if (bias := Bias(sampling, banned)).is_empty else bias
        # Of the likeliest tokens, how many are looked at; 0: all tokens are.
        self._most = 1 if self._greedy else sampling.top_k
        self._penalties = sampling.has_penalties
        self._ahead = mask.fresh() if isinstance(mask, Ahead) else None
        self._mask = mask if self._ahead is None else self._ahead
        self._changes = self._bias is not None or self._penalties or mask is not None
        self._chances = Chances(seed)

    def draw(self, logits: np.ndarray, tokens: np.ndarray) -> int:
        """The token that follows `tokens` (int32, prompt included), from `logits` [vocabulary].

        `logits` is left as it was. Raises `PassFailed` where it holds a NaN or nothing finite.
        """
        leading = self._leading(logits, 1 if self._changes else self._most)
        if not _is_finite(logits[leading[0]]):
            raise PassFailed(*describe(logits, int(leading[0])))
        if self._greedy and not self._changes:
            return int(leading[0])
        # Differences of huge logits may overflow: to -inf, which is a probability of 0.
        with np.errstate(over="ignore"):
            if not self._changes:
                return self._chosen(logits, leading, tokens)
            ids = self._changing(tokens)
            if ids is None:
                return self._chosen_of_changed(logits.copy(), tokens)
            kept = logits[ids]
            try:
                return self._chosen_of_changed(logits, tokens)
            finally:
                logits[ids] = kept

    def accepted(self, token: int) -> None:
        """Says that `token` is part of the text, and that another will be drawn."""
        if self._ahead is not None:
            self._ahead.accept(token)

    def _leading(self, logits: np.ndarray, count: int) -> np.ndarray:
        """So many of the likeliest, or one where that is all; a NaN alone, where there is one."""
        if 1 < count < len(logits):
            return filters.largest(logits, count)
        # argmax stops at the first NaN and takes the lowest id among equals.
        return np.array([logits.argmax()])

    def _changing(self, tokens: np.ndarray) -> np.ndarray | None:
        """The tokens whose logits are changed; None: it may be all of them."""
        ids = np.empty(0, np.int64) if self._bias is None else self._bias.ids
        if self._mask is not None or ids is None:
            return None
        return np.concatenate([ids, recent(self._sampling, tokens)]) if self._penalties else ids

    def _change(self, logits: np.ndarray, tokens: np.ndarray) -> None:
        """Changes `logits` by bias, penalties and constraint."""
        if self._bias is not None:
            self._bias.apply(logits)
        if self._penalties:
            penalise(logits, self._sampling, tokens)
        if self._mask is not None:
            self._mask(tokens, logits)

    def _chosen_of_changed(self, logits: np.ndarray, tokens: np.ndarray) -> int:
        self._change(logits, tokens)
        leading = self._leading(logits, self._most)
        if not _is_finite(logits[leading[0]]):
            raise PassFailed(
                "no token is left to draw after bias, penalties and constraint",
                "logits",
                "no_candidates",
            )
        return self._chosen(logits, leading, tokens)

    def _candidates(self, logits: np.ndarray, leading: np.ndarray) -> np.ndarray | None:
        """The ids that the filters leave, ascending; None: all."""
        asked = self._sampling
        some = 0 < self._most < len(logits)
        if some and asked.typical_p == 1.0:
            count = filters.first(logits[leading], asked.top_p, asked.min_p)
            return np.sort(leading[:count])
        ids = np.sort(leading) if some else None
        if asked.typical_p < 1.0:
            ids = filters.typical(logits, ids, asked.typical_p)
        if asked.top_p < 1.0:
            ids = filters.top_p(logits, ids, asked.top_p)
        if asked.min_p > 0.0:
            ids = filters.min_p(logits, ids, asked.min_p)
        return ids

    def _chosen(self, logits: np.ndarray, leading: np.ndarray, tokens: np.ndarray) -> int:
        if self._greedy:
            return int(leading[0])
        asked, peak = self._sampling, float(logits[leading[0]])
        ids = self._candidates(logits, leading)
        scores = logits if ids is None else logits[ids]
        if asked.typical_p < 1.0:
            peak = float(scores.max())  # the likeliest token need not be a typical one
        weights = np.exp((scores - np.float32(peak)) / np.float32(asked.temperature))
        place = _at(weights, self._chances.at(len(tokens)))
        return place if ids is None else int(ids[place])


def _is_finite(logit: float) -> bool:
    return -np.inf < logit < np.inf


def _at(weights: np.ndarray, chance: float) -> int:
    """The index in `weights` at the fraction `chance` of their sum."""
    if len(weights) <= 2 * _BLOCK:
        return _reached(np.cumsum(weights, dtype=np.float64), chance)
    # By blocks: a running sum over a whole vocabulary would take longer than all the rest.
    starts = np.arange(0, len(weights), _BLOCK)
    sums = np.cumsum(np.add.reduceat(weights, starts), dtype=np.float64)
    block = _reached(sums, chance)
    before = float(sums[block - 1]) if block else 0.0
    part = weights[block * _BLOCK : (block + 1) * _BLOCK]
    inside = (chance * float(sums[-1]) - before) / (float(sums[block]) - before)
    return block * _BLOCK + _reached(np.cumsum(part, dtype=np.float64), max(0.0, inside))


def _reached(sums: np.ndarray, fraction: float) -> int:
    """The first index whose running sum is beyond `fraction` of the total."""
    # Below the total, so that rounding never chooses a weight of 0 behind it.
    aim = min(fraction * float(sums[-1]), float(np.nextafter(sums[-1], 0.0)))
    return int(np.searchsorted(sums, aim, side="right"))


def describe(logits: np.ndarray, worst: int) -> tuple[str, str, str]:
    """Message, waypoint and kind for a row whose `argmax`, `worst`, is not finite."""
    if np.isnan(logits[worst]):
        count = int(np.isnan(logits).sum())
        return f"logits has {count} NaN of {len(logits)} values", "logits", "nan_logits"
    return f"logits has {logits[worst]:g} for its largest value", "logits", "infinite_logits"


def logprobs(logits: np.ndarray, token: int, top: int) -> Logprobs:
    """What `logits` [vocabulary] says of `token` and of the `top` likeliest."""
    peak = logits.max()
    with np.errstate(over="ignore"):
        total = float(peak) + float(np.log(np.exp(logits - peak).sum(dtype=np.float64)))
    leading = filters.largest(logits, top) if top else ()
    return Logprobs(
        float(logits[token]) - total, tuple((int(i), float(logits[i]) - total) for i in leading)
    )
