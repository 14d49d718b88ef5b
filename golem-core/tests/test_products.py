"""The product kernels, packing and dequantising, of every layer that this processor runs.

Every layer must equal the numpy reference to the bit, so all layers equal each other.
"""

from __future__ import annotations

import numpy as np
import pytest
from gguf.quants import Q4_K

from golem_core.cpu import dispatch, probe_products
from golem_core.weights.formats import FORMATS

FLOATS = ("F32", "F16", "BF16")
CODED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "W8A8")
RUNS = {"W8A8": 128}  # values under a scale of the columns, where it is not 32
TILED = ("Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4")

# Where the halves of a block lie: the scale, and the scale of the minimum.
SCALE = {"Q6_K": 208, "Q2_K": 80, "Q3_K": 108} | dict.fromkeys(
    (*CODED[:7], *TILED[2:4], "W8", "W8A8"), 0
)
MINIMUM = {"Q4_1": 2, "Q5_1": 2, "Q4_K": 2, "Q5_K": 2, "Q2_K": 82}


@pytest.fixture(params=dispatch.LAYERS, autouse=True)
def layer(request):
    before = dispatch.layer()
    dispatch.use(request.param)
    yield request.param
    dispatch.use(before)


def put(blocks, at, halves):
    blocks[..., at : at + 2] = np.asarray(halves, np.float16)[..., None].view(np.uint8)


