"""The operations that carry a state from one position of a sequence to the next.

A state is what a sequence keeps of its past in a fixed room: the newest inputs of a convolution,
the matrix of a delta net. A row reads what the row before it left, whatever pass that was in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from golem_core.graph.spec import OpSpec, Setting, Shape, need


def _conv_shape(name: str, x: list[Shape], w: list[Shape], a: Mapping[str, Any]) -> Shape:
    need(len(x[0]) == 1, name, f"a convolution reads channels, not {list(x[0])}")
    need(len(w[0]) == 2 and w[0][0] == x[0][0], name, f"taps {list(w[0])} for {list(x[0])}")
    need(w[0][1] >= 2, name, f"{w[0][1]} taps; one has no past")
    kept = (w[0][1] - 1, x[0][0])
    need(a["state"].shape == kept, name, f"state {list(a['state'].shape)}, not {list(kept)}")
    return x[0]


def _conv(s: Setting, x: Any, w: Any, a: Any) -> np.ndarray:
    out: np.ndarray = np.empty_like(x[0])
    for row, now in enumerate(x[0]):
        seen = np.concatenate([s.carried(a["state"], row), now[None]])  # [taps, channels]
        out[row] = (seen * w[0].T).sum(axis=0)
        s.carry(a["state"], row, seen[1:])
    return out


def _decay_shape(name: str, x: list[Shape], w: list[Shape], _a: Mapping[str, Any]) -> Shape:
    need(w[0] == x[0] and w[1] == x[0], name, f"{list(x[0])} with {[list(s) for s in w]}")
    return x[0]


def _decay(_s: Setting, x: Any, w: Any, _a: Any) -> np.ndarray:
    z = (x[0] + w[1]).astype(np.float64)
    return np.asarray(np.exp(w[0] * np.logaddexp(0.0, z)).astype(np.float32))


def _delta_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    q, k, v, decay, beta = x
    need(len(q) == 2 and len(v) == 2 and q == k, name, f"q {list(q)}, k {list(k)}, v {list(v)}")
    need(v[0] % q[0] == 0, name, f"{v[0]} value heads for {q[0]} key heads")
    need(decay == v[:1] and beta == v[:1], name, f"decay {list(decay)}, beta {list(beta)}")
    kept = (v[0], q[1], v[1])
    need(a["state"].shape == kept, name, f"state {list(a['state'].shape)}, not {list(kept)}")
    return v


def _delta(s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    q, k, v, decay, beta = x
    repeats = v.shape[1] // q.shape[1]
    out: np.ndarray = np.empty_like(v)
    for row in range(len(v)):
        query, key = np.tile(q[row], (repeats, 1)), np.tile(k[row], (repeats, 1))
        state = s.carried(a["state"], row) * decay[row][:, None, None]  # [heads, dk, dv]
        error = (v[row] - np.einsum("hkv,hk->hv", state, key)) * beta[row][:, None]
        state = state + key[:, :, None] * error[:, None, :]
        out[row] = np.einsum("hkv,hk->hv", state, query)
        s.carry(a["state"], row, state)
    return out


def _previous_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    need(a["state"].shape == x[0], name, f"state {list(a['state'].shape)}, not {list(x[0])}")
    return x[0]


def _previous(s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    out: np.ndarray = np.empty_like(x[0])
    for row, now in enumerate(x[0]):
        out[row] = s.carried(a["state"], row)
        s.carry(a["state"], row, now)
    return out


def _recall_shape(_n: str, _x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    shape: Shape = a["state"].shape
    return shape


def _recall(s: Setting, _x: Any, _w: Any, a: Any) -> np.ndarray:
    return np.stack([s.carried(a["state"], row) for row in range(len(s.ids))])


def _pass_on_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> None:
    need(a["state"].shape == x[0], name, f"state {list(a['state'].shape)}, not {list(x[0])}")


def _pass_on(s: Setting, x: Any, _w: Any, a: Any) -> None:
    for row, now in enumerate(x[0]):
        s.pass_on(a["state"], row, now)


CONV = OpSpec(_conv_shape, _conv)
DECAY = OpSpec(_decay_shape, _decay)
DELTA = OpSpec(_delta_shape, _delta)
PREVIOUS = OpSpec(_previous_shape, _previous)
RECALL = OpSpec(_recall_shape, _recall)
PASS_ON = OpSpec(_pass_on_shape, _pass_on)
