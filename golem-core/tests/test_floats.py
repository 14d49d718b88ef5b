"""The float kernels of each instruction set: against float64, and against each other to the bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from golem_core.cpu.probe_floats import LANES, Floats

from .float_layers import GENERIC, SIZES, every_layer, floats, run, same, ulps


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


ACTS = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: x / 2 * (1 + erf(x / np.sqrt(2))),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}


@every_layer
@pytest.mark.parametrize("cols", SIZES)
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm(layer: Floats, cols: int, weighted: bool) -> None:
    x = floats(cols, seed=cols, offset=1)
    w = floats(cols, seed=1, offset=3) if weighted else None
    got = run("rms_norm", layer, cols, x, w, 1e-5)
    wide = x.astype(np.float64)
    wanted = wide / np.sqrt(np.mean(wide**2) + 1e-5) * (1 if w is None else w)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert same(got, run("rms_norm", GENERIC, cols, x, w, 1e-5))
    layer.rms_norm(x, w, 1e-5, x)
    assert same(got, x)


@every_layer
@pytest.mark.parametrize("cols", SIZES)
@pytest.mark.parametrize("weighted", [True, False])
def test_layer_norm(layer: Floats, cols: int, weighted: bool) -> None:
    x = floats(cols, seed=cols, offset=1) + 3
    w, b = (floats(cols, seed=i, offset=i) if weighted else None for i in (1, 2))
    got = run("layer_norm", layer, cols, x, w, b, 1e-5)
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5)
    if w is not None:
        wanted = wanted * w + b
    np.testing.assert_allclose(got, wanted, atol=2e-5)
    assert same(got, run("layer_norm", GENERIC, cols, x, w, b, 1e-5))
    layer.layer_norm(x, w, b, 1e-5, x)
    assert same(got, x)


@every_layer
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("act", ACTS)
def test_glu(layer: Floats, act: str, n: int, gated: bool) -> None:
    gate = floats(n, seed=n, offset=1) * 4
    up = floats(n, seed=1, offset=3) if gated else None
    got = run("glu", layer, n, act, gate, up)
    wanted = ACTS[act](gate.astype(np.float64)) * (1 if up is None else up)
    np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6)
    assert same(got, run("glu", GENERIC, n, act, gate, up))
    layer.glu(act, gate, up, gate)
    assert same(got, gate)


@every_layer
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ["add", "mul", "scale", "softcap"])
def test_elementwise(layer: Floats, name: str, n: int) -> None:
    a, b = floats(n, seed=n, offset=1) * 3, floats(n, seed=1, offset=2)
    method, other = ("scalar", 1.7) if name in ("scale", "softcap") else ("binary", b)
    got = run(method, layer, n, name, a, other)
    if name == "softcap":
        assert ulps(got, np.tanh(a.astype(np.float64) / other) * other) < 5
    else:
        assert same(
            got, a + b if name == "add" else a * np.float32(other) if name == "scale" else a * b
        )
    assert same(got, run(method, GENERIC, n, name, a, other))


@every_layer
@pytest.mark.parametrize("n", SIZES)
def test_axpy(layer: Floats, n: int) -> None:
    a, begun = floats(n, seed=n, offset=1), floats(n, seed=1, offset=3)
    got, plain = begun.copy(), begun.copy()
    layer.axpy(a, 1.7, got)
    GENERIC.axpy(a, 1.7, plain)
    # Rounded once: float64 holds the product of two float32 exactly.
    wanted = a.astype(np.float64) * np.float32(1.7) + begun
    assert ulps(got, wanted) <= 0.5
    assert same(got, plain)


@every_layer
@pytest.mark.parametrize("channels", SIZES)
@pytest.mark.parametrize(("rows", "taps"), [(1, 4), (2, 4), (5, 2), (9, 5)])
def test_conv(layer: Floats, channels: int, rows: int, taps: int) -> None:
    x, weight = floats(rows, channels, seed=1, offset=1), floats(taps, channels, seed=2, offset=2)
    before = floats(taps - 1, channels, seed=3, offset=3)
    got, plain = (np.empty((rows, channels), np.float32) for _ in range(2))
    layer.conv(x, weight, before, got)
    GENERIC.conv(x, weight, before, plain)
    seen = np.concatenate([before, x]).astype(np.float64)
    wanted = sum(weight[t] * seen[t : t + rows] for t in range(taps))
    np.testing.assert_allclose(got, wanted, atol=1e-6 * taps)
    assert same(got, plain)


@every_layer
@pytest.mark.parametrize("lanes", [1, 15, 16, 17, 31, 32])
@pytest.mark.parametrize(("dk", "rows"), [(1, 2), (3, 5), (20, 3), (128, 9)])
def test_delta(layer: Floats, lanes: int, dk: int, rows: int) -> None:
    begun = np.zeros((dk, LANES), np.float32)
    begun[:, :lanes] = floats(dk, lanes, seed=1)
    q, k, v = floats(rows, dk, seed=2), floats(rows, dk, seed=3), floats(rows, lanes, seed=4)
    k /= np.linalg.norm(k, axis=1, keepdims=True)
    decay, beta = (np.random.default_rng(i).random(rows).astype(np.float32) for i in (5, 6))
    state, plain = begun.copy(), begun.copy()
    got, other = (np.empty((rows, lanes), np.float32) for _ in range(2))
    layer.delta(state, q, k, v, decay, beta, got)
    GENERIC.delta(plain, q, k, v, decay, beta, other)
    wide = begun[:, :lanes].astype(np.float64)
    for row in range(rows):
        wide *= decay[row]
        wide += np.outer(k[row], beta[row] * (v[row] - k[row].astype(np.float64) @ wide))
        wanted = q[row].astype(np.float64) @ wide
        # Sums of dk float32 products of normal numbers.
        np.testing.assert_allclose(got[row], wanted, atol=1e-6 * max(dk, 8))
    np.testing.assert_allclose(state[:, :lanes], wide, atol=3e-6)
    assert np.all(state[:, lanes:] == 0)
    assert same(got, other)
    assert same(state, plain)
    # Cut anywhere, the same bits.
    first = rows // 2
    state, again = begun.copy(), np.empty((rows, lanes), np.float32)
    for part in (slice(0, first), slice(first, rows)):
        if part.start < part.stop:
            layer.delta(state, q[part], k[part], v[part], decay[part], beta[part], again[part])
    assert same(again, got)
    assert same(state, plain)


@every_layer
def test_expm1_by_elu(layer: Floats) -> None:
    x = np.concatenate([np.linspace(-90, 2, 200_001), -np.logspace(-30, 0, 10_001)])
    x = x.astype(np.float32)
    got = run("glu", layer, x.size, "elu", x, None)
    assert ulps(got, ACTS["elu"](x.astype(np.float64))) < 3
    ends = np.array([-np.inf, -0.0, 0.0, np.inf, np.nan], np.float32)
    got = run("glu", layer, 5, "elu", ends, None)
    assert got[:4].tolist() == [-1, 0, 0, np.inf]
    assert np.isnan(got[4])


@every_layer
def test_exp_by_silu(layer: Floats) -> None:
    x = np.linspace(-88, 88, 200_001, dtype=np.float32)
    got = run("glu", layer, x.size, "silu", x, None)
    wide = x.astype(np.float64)
    seen = np.abs(got) > 2.0**-126
    assert ulps(got[seen], (wide / (1 + np.exp(-wide)))[seen]) < 4
    ends = np.array([-1e30, -200, 1e30, np.inf, np.nan], np.float32)
    got = run("glu", layer, 5, "silu", ends, None)
    assert got[:4].tolist() == [0, 0, np.float32(1e30), np.inf]
    assert np.isnan(got[4])


@every_layer
def test_tanh_and_erf_everywhere(layer: Floats) -> None:
    x = np.concatenate([np.linspace(-12, 12, 100_001), np.geomspace(1e-38, 1, 20_000)])
    x = x.astype(np.float32)
    wide = x.astype(np.float64)
    got = run("scalar", layer, x.size, "softcap", x, 1.0)
    assert ulps(got, np.tanh(wide)) < 3
    assert same(got, run("scalar", GENERIC, x.size, "softcap", x, 1.0))
    for act in ("gelu_erf", "gelu_tanh"):
        got = run("glu", layer, x.size, act, x, None)
        np.testing.assert_allclose(got, ACTS[act](wide), rtol=1e-6, atol=3e-7)
        assert same(got, run("glu", GENERIC, x.size, act, x, None))
    ends = np.array([-np.inf, np.inf, -1e30, 1e30, np.nan], np.float32)
    got = run("scalar", layer, 5, "softcap", ends, 1.0)
    assert got[:4].tolist() == [-1, 1, -1, 1]
    assert np.isnan(got[4])


@every_layer
@pytest.mark.parametrize("dim", [2, 6, 34, 64, 80, 128, 256])
@pytest.mark.parametrize("rest", [0, 2, 48])
@pytest.mark.parametrize("name", ["half", "pairs"])
def test_rope(layer: Floats, name: str, dim: int, rest: int) -> None:
    half = dim // 2
    x, angle = floats(dim + rest, seed=dim, offset=1), floats(half, seed=1)
    cos, sin = np.cos(angle), np.sin(angle)
    first = np.arange(half) if name == "half" else np.arange(half) * 2
    second = first + (half if name == "half" else 1)
    wanted = x.astype(np.float64)
    wanted[first] = x[first].astype(np.float64) * cos - x[second].astype(np.float64) * sin
    wanted[second] = x[second].astype(np.float64) * cos + x[first].astype(np.float64) * sin
    got = run("rope", layer, dim + rest, name, x, cos, sin)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=3e-7)
    assert same(got, run("rope", GENERIC, dim + rest, name, x, cos, sin))
    layer.rope(name, x, cos, sin, x)
    assert same(got, x)


def quantised(layer: Floats, x: Any) -> tuple[Any, ...]:
    """Codes, scales, sums and halves of x [cols]."""
    n = x.size
    out = (
        np.full(n, 99, np.int8),
        np.full(n // 32, 99, np.float32),
        np.full(n // 32, 99, np.int32),
        np.full(n // 16, 99, np.int32),
    )
    layer.quantise(x, *out)
    return out


@every_layer
@pytest.mark.parametrize("cols", [32, 64, 96, 576, 2048])
@pytest.mark.parametrize("size", [1e-42, 1e-30, 1.0, 1e30])
def test_quantise(layer: Floats, cols: int, size: float) -> None:
    x = floats(cols, seed=cols, offset=1) * np.float32(size)
    codes, scales, sums, halves = quantised(layer, x)
    blocks = x.reshape(-1, 32)
    amax = np.abs(blocks).max(1, keepdims=True)
    if size < 1e-36:
        assert not codes.any()
        assert not scales.any()
    else:
        assert np.array_equal(scales, amax[:, 0] / np.float32(127))
        wanted = np.rint(blocks * (np.float32(127) / amax))
        assert np.array_equal(codes.reshape(-1, 32), wanted)
        assert np.abs(codes).max() == 127
    assert np.array_equal(sums, codes.reshape(-1, 32).astype(int).sum(1))
    assert np.array_equal(halves, codes.reshape(-1, 16).astype(int).sum(1))


@every_layer
@pytest.mark.parametrize("cols", [128, 384, 3072])
@pytest.mark.parametrize("size", [1e-42, 1e-30, 1.0, 1e30])
def test_quantise_runs(layer: Floats, cols: int, size: float) -> None:
    x = floats(cols, seed=cols, offset=1) * np.float32(size)
    x[5] = 0.5 * x[:128].max()
    runs = x.reshape(-1, 128)
    codes, scales = np.full(cols, 99, np.int8), np.full(cols // 128, 99, np.float32)
    sums = np.full(cols // 128, 99, np.int32)
    layer.quantise_runs(x, codes, scales, sums)
    amax = np.abs(runs).max(1, keepdims=True)
    if size < 1e-36:
        assert not codes.any()
        assert not scales.any()
    else:
        assert np.array_equal(scales, amax[:, 0] / np.float32(127))
        wanted = np.rint(runs * (np.float32(127) / amax))
        assert np.array_equal(codes.reshape(-1, 128), wanted)
    assert np.array_equal(sums, codes.reshape(-1, 128).astype(int).sum(1))


@every_layer
def test_quantise_runs_passes_nan_on(layer: Floats) -> None:
    x = np.ones(512, np.float32)
    x[127], x[128], x[400] = np.nan, -np.inf, 127
    codes, scales = np.full(512, 99, np.int8), np.full(4, 99, np.float32)
    sums = np.full(4, 99, np.int32)
    layer.quantise_runs(x, codes, scales, sums)
    assert np.isnan(scales[:2]).all()
    assert scales[2:].tolist() == [np.float32(1) / np.float32(127), 1]
    assert not codes[:256].any()
    assert sums.tolist() == [0, 0, 128 * 127, 127 + 127]


@every_layer
def test_quantise_rounds_to_even_and_passes_nan_on(layer: Floats) -> None:
    x = np.zeros(32 * 5, np.float32)
    x[:6] = [127, 0.5, 1.5, 2.5, -0.5, -1.5]
    x[32 + 5], x[64 + 31], x[96] = np.nan, -np.inf, np.inf
    x[33] = 3
    codes, scales, sums, halves = quantised(layer, x)
    assert codes[:6].tolist() == [127, 0, 2, 2, 0, -2]
    assert not codes[6:].any()
    assert scales[[0, 4]].tolist() == [1, 0]
    assert np.isnan(scales[1:4]).all()
    assert sums.tolist() == [129, 0, 0, 0, 0]
    assert halves.tolist() == [129, 0, 0, 0, 0, 0, 0, 0, 0, 0]