def matrix(name, rows, cols, seed=0):
    """Blocks [rows, blocks, bytes] of random codes and sensible scales, some of them zero."""
    rng = np.random.default_rng(seed)
    if name in FLOATS:
        values = rng.standard_normal((rows, cols)).astype(np.float32)
        word = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}[name]
        stored = (values.view(np.uint32) >> 16) if name == "BF16" else values
        return stored.astype(word).view(np.uint8).reshape(rows, cols, -1)
    format = FORMATS[name]
    blocks = rng.integers(0, 256, (rows, cols // format.block, format.nbytes)).astype(np.uint8)
    shape = blocks.shape[:2]
    if name == "MXFP4":
        blocks[..., 0] = rng.integers(110, 130, shape)
        return blocks
    scales = rng.standard_normal(shape) / 100
    scales[0, 0] = 0
    put(blocks, SCALE[name], scales)
    if name in MINIMUM:
        put(blocks, MINIMUM[name], rng.standard_normal(shape) / 10)
    return blocks


def floats(name, blocks):
    """The reference's values of blocks, float32 [rows, cols]."""
    format = FORMATS[name]
    flat = blocks.reshape(-1, format.nbytes)
    return format.dequantize(flat).reshape(len(blocks), -1)


def columns(n, cols, seed=1, run=32):
    """Random columns as the kernels read them: codes, scales, sums, halves; a scale each `run`."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(-127, 128, (n, cols)).astype(np.int8)
    codes[0] = 127 if n > 1 else codes[0]
    scales = rng.random((n, cols // run)).astype(np.float32)
    scales[-1, -1] = 0
    wide = codes.astype(np.int32)
    return (
        codes,
        scales,
        wide.reshape(n, -1, run).sum(2, dtype=np.int32),
        wide.reshape(n, -1, run // 2).sum(2, dtype=np.int32),
    )


def fma(a, b, c):
    """a * b + c, rounded once: the float64 sum rounded to odd, then to float32."""
    product = np.asarray(a, np.float64) * b
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    nudged = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & (total.view(np.int64) & 1 == 0), nudged, total).astype("f4")


def reference(name, blocks, x):
    """Block after block: the exact integer sum, then one fused multiply-add, [n, rows]."""
    codes, scales, sums, _ = x
    run = RUNS.get(name, 32)
    only_codes, only_minima = blocks.copy(), blocks.copy()
    put(only_codes, SCALE[name], 1)
    put(only_minima, SCALE[name], 0)
    if name in MINIMUM:
        put(only_codes, MINIMUM[name], 0)
    q = floats(name, only_codes).reshape(len(blocks), -1, run)
    d = blocks[..., SCALE[name] : SCALE[name] + 2].copy().view(np.float16).astype(np.float32)
    d = np.repeat(d[..., 0], q.shape[1] // blocks.shape[1], axis=1)
    m = floats(name, only_minima).reshape(q.shape)[..., 0]
    if name in ("Q4_K", "Q5_K"):
        s = Q4_K.get_scale_min(blocks[..., 4:16].reshape(-1, 12))[0].reshape(d.shape)
        q, d = q / np.maximum(s, 1)[..., None], d * s.astype(np.float32)
    out = np.zeros((len(codes), len(blocks)), np.float32)
    for b in range(q.shape[1]):
        exact = codes[:, run * b : run * b + run].astype(np.float64) @ q[:, b].T
        scale = scales[:, b, None]
        out = fma(exact.astype(np.float32), d[:, b] * scale, out)
        if name in MINIMUM:
            out = fma(m[:, b], scale * sums[:, b, None].astype(np.float32), out)
    return out


def float_reference(name, weights, x):
    """One fused multiply-add for each k; of BF16, of each pair the second k first."""
    out = np.zeros((len(x), len(weights)), np.float32)
    order = np.arange(weights.shape[1])
    if name == "BF16":
        weights, x = (
            np.pad(bf16(values), ((0, 0), (0, len(order) % 2))) for values in (weights, x)
        )
        order = np.arange(weights.shape[1]) ^ 1
    for k in order:
        out = fma(weights[:, k], x[:, k, None], out)
    return out


def bf16(values):
    """Rounded to bf16, and what is below 2^-56 to zero."""
    format = FORMATS["BF16"]
    rounded = format.dequantize(format.quantize(values.reshape(-1))).reshape(values.shape)
    return np.where(np.abs(rounded) < 2.0**-56, np.float32(0), rounded)


@pytest.mark.parametrize("name", dispatch.FORMATS)
def test_dequantise_equals_the_reference(name):
    blocks = matrix(name, 3, 512)
    found = probe_products.dequantise(name, blocks.reshape(-1), 3 * 512)
    assert np.array_equal(found.view(np.int32), floats(name, blocks).reshape(-1).view(np.int32))


def test_every_half_is_read():
    halves = np.arange(65536, dtype=np.uint16)
    found = probe_products.dequantise("F16", halves.view(np.uint8), len(halves))
    assert np.array_equal(found, halves.view(np.float16).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(("rows", "cols"), [(40, 256), (16, 768)])
@pytest.mark.parametrize("name", CODED)
def test_products_of_codes_equal_the_reference(name, rows, cols):
    blocks = matrix(name, rows, cols)
    packed = probe_products.pack(name, blocks.reshape(-1), rows, cols)
    x = columns(14, cols, run=RUNS.get(name, 32))
    wanted = reference(name, blocks, x)
    for n in range(1, 15):
        found = probe_products.product(name, packed, rows, cols, x, columns=n)
        assert np.array_equal(found[:, :rows], wanted[:n])
        assert not found[:, rows:].any()


@pytest.mark.parametrize("name", CODED)
def test_products_with_many_columns_equal_the_reference(name):
    # An odd number of panels, and more blocks than a kernel of tiles unpacks at a time.
    rows, cols = 72, 1280 if name.endswith(("K", "A8")) else 1184
    blocks = matrix(name, rows, cols)
    packed = probe_products.pack(name, blocks.reshape(-1), rows, cols)
    codes, scales, *sums = columns(270, cols, run=RUNS.get(name, 32))
    scales[5, 7] = np.nan  # of no other column
    codes = np.concatenate([np.zeros(1, np.int8), codes.reshape(-1)])[1:].reshape(codes.shape)
    x = (codes, scales, *sums)
    wanted = reference(name, blocks, x)
    parts = [(0, 23), (1, 24), (0, 40), (2, 41), (3, 54), (0, 100), (9, 128), (0, 129), (0, 270)]
    for first, n in parts:
        found = probe_products.product(name, packed, rows, cols, x, column=first, columns=n)
        assert np.array_equal(found[:, :rows], wanted[first : first + n], equal_nan=True)
        assert not np.nan_to_num(found[:, rows:]).any()


@pytest.mark.parametrize("cols", [32, 96, 160])
@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_an_odd_number_of_blocks(name, cols):
    blocks = matrix(name, 16, cols)
    packed = probe_products.pack(name, blocks.reshape(-1), 16, cols)
    x = columns(2, cols)
    found = probe_products.product(name, packed, 16, cols, x)
    assert np.array_equal(found, reference(name, blocks, x))


@pytest.mark.parametrize("n", [2, 48])
@pytest.mark.parametrize("name", CODED)
def test_the_largest_codes_do_not_overflow(name, n):
    blocks = np.full_like(matrix(name, 16, 256), 0x00 if name == "Q6_K" else 0xFF)
    if name in ("Q8_0", "W8A8"):
        blocks[...] = 0x80
    if name == "Q6_K":
        blocks[..., 192:208] = 0x80
    put(blocks, SCALE[name], 0.01)
    if name in MINIMUM:
        put(blocks, MINIMUM[name], 0.01)
    packed = probe_products.pack(name, blocks.reshape(-1), 16, 256)
    run = RUNS.get(name, 32)
    for code in (-127, 127):
        codes = np.full((n, 256), code, np.int8)
        x = (
            codes,
            np.ones((n, 256 // run), np.float32),
            np.full((n, 256 // run), run * code, np.int32),
            np.full((n, 512 // run), run // 2 * code, np.int32),
        )
        found = probe_products.product(name, packed, 16, 256, x)
        assert np.array_equal(found, reference(name, blocks, x))


@pytest.mark.parametrize("cols", [64, 77])
@pytest.mark.parametrize("name", FLOATS)
def test_products_of_floats_equal_the_reference(name, cols):
    blocks = matrix(name, 40, cols)
    packed = probe_products.pack(name, blocks.reshape(-1), 40, cols)
    x = np.random.default_rng(2).standard_normal((15, cols)).astype(np.float32)
    wanted = float_reference(name, floats(name, blocks), x)
    for n in range(1, 16):
        found = probe_products.product(name, packed, 40, cols, x, columns=n)
        assert np.array_equal(found[:, :40], wanted[:n])
        assert not found[:, 40:].any()


@pytest.mark.parametrize("least", [-70, -56, -30])
def test_no_sum_of_bf16_is_below_the_normal_numbers(least):
    """Where it is, one instruction set takes it for zero and another does not."""
    rng = np.random.default_rng(3)

    def drawn(rows):
        numbers = rng.uniform(1, 2, (rows, 64)) * rng.choice([-1, 1], (rows, 64))
        return np.ldexp(numbers, rng.integers(least, least + 5, (rows, 64))).astype(np.float32)

    weights, x = FORMATS["BF16"].quantize(drawn(16).reshape(-1)), drawn(3)
    packed = probe_products.pack("BF16", weights.reshape(-1), 16, 64)
    found = probe_products.product("BF16", packed, 16, 64, x)
    wanted = float_reference("BF16", FORMATS["BF16"].dequantize(weights).reshape(16, 64), x)
    assert np.array_equal(found, wanted)
    assert found.any() == (least > -60)
    assert not ((found != 0) & (np.abs(found) < np.finfo(np.float32).tiny)).any()


def test_columns_of_bf16_are_rounded_to_nearest_even_and_nan_stays():
    words = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0xFF800000, 0x7F800001,
                      0x7FFFFFFF, 0x237FFFFF, 0x237F0000, 0x80000000], np.uint32)  # fmt: skip
    x = np.zeros((len(words), 2), np.float32)
    x[:, 0] = words.view(np.float32)
    one = np.array([[0x3F80, 0]] + [[0, 0]] * 15, np.uint16)  # 1 and 0
    packed = probe_products.pack("BF16", one.view(np.uint8).reshape(-1), 16, 2)
    found = probe_products.product("BF16", packed, 16, 2, x)[:, 0]
    smallest = 2.0**-56
    wanted = [1, 1 + 2**-6, 1 + 2**-7, np.inf, -np.inf, np.nan, np.nan, smallest, 0, 0]
    assert np.array_equal(found, np.array(wanted, np.float32), equal_nan=True)


@pytest.mark.parametrize(("rows", "cols"), [(40, 32), (16, 96), (72, 480)])
def test_products_of_bytes_with_floats_equal_the_reference(rows, cols):
    blocks = matrix("W8", rows, cols)
    packed = probe_products.pack("W8", blocks.reshape(-1), rows, cols)
    x = np.random.default_rng(2).standard_normal((40, cols)).astype(np.float32)
    x[7, 3] = np.nan  # of no other column
    wanted = float_reference("W8", floats("W8", blocks), x)
    for n in (*range(1, 16), 40):
        found = probe_products.product("W8", packed, rows, cols, x, columns=n)
        assert np.array_equal(found[:, :rows], wanted[:n], equal_nan=True)
        assert not np.nan_to_num(found[:, rows:]).any()


@pytest.mark.parametrize("name", TILED)
def test_products_through_tiles_equal_the_reference(name):
    blocks = matrix(name, 40, 512)
    x = np.random.default_rng(2).standard_normal((9, 512)).astype(np.float32)
    wanted = float_reference(name, floats(name, blocks), x)
    stored = blocks.reshape(-1)
    for packed in (stored, probe_products.pack(name, stored, 40, 512)):
        for n in (1, 2, 9):
            found = probe_products.product(name, packed, 40, 512, x, columns=n)
            assert np.array_equal(found[:, :40], wanted[:n])
            assert not found[:, 40:].any()


@pytest.mark.parametrize("name", dispatch.FORMATS)
def test_a_part_of_the_rows_and_columns(name):
    blocks = matrix(name, 100, 256)
    whole = probe_products.pack(name, blocks.reshape(-1), 100, 256)
    part = probe_products.pack(name, blocks.reshape(-1), 100, 256, first=2, panels=3)
    assert np.array_equal(part[2:5], whole[2:5])
    assert (part[:2] == 0xFF).all()
    assert (part[5:] == 0xFF).all()
    x = columns(9, 256, run=RUNS.get(name, 32))
    x = x if name in CODED else x[0].astype(np.float32)
    everything = probe_products.product(name, whole, 100, 256, x)
    found = probe_products.product(name, whole, 100, 256, x, first=2, panels=3, column=4, columns=5)
    assert np.array_equal(found, everything[4:9, 32:80])
