"""The float kernels of each instruction set: against float64, and against each other to the bit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from golem_core.cpu import dispatch
from golem_core.cpu.probe_floats import LANES, SCRATCH, Floats


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


class Pages:
    """Keys and values of positions 0..n in pages of either type, each page where `table` says."""

    def __init__(self, layer: Floats, key: Any, value: Any, kind: Any, spread: int = 1) -> None:
        n, heads, dim = key.shape
        count = (n + 31) // 32
        self.table = (np.arange(count, dtype=np.int32)[::-1] * spread).copy()
        stale = np.nan if kind is np.float32 else 0x7E00  # what an unwritten slot holds
        self.keys = np.full((count * spread, heads, dim, 32), stale, kind)
        self.values = np.full((count * spread, heads, 32, -(-dim // 16) * 16), stale, kind)
        for p in range(n):
            layer.store(self.keys, self.values, self.table, p, key[p], value[p])

    def attend(self, layer: Floats, q: Any, positions: Any, **options: Any) -> Any:
        """Attention of rows q [rows, heads * dim], over the key head `head`."""
        out = np.full_like(q, 7)
        o: dict[str, Any] = {
            "head": 0,
            "first": 0,
            "count": 1,
            "softcap": 0.0,
            "window": 0,
            "scale": 0.125,
        }
        o |= options
        at = np.asarray(positions, np.int32)
        scratch = np.full(SCRATCH, np.nan, np.float32)
        layer.attend(
            self.keys,
            self.values,
            self.table,
            o["head"],
            o["first"],
            o["count"],
            np.ascontiguousarray(q),
            at,
            o["scale"],
            o["softcap"],
            o["window"],
            out,
            scratch,
        )
        return out


def attention(q: Any, k: Any, v: Any, at: int, scale: float, softcap: float, window: int) -> Any:
    """One head of one row in float64: q [dim], k and v [n, dim]."""
    first = max(0, at - window + 1) if window else 0
    k, v = (x[first : at + 1].astype(np.float64) for x in (k, v))
    s = k @ q.astype(np.float64) * scale
    s = np.tanh(s / softcap) * softcap if softcap else s
    p = np.exp(s - s.max())
    return p @ v / p.sum()


KINDS = pytest.mark.parametrize("kind", [np.uint16, np.float32], ids=["half", "float"])


@every_layer
@KINDS
@pytest.mark.parametrize(
    ("dim", "count", "n"), [(64, 3, 100), (16, 1, 33), (80, 5, 70), (20, 9, 40), (512, 4, 40)]
)
@pytest.mark.parametrize(
    ("softcap", "window"), [(0.0, 0), (5.0, 0), (0.0, 7), (0.0, 40), (3.0, 33)]
)
def test_attend(
    layer: Floats, kind: Any, dim: int, count: int, n: int, softcap: float, window: int
) -> None:
    rows = min(8, n)
    k, v = floats(n, 2, dim, seed=1), floats(n, 2, dim, seed=2)
    k, v = (x.astype(np.float16).astype(np.float32) for x in (k, v))
    q = floats(rows, 2 * count * dim, seed=3, offset=1) * 2
    pages = Pages(layer, k, v, kind, spread=2)
    how = {"count": count, "softcap": softcap, "window": window, "scale": dim**-0.5}
    for head in range(2):
        place = {"head": head, "first": head * count}
        for start in {0, n // 2, n - rows}:
            at = np.arange(start, start + rows)
            got = pages.attend(layer, q, at, **place, **how)
            split = got.reshape(rows, 2, count, dim)
            assert np.all(split[:, 1 - head] == 7)
            for i, h in np.ndindex(rows, count):
                row = q.reshape(rows, 2, count, dim)[i, head, h]
                wanted = attention(row, k[:, head], v[:, head], at[i], dim**-0.5, softcap, window)
                # A score is one chain of dim roundings, whose error grows like a random walk.
                atol = 2e-7 * dim**0.5
                np.testing.assert_allclose(split[i, head, h], wanted, rtol=2e-5, atol=atol)
            assert same(got, pages.attend(GENERIC, q, at, **place, **how))


@every_layer
@KINDS
@pytest.mark.parametrize("window", [0, 20])
def test_a_row_attends_alike_in_any_company(layer: Floats, kind: Any, window: int) -> None:
    n, count, dim = 90, 6, 48
    k, v = floats(n, 1, dim, seed=1), floats(n, 1, dim, seed=2)
    q = floats(n, count * dim, seed=3)
    pages = Pages(layer, k, v, kind)
    whole = np.concatenate(
        [
            pages.attend(
                layer, q[i : i + 8], np.arange(i, min(i + 8, n)), count=count, window=window
            )
            for i in range(0, n, 8)
        ]
    )
    elsewhere = Pages(layer, k, v, kind, spread=3)
    for i in range(n):
        one = elsewhere.attend(layer, q[i : i + 1], [i], count=count, window=window)
        assert same(one[0], whole[i])
    for size in (3, 5):
        for i in range(0, n - size, size):
            at = np.arange(i, i + size)
            got = pages.attend(layer, q[i : i + size], at, count=count, window=window)
            assert same(got, whole[i : i + size])
    for h in range(count):
        got = pages.attend(layer, q[:8], np.arange(8), first=h, window=window)
        heads = slice(h * dim, (h + 1) * dim)
        assert same(got[:, heads], whole[:8, heads])
    far = pages.attend(layer, q[[80, 2, 40]], [80, 2, 40], count=count, window=window)
    assert same(far, whole[[80, 2, 40]])


@every_layer
@KINDS
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_a_row_does_not_see_does_not_reach_it(layer: Floats, kind: Any, poison: float) -> None:
    n, count, dim, window = 80, 2, 32, 30
    k, v = floats(n, 1, dim, seed=1), floats(n, 1, dim, seed=2)
    q = floats(8, count * dim, seed=3)
    at = np.arange(60, 68)
    clean = Pages(layer, k, v, kind).attend(layer, q, at, count=count, window=window)
    for i, place in enumerate(at):
        hidden = np.ones(n, bool)
        hidden[place - window + 1 : place + 1] = False
        k2, v2 = k.copy(), v.copy()
        k2[hidden], v2[hidden] = poison, poison
        pages = Pages(layer, k2, v2, kind)
        got = pages.attend(layer, q, at, count=count, window=window)
        assert same(got[i], clean[i])


@every_layer
def test_attend_passes_nan_on(layer: Floats) -> None:
    k, v = floats(40, 1, 32, seed=1), floats(40, 1, 32, seed=2)
    q = floats(2, 32, seed=3)
    q[0, 5] = np.nan
    got = Pages(layer, k, v, np.uint16).attend(layer, q, [38, 39])
    assert np.isnan(got[0]).all()
    assert np.isfinite(got[1]).all()


@every_layer
def test_every_half(layer: Floats) -> None:
    """All 65,536 halves to float32 and back, by way of a page that one position sees."""
    every = np.arange(65536, dtype=np.uint16).reshape(128, 512)
    numbers = every.view(np.float16).astype(np.float32)
    pages = Pages(layer, np.zeros((1, 128, 512), np.float32), numbers[None], np.uint16)
    back = pages.values[0, :, 0]
    nan = np.isnan(numbers)
    assert np.array_equal(back[~nan], every[~nan])
    assert np.array_equal(back[nan] & 0xFE00, (every[nan] & 0xFC00) | 0x0200)
    for head in range(128):
        got = pages.attend(layer, np.zeros((1, 512), np.float32), [0], head=head)
        np.testing.assert_array_equal(got[0], numbers[head])


@every_layer
def test_floats_round_to_half_as_numpy_does(layer: Floats) -> None:
    every = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float64)
    every[-1] = 65536
    middle = ((every[:-1] + every[1:]) / 2).astype(np.float32)
    x = np.concatenate([np.nextafter(middle, np.float32(s * np.inf)) for s in (-1, 1)] + [middle])
    x = np.concatenate([x, -x, floats(100_000) * 1000, [1e-45, 1e38, np.inf, -np.inf]])
    x = np.resize(x.astype(np.float32), (-(-x.size // 512), 512))
    pages = Pages(layer, x[None], x[None], np.uint16)
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float16).view(np.uint16)
    assert np.array_equal(pages.values[0, :, 0], wanted)
    assert np.array_equal(pages.keys[0, :, :, 0], wanted)


@every_layer
@KINDS
@pytest.mark.parametrize("dim", [8, 20, 64])
def test_store_writes_one_slot(layer: Floats, kind: Any, dim: int) -> None:
    padded = -(-dim // 16) * 16
    keys = np.full((3, 2, dim, 32), 9, kind)
    values = np.full((3, 2, 32, padded), 9, kind)
    key, value = floats(2, dim, seed=1), floats(2, dim, seed=2)
    layer.store(keys, values, np.array([1, 2], np.int32), 37, key, value)
    as_kind = (lambda x: x.astype(np.float16).view(np.uint16)) if kind is np.uint16 else np.asarray
    assert np.array_equal(keys[2, :, :, 5], as_kind(key))
    assert np.array_equal(values[2, :, 5, :dim], as_kind(value))
    keys[2, :, :, 5], values[2, :, 5] = 9, 9
    assert np.all(keys == 9)
    assert np.all(values == 9)
