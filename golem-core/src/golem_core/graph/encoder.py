"""The operations that encoders of texts need: attention within a text, and the mean of its columns.

The columns of one sequence in a pass are a text, whole: nothing of it is kept for another pass. So
many texts stand beside each other in one pass, and each sees itself alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from golem_core.graph.spec import OpSpec, Setting, Shape, need


@dataclass(frozen=True)
class Buckets:
    """How relative positions fall into the rows of a table of biases (Raffel et al., 2020).

    A half of the `count` rows is for positions that come later. Of a half, its first half has one
    row a distance; the other rows are spread over the logarithm of the distance, up to `farthest`.
    """

    count: int
    farthest: int

    def table(self, length: int) -> np.ndarray:
        """The row for each j - i from -(length - 1) to length - 1: int64 [2 * length - 1]."""
        away = np.arange(-(length - 1), length, dtype=np.int64)
        half, exact = self.count // 2, self.count // 4
        far = np.abs(away)
        # In float32, as the reference implementation computes it.
        ratio = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(exact))
        spread = ratio / np.float32(math.log(self.farthest / exact)) * np.float32(half - exact)
        log = np.minimum(exact + spread.astype(np.int64), half - 1)
        rows: np.ndarray = np.where(away > 0, half, 0) + np.where(far < exact, far, log)
        return rows


def _within_shape(name: str, x: list[Shape], w: list[Shape], a: Mapping[str, Any]) -> Shape:
    q, k, v = x
    need(len(q) == 2 and len(k) == 2 and k == v, name, f"q, k, v {[list(s) for s in x]}")
    need(q[1] == k[1] and q[0] % k[0] == 0, name, f"q {list(q)} does not fit k {list(k)}")
    if w:
        need(w[0] == (a["buckets"].count, q[0]), name, f"bias {list(w[0])} for q {list(q)}")
    return (q[0] * q[1],)


def _within(s: Setting, x: Any, w: Any, a: Any) -> np.ndarray:
    out = np.empty((len(x[0]), x[0][0].size), np.float32)
    for text in np.unique(s.sequence):
        rows = np.flatnonzero(s.sequence == text)
        q, k, v = (t[rows] for t in x)
        group, n = q.shape[1] // k.shape[1], len(rows)
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) * np.float32(a["scale"])
        away = np.arange(n)[None, :] - np.arange(n)[:, None]  # j - i
        if w:
            scores += w[0][a["buckets"].table(n)[away + n - 1]].transpose(2, 0, 1)
        seen = away <= (0 if a["causal"] else n)
        if a["reach"] is not None:
            seen &= np.abs(away) <= a["reach"]
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        out[rows] = np.einsum("hij,jhd->ihd", p, v).reshape(n, -1)
    return out


def _pool_shape(name: str, x: list[Shape], _w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    need(len(x[0]) == 1, name, f"a mean is of flat rows, not {list(x[0])}")
    return x[0]


def _pool(s: Setting, x: Any, _w: Any, _a: Any) -> np.ndarray:
    texts = s.sequence[s.outputs]
    means = [x[0][s.sequence == text].mean(axis=0, dtype=np.float64) for text in texts]
    return np.asarray(means, np.float32).reshape(len(texts), -1)


ATTEND_WITHIN = OpSpec(_within_shape, _within)
POOL = OpSpec(_pool_shape, _pool)
