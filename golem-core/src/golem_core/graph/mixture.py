"""The operations of a mixture of experts: who is chosen, their matrices, the sum of what they say.

A routing is a value like any other, [2, used] for a row: the numbers of the chosen experts, best
first, and below them their weights. Shazeer et al., 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from golem_core.graph.spec import OpSpec, Setting, Shape, need


def _route_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    need(len(x[0]) == 1, name, f"scores have one dimension, not {list(x[0])}")
    need(0 < a["used"] <= x[0][0], name, f"{a['used']} of {x[0][0]} experts")
    return (2, a["used"])


def _route(_s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    scores = x[0].astype(np.float64)
    # A stable sort of the negatives: of two equal scores the lower number is taken first.
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : a["used"]]
    best = np.take_along_axis(scores, chosen, axis=-1)
    weights = np.exp(best - best[:, :1])
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.asarray(np.stack([chosen, weights], axis=1).astype(np.float32))


def _used(name: str, routing: Shape) -> int:
    need(len(routing) == 2 and routing[0] == 2, name, f"{list(routing)} is no routing [2, used]")
    return routing[1]


def _linear_shape(name: str, x: list[Shape], w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    used = _used(name, x[1])
    need(len(w[0]) == 3, name, f"experts' matrices have three dimensions, not {list(w[0])}")
    inputs = w[0][2]
    need(
        x[0] in ((inputs,), (used, inputs)),
        name,
        f"input {list(x[0])} does not fit {used} of the matrices {list(w[0])}",
    )
    return (used, w[0][1])


def _linear(_s: Setting, x: Any, w: Any, _a: Any) -> np.ndarray:
    values, routing = x
    rows, used = len(values), routing.shape[-1]
    out = np.empty((rows, used, w[0].shape[1]), np.float32)
    for row in range(rows):
        for slot in range(used):
            column = values[row] if values.ndim == 2 else values[row, slot]
            out[row, slot] = w[0][int(routing[row, 0, slot])] @ column
    return out


def _combine_shape(name: str, x: list[Shape], w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    used = _used(name, x[1])
    need(len(x[0]) == 2 and x[0][0] == used, name, f"{list(x[0])} is not of {used} experts")
    need(not w or len(w[0]) == 1, name, "an expert has one scale")
    return x[0][1:]


def _combine(_s: Setting, x: Any, w: Any, _a: Any) -> np.ndarray:
    values, routing = x
    weights = routing[:, 1]
    if w:
        weights = weights * w[0][routing[:, 0].astype(np.int64)]
    return np.asarray(np.einsum("rs,rsd->rd", weights, values).astype(np.float32))


ROUTE = OpSpec(_route_shape, _route)
LINEAR_EXPERTS = OpSpec(_linear_shape, _linear)
COMBINE = OpSpec(_combine_shape, _combine)
