"""The filters: which tokens stay candidates. None of them sorts the vocabulary.

A filter takes logits and the ids that are still candidates (ascending; None: all of them) and
gives the ids that it keeps, ascending. Of equals at a filter's border the lowest ids stay.
"""

from __future__ import annotations

import numpy as np


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest of `values` [v], largest first, of equals the lowest first.

    The maxima of many strided groups are quick to find, and the `count`-th largest of these is
    a lower bound of the `count`-th largest value: few values reach it, and only these are sorted.
    """
    size = len(values)
    if count >= size:
        return np.argsort(-values, kind="stable")
    groups = size // 32
    if groups >= 4 * count:
        peaks = values[: 32 * groups].reshape(32, groups).max(axis=0)
        bound = np.partition(peaks, groups - count)[groups - count]
        found = np.flatnonzero(values >= bound)
    else:
        bound = np.partition(values, size - count)[size - count]
        found = np.flatnonzero(values >= bound)
    return found[np.argsort(-values[found], kind="stable")[:count]]


def top_k(logits: np.ndarray, count: int) -> np.ndarray:
    """The `count` likeliest of all tokens."""
    return np.sort(largest(logits, count))


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
    return p / p.sum(dtype=np.float64).astype(np.float32)


def _until(order: np.ndarray, p: np.ndarray, mass: float, *, beyond: bool) -> np.ndarray:
    """Ascending indices of the largest of `order` whose `p` reach (`beyond`: exceed) `mass`."""
    count = 64
    while True:
        leading = largest(order, count)
        sums = np.cumsum(p[leading], dtype=np.float64)
        enough = int(np.searchsorted(sums, mass, side="right" if beyond else "left"))
        if enough < len(leading) or len(leading) == len(order):
            return np.sort(leading[: enough + 1])
        count *= 8
