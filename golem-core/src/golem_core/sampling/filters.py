"""The filters: which tokens stay candidates. None of them sorts the vocabulary.

A filter takes logits and the ids that are still candidates (ascending; None: all of them) and
gives the ids that it keeps, ascending. Of equals at a filter's border the lowest ids stay.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from golem_core.sampling import _select

_BINS = 2048
_DEPTH = 32.0  # how far below the first the last bin begins; e**-32 is less than float32 resolves


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest of `values` [v], largest first, of equals the lowest first.

    Where a value is NaN, the first such index is all that is given.
    """
    values = np.ascontiguousarray(values, np.float32)
    found = np.empty(min(count, len(values)), np.int64)
    broken = _select.largest(values, found)
    return found if broken < 0 else np.array([broken])


def first(scores: np.ndarray, mass: float, fraction: float) -> int:
    """How many of `scores`, largest first, both `top_p` and then `min_p` keep."""
    count = len(scores)
    if mass < 1.0:
        sums = np.cumsum(_softmax(scores), dtype=np.float64)
        count = min(count, 1 + int(np.searchsorted(sums, mass)))
    if fraction > 0.0:
        bound = scores[0] + np.float32(np.log(fraction))
        count = min(count, int(np.searchsorted(-scores, -bound, side="right")))
    return count


def typical(logits: np.ndarray, ids: np.ndarray | None, mass: float) -> np.ndarray:
    """The tokens whose surprise is nearest to the entropy, until they exceed `mass` together."""
    scores = logits if ids is None else logits[ids]
    p = _softmax(scores)
    surprise = np.full(p.shape, np.inf, dtype=np.float32)
    np.log(p, out=surprise, where=p > 0)
    np.negative(surprise, out=surprise, where=p > 0)
    entropy = float(np.dot(p[p > 0], surprise[p > 0]))
    kept = _until(-np.abs(surprise - np.float32(entropy)), p, mass, beyond=True)
    return kept if ids is None else ids[kept]


def top_p(logits: np.ndarray, ids: np.ndarray | None, mass: float) -> np.ndarray:
    """The likeliest tokens, the fewest that reach `mass` together."""
    scores = logits if ids is None else logits[ids]
    kept = _until(scores, _softmax(scores), mass, beyond=False)
    return kept if ids is None else ids[kept]


def min_p(logits: np.ndarray, ids: np.ndarray | None, fraction: float) -> np.ndarray:
    """The tokens with at least `fraction` of the likeliest one's probability."""
    scores = logits if ids is None else logits[ids]
    kept = np.flatnonzero(scores >= scores.max() + np.float32(np.log(fraction)))
    return kept if ids is None else ids[kept]


def _softmax(scores: np.ndarray) -> np.ndarray:
    p: np.ndarray = np.exp(scores - scores.max())
    p /= np.float32(p.sum(dtype=np.float64))
    return p


def _until(order: np.ndarray, p: np.ndarray, mass: float, *, beyond: bool) -> np.ndarray:
    """Ascending indices of the largest of `order` whose `p` reach (`beyond`: exceed) `mass`."""
    side: Literal["left", "right"] = "right" if beyond else "left"
    leading = largest(order, 64)
    enough = int(np.searchsorted(np.cumsum(p[leading], dtype=np.float64), mass, side=side))
    if enough < len(leading) or len(leading) == len(order):
        return np.sort(leading[: enough + 1])
    # A flat distribution. The bins are in the order's own order, so only the one in which the
    # mass is reached has to be sorted.
    depth = (order[leading[0]] - order) * np.float32(_BINS / _DEPTH)
    bins = np.minimum(depth, np.float32(_BINS - 1)).astype(np.int64)
    sums: np.ndarray = np.cumsum(np.bincount(bins, weights=p, minlength=_BINS))
    last = min(int(np.searchsorted(sums, mass, side=side)), _BINS - 1)
    within = np.flatnonzero(bins == last)
    within = within[np.argsort(-order[within], kind="stable")]
    before = float(sums[last - 1]) if last else 0.0
    sums = before + np.cumsum(p[within], dtype=np.float64)
    enough = int(np.searchsorted(sums, mass, side=side))
    kept = bins < last
    kept[within[: enough + 1]] = True
    return np.flatnonzero(kept)
