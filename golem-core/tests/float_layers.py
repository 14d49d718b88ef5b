"""What tests of float kernels share: the instruction sets that have them, arrays, comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from golem_core.cpu import dispatch
from golem_core.cpu.probe_floats import Floats


def layers() -> Iterator[Floats]:
    """The layers that have float kernels of their own."""
    before = dispatch.layer()
    for name in dispatch.LAYERS:
        dispatch.use(name)
        if dispatch.origins()["rms_norm"] == name:
            yield Floats(name)
    dispatch.use(before)


LAYERS = list(layers())
GENERIC = LAYERS[0]
SIZES = [1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 576, 1027]

every_layer = pytest.mark.parametrize("layer", LAYERS, ids=[layer.name for layer in LAYERS])


def floats(*shape: int, seed: int = 0, offset: int = 0) -> Any:
    """Normal numbers, `offset` elements past an allocation's start (so rarely aligned)."""
    count = math.prod(shape)
    drawn = np.random.default_rng(seed).standard_normal(count + offset).astype(np.float32)
    return drawn[offset:].reshape(shape)


def guarded(n: int) -> Any:
    """An output of n floats with a guard of sevens behind it."""
    return np.full(n + 16, 7, np.float32)


def same(a: Any, b: Any) -> bool:
    """Whether two arrays agree to the bit, all NaNs being one."""
    return a.shape == b.shape and bool(
        np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b)))
    )


def ulps(got: Any, wanted: Any) -> float:
    """The largest distance from float64 `wanted`, in units of its last float32 place."""
    spacing = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(got.astype(np.float64) - wanted) / spacing))


def run(method: str, layer: Floats, n: int, *before: Any) -> Any:
    """Calls layer.method(*before, out) and returns out [n], with the guard checked."""
    out = guarded(n)
    getattr(layer, method)(*before, out[:n])
    assert np.all(out[n:] == 7)
    return out[:n]
