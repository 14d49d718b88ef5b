"""Attention over pages and what is kept in them, by each instruction set: against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from golem_core.cpu.probe_floats import SCRATCH, Floats

from .float_layers import GENERIC, every_layer, floats, same


def flat(x: Any) -> Any:
    """[positions, heads * dim]"""
    return np.ascontiguousarray(x.reshape(len(x), -1))


class Pages:
    """Keys and values of positions 0..n in pages of either type, each page where `table` says."""

    def __init__(self, layer: Floats, key: Any, value: Any, kind: Any, spread: int = 1) -> None:
        n, heads, dim = key.shape
        count = (n + 31) // 32
        self.table = (np.arange(count, dtype=np.int32)[::-1] * spread).copy()
        stale = np.nan if kind is np.float32 else 0x7E00  # what an unwritten slot holds
        self.keys = np.full((count * spread, heads, dim, 32), stale, kind)
        self.values = np.full((count * spread, heads, 32, -(-dim // 16) * 16), stale, kind)
        for p in range(0, n, 32):
            rows = slice(p, min(p + 32, n))
            layer.store(self.keys, self.values, self.table, p, flat(key[rows]), flat(value[rows]))

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
@pytest.mark.parametrize("count", [1, 2, 16, 27])
def test_store_writes_its_slots(layer: Floats, kind: Any, dim: int, count: int) -> None:
    padded = -(-dim // 16) * 16
    keys = np.full((3, 2, dim, 32), 9, kind)
    values = np.full((3, 2, 32, padded), 9, kind)
    key, value = floats(count, 2 * dim + 3, seed=1), floats(count, 2 * dim, seed=2)
    layer.store(keys, values, np.array([1, 2], np.int32), 37, key, value)
    as_kind = (lambda x: x.astype(np.float16).view(np.uint16)) if kind is np.uint16 else np.asarray
    slots = slice(5, 5 + count)
    wanted = key[:, : 2 * dim].reshape(count, 2, dim).transpose(1, 2, 0)
    assert np.array_equal(keys[2, :, :, slots], as_kind(wanted))
    wanted = value.reshape(count, 2, dim).transpose(1, 0, 2)
    assert np.array_equal(values[2, :, slots, :dim], as_kind(wanted))
    keys[2, :, :, slots], values[2, :, slots] = 9, 9
    assert np.all(keys == 9)
    assert np.all(values == 9)
