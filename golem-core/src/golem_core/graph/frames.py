"""The operations that a codec of sound needs: inputs, rows at other rates, their convolutions.

A codec's column is a step of its slowest layers. Faster layers have several rows a column: `split`
says the elements of a row as so many shorter rows, `join` the other way, and neither moves any. So
a convolution that goes up by r is one with r times the outputs, then split; one that goes down by
r reads joined rows. All that is left is the causal convolution itself, which is a product over
windows of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from golem_core.graph.spec import OpSpec, Setting, Shape, need


def _input_shape(_n: str, _x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    shape: Shape = a["shape"]
    return shape


def _input(s: Setting, _x: Any, _w: Any, a: Any) -> np.ndarray:
    return s.given(a["key"])


def _split_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    need(len(x[0]) == 1 and x[0][0] % a["parts"] == 0, name, f"{list(x[0])} in {a['parts']} rows")
    return (x[0][0] // a["parts"],)


def _split(_s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    return np.asarray(x[0].reshape(len(x[0]) * a["parts"], -1))


def _join_shape(name: str, x: list[Shape], _w: list[Shape], a: Mapping[str, Any]) -> Shape:
    need(len(x[0]) == 1, name, f"{list(x[0])} are no flat rows")
    return (x[0][0] * a["parts"],)


def _join(_s: Setting, x: Any, _w: Any, a: Any) -> np.ndarray:
    return np.asarray(x[0].reshape(len(x[0]) // a["parts"], -1))


def _convolve_shape(name: str, x: list[Shape], w: list[Shape], a: Mapping[str, Any]) -> Shape:
    need(len(x[0]) == 1, name, f"a convolution reads channels, not {list(x[0])}")
    need(len(w[0]) == 2 and w[0][1] % x[0][0] == 0, name, f"taps {list(w[0])} for {list(x[0])}")
    taps = w[0][1] // x[0][0]
    need(taps >= 2, name, f"{taps} taps; one has no past")
    kept = (taps - 1, x[0][0])
    need(a["state"].shape == kept, name, f"state {list(a['state'].shape)}, not {list(kept)}")
    if len(w) > 1:
        need(w[1] == (w[0][0],), name, f"bias {list(w[1])} does not fit the taps {list(w[0])}")
    return (w[0][0],)


def _convolve(s: Setting, x: Any, w: Any, a: Any) -> np.ndarray:
    rate = len(x[0]) // len(s.ids)
    out = np.empty((len(x[0]), len(w[0])), np.float32)
    for row, now in enumerate(x[0]):
        seen = np.concatenate([s.carried(a["state"], row // rate), now[None]])  # [taps, channels]
        out[row] = w[0] @ seen.reshape(-1)
        s.carry(a["state"], row // rate, seen[1:])
    return np.asarray(out + w[1] if len(w) > 1 else out)


INPUT = OpSpec(_input_shape, _input)
SPLIT = OpSpec(_split_shape, _split)
JOIN = OpSpec(_join_shape, _join)
CONVOLVE = OpSpec(_convolve_shape, _convolve)
