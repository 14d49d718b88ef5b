"""The table of operations: for each one its shape rule and its reference in numpy.

The reference is the specification: plain, float32, never tuned. It gets the rows of a pass as
arrays [rows, *shape], the weights as float32 arrays and the op's attributes; what reaches beyond a
row (token ids, positions, pages) comes from a `Setting`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from golem_core.graph.encoder import ATTEND_WITHIN, POOL
from golem_core.graph.frames import CONVOLVE, INPUT, JOIN, SPLIT
from golem_core.graph.mixture import COMBINE, LINEAR_EXPERTS, ROUTE
from golem_core.graph.recurrent import CONV, DECAY, DELTA, PASS_ON, PREVIOUS, RECALL
from golem_core.graph.spec import OpSpec, Setting, Shape, need

ACTIVATIONS = ("silu", "gelu_tanh", "gelu_erf", "sigmoid", "elu")


# Shape rules


def _embed_shape(name: str, _x: list[Shape], w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    need(len(w[0]) == 2, name, f"an embedding table has two dimensions, not {list(w[0])}")
    return w[0][1:]


def _linear_shape(name: str, x: list[Shape], w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    need(len(w[0]) == 2, name, f"a matrix has two dimensions, not {list(w[0])}")
    need(x[0] == (w[0][1],), name, f"input {list(x[0])} does not fit the matrix {list(w[0])}")
    if len(w) > 1:
        need(w[1] == (w[0][0],), name, f"bias {list(w[1])} does not fit the matrix {list(w[0])}")
    return (w[0][0],)


def _rms_norm_shape(name: str, x: list[Shape], w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    if w:
        need(w[0] == x[0][-1:], name, f"weight {list(w[0])} does not fit {list(x[0])}")
    return x[0]


def _layer_norm_shape(name: str, x: list[Shape], w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    for shape in w:
        need(shape == x[0][-1:], name, f"weight {list(shape)} does not fit {list(x[0])}")
    return x[0]


def _rope_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    rope = a["rope"]
    need(len(x[0]) == 2, name, f"rope turns [heads, dim], not {list(x[0])}")
    need(rope.layout in ("half", "pairs"), name, f"no rope layout {rope.layout!r}")
    need(rope.dims % 2 == 0 and rope.dims <= x[0][1], name, f"{rope.dims} of {x[0][1]} dims")
    return x[0]


def _store_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> None:
    kept = (a["cache"].heads, a["cache"].dim)
    need(x[0] == kept and x[1] == kept, name, f"cache {list(kept)}, k, v {list(x[0])} {list(x[1])}")


def _attend_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    cache = a["cache"]
    need(len(x[0]) == 2 and x[0][1] == cache.dim, name, f"q {list(x[0])}, dim {cache.dim}")
    need(x[0][0] % cache.heads == 0, name, f"{x[0][0]} query heads, {cache.heads} key heads")
    return (x[0][0] * x[0][1],)


def _same_shape(name: str, x: list[Shape], _w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    need(all(shape == x[0] for shape in x), name, f"shapes differ: {[list(s) for s in x]}")
    return x[0]


def _glu_shape(name: str, x: list[Shape], w: list[Shape], a: Mapping[str, Any]) -> Shape:
    need(a["act"] in ACTIVATIONS, name, f"no activation {a['act']!r}")
    return x[1] if x[0] == (1,) and len(x) == 2 else _same_shape(name, x, w, a)


def _reshape_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    shape: Shape = a["shape"]
    need(math.prod(shape) == math.prod(x[0]), name, f"{list(x[0])} is not {list(shape)}")
    return shape


def _slice_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    start, stop = a["start"], a["stop"]
    need(0 <= start < stop <= x[0][-1], name, f"{start} to {stop} of {list(x[0])}")
    return (*x[0][:-1], stop - start)


def _concat_shape(name: str, x: list[Shape], _w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    need(x[0][:-1] == x[1][:-1], name, f"{list(x[0])} does not stand beside {list(x[1])}")
    return (*x[0][:-1], x[0][-1] + x[1][-1])


def _scale_shape(name: str, x: list[Shape], w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    need(not w or w[0] == (1,), name, f"a factor is one number, not {[list(s) for s in w]}")
    return x[0]


# References


def _embed(s: Setting, _x: Any, w: Any, a: Any) -> np.ndarray:
    by = {"ids": s.ids, "positions": s.positions, "kinds": s.kinds, "": np.zeros_like(s.ids)}
    return np.asarray(w[0][by[a["by"]] + a["first"]])


def _linear(_s: Setting, x: Any, w: Any, _a: Any) -> np.ndarray:
    y = x[0] @ w[0].T
    return np.asarray(y + w[1] if len(w) > 1 else y)


def _rms_norm(_s: Setting, x: Any, w: Any, a: Any) -> np.ndarray:
    mean = np.mean(x[0].astype(np.float64) ** 2, axis=-1, keepdims=True)
    y = (x[0] / np.sqrt(mean + a["eps"])).astype(np.float32)
    return np.asarray(y * w[0] if w else y)


def _layer_norm(_s: Setting, x: Any, w: Any, a: Any) -> np.ndarray:
    z = x[0].astype(np.float64)
    z -= z.mean(axis=-1, keepdims=True)
    y = (z / np.sqrt(np.mean(z**2, axis=-1, keepdims=True) + a["eps"])).astype(np.float32)
    y = y * w[0] if w else y
    return np.asarray(y + w[1] if len(w) > 1 else y)


def _rope(s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    rope, y = a["rope"], x[0].copy()
    angle = s.positions[:, None, None] * rope.frequencies()
    cos = (rope.magnitude * np.cos(angle)).astype(np.float32)
    sin = (rope.magnitude * np.sin(angle)).astype(np.float32)
    dims = np.arange(rope.dims)
    if rope.layout == "half":
        first, second = dims[: rope.dims // 2], dims[rope.dims // 2 :]
    else:
        first, second = dims[0::2], dims[1::2]
    y[..., first] = x[0][..., first] * cos - x[0][..., second] * sin
    y[..., second] = x[0][..., second] * cos + x[0][..., first] * sin
    return np.asarray(y)


def _store(s: Setting, x: Any, _w: Any, a: Any) -> None:
    for row in range(len(x[0])):
        s.keep(a["cache"], row, x[0][row], x[1][row])


def _attend(s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    out = np.empty((len(x[0]), x[0][0].size), np.float32)
    for row, q in enumerate(x[0]):
        keys, values = s.kept(a["cache"], row)
        group = len(q) // keys.shape[1]
        keys, values = np.repeat(keys, group, axis=1), np.repeat(values, group, axis=1)
        scores = np.einsum("hd,phd->hp", q, keys) * np.float32(a["scale"])
        if a["softcap"]:
            scores = a["softcap"] * np.tanh(scores / a["softcap"])
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        out[row] = np.einsum("hp,phd->hd", p, values).reshape(-1)
    return out


def _add(_s: Setting, x: Any, _w: Any, _a: Any) -> np.ndarray:
    return np.asarray(x[0] + x[1])


def _mul(_s: Setting, x: Any, _w: Any, _a: Any) -> np.ndarray:
    return np.asarray(x[0] * x[1])


def _scale(_s: Setting, x: Any, w: Any, a: Any) -> np.ndarray:
    return np.asarray(x[0] * (w[0][0] if w else np.float32(a["factor"])))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def activate(x: np.ndarray, act: str) -> np.ndarray:
    """The activation `act` of x, float32, worked in float64."""
    z = x.astype(np.float64)
    if act == "silu":
        y = z * 0.5 * (1.0 + np.tanh(0.5 * z))
    elif act == "gelu_tanh":
        y = 0.5 * z * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * z**3)))
    elif act == "sigmoid":
        y = 0.5 * (1.0 + np.tanh(0.5 * z))
    elif act == "elu":
        y = np.where(z > 0, z, np.expm1(np.minimum(z, 0.0)))
    else:
        y = 0.5 * z * (1.0 + _erf(z / math.sqrt(2.0)))
    return np.asarray(y.astype(np.float32))


def _glu(_s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    return np.asarray(activate(x[0], a["act"]) * x[1])


def _activate(_s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    return activate(x[0], a["act"])


def _softcap(_s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    return np.asarray(np.float32(a["cap"]) * np.tanh(x[0] / np.float32(a["cap"])))


def _pick(s: Setting, x: Any, _w: Any, _a: Any) -> np.ndarray:
    return np.asarray(x[0][s.outputs])


def _slice(_s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    return np.ascontiguousarray(x[0][..., a["start"] : a["stop"]])


def _concat(_s: Setting, x: Any, _w: Any, _a: Any) -> np.ndarray:
    return np.concatenate(x, axis=-1)


def _reshape(_s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    return np.asarray(x[0].reshape(len(x[0]), *a["shape"]))


OPS: Mapping[str, OpSpec] = {
    "input": INPUT,
    "embed": OpSpec(_embed_shape, _embed),
    "linear": OpSpec(_linear_shape, _linear),
    "rms_norm": OpSpec(_rms_norm_shape, _rms_norm),
    "layer_norm": OpSpec(_layer_norm_shape, _layer_norm),
    "rope": OpSpec(_rope_shape, _rope),
    "store": OpSpec(_store_shape, _store),
    "attend": OpSpec(_attend_shape, _attend),
    "attend_within": ATTEND_WITHIN,
    "pool": POOL,
    "add": OpSpec(_same_shape, _add),
    "mul": OpSpec(_same_shape, _mul),
    "scale": OpSpec(_scale_shape, _scale),
    "glu": OpSpec(_glu_shape, _glu),
    "activate": OpSpec(_glu_shape, _activate),
    "softcap": OpSpec(_same_shape, _softcap),
    "pick": OpSpec(_same_shape, _pick),
    "reshape": OpSpec(_reshape_shape, _reshape),
    "slice": OpSpec(_slice_shape, _slice),
    "concat": OpSpec(_concat_shape, _concat),
    "split": SPLIT,
    "join": JOIN,
    "convolve": CONVOLVE,
    "route": ROUTE,
    "linear_experts": LINEAR_EXPERTS,
    "combine": COMBINE,
    "decay": DECAY,
    "conv": CONV,
    "delta": DELTA,
    "previous": PREVIOUS,
    "recall": RECALL,
    "pass_on": PASS_ON,
}
