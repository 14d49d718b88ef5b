"""Every row of the table of formats: sizes, dequantisation and quantisation against gguf-py."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import quants

from golem_core.errors import Unsupported
from golem_core.weights.formats import BY_NUMBER, FORMATS, IQ4_LEVELS, MXFP4_LEVELS

RUN = [f for f in FORMATS.values() if f.decode is not None and f.number is not None]
WRITE = [f for f in RUN if f.quantize is not None]
KEPT = [f for f in FORMATS.values() if f.decode is not None and f.number is None]
QUANTISED = [f for f in RUN if f.block > 1]

# Where a block's fp16 scales begin, to make random blocks finite.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
    "MXFP4": [],
}  # fmt: skip


def random_blocks(form, count, seed=0):
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (count, form.nbytes), np.uint8)
    for at in SCALES[form.name]:
        scale = rng.normal(0, 0.1, (count, 1)).astype("<f2")
        scale[0] = 0
        scale[1] = np.finfo(np.float16).smallest_subnormal
        scale[2] = -65504
        blocks[:, at : at + 2] = scale.view(np.uint8)
    return blocks


def bits(values):
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def test_table_has_the_sizes_of_ggml():
    theirs = {t.name: (int(t), *gguf.GGML_QUANT_SIZES[t]) for t in gguf.GGMLQuantizationType}
    ours = {f.name: (f.number, f.block, f.nbytes) for f in BY_NUMBER.values()}
    assert {name: ours[name] for name in theirs if name in ours} == {
        name: size for name, size in theirs.items() if name in ours
    }
    assert set(ours) <= set(theirs)


def test_table_runs_what_golem_promises():
    names = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4"
    assert " ".join(f.name for f in RUN) == names


@pytest.mark.parametrize("form", QUANTISED, ids=lambda f: f.name)
def test_dequantises_as_gguf_to_the_bit(form):
    blocks = random_blocks(form, 500)
    with np.errstate(over="ignore"):  # MXFP4 reaches 2^128
        theirs = quants.dequantize(blocks, gguf.GGMLQuantizationType[form.name])
    assert np.array_equal(bits(form.dequantize(blocks)), bits(theirs))


@pytest.mark.parametrize("form", QUANTISED, ids=lambda f: f.name)
def test_every_byte_of_a_block_counts(form):
    """A function that forgets a field would give the same values for different bytes."""
    block = np.full((1, form.nbytes), 0x35, np.uint8)
    before = form.dequantize(block)
    for at in range(form.nbytes):
        changed = block.copy()
        changed[0, at] ^= 0xFF
        assert not np.array_equal(form.dequantize(changed), before), f"byte {at}"


def test_levels_are_those_of_gguf():
    assert tuple(IQ4_LEVELS) == quants.IQ4_NL.kvalues
    assert tuple(MXFP4_LEVELS) == quants.MXFP4.kvalues


def test_mxfp4_has_every_exponent():
    blocks = np.full((256, 17), 0x77, np.uint8)  # the level 12, which is 6.0 doubled
    blocks[:, 0] = np.arange(256)
    with np.errstate(over="ignore"):
        wanted = np.ldexp(np.float64(12), np.arange(256) - 128).astype(np.float32)
    assert np.array_equal(FORMATS["MXFP4"].dequantize(blocks)[:, 0], wanted)


def rows(form, seed=1):
    """Values of several magnitudes, with rows of zeros, of ties and of one sign."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (300, max(form.block, 32))) * 10.0 ** rng.integers(-6, 4, (300, 1))
    x[0] = 0
    x[1] = np.tile([1.0, -1.0], x.shape[1] // 2)
    x[2] = np.arange(x.shape[1]) / 2
    x[3] = -np.abs(x[3])
    return x.astype(np.float32)


@pytest.mark.parametrize("form", WRITE, ids=lambda f: f.name)
def test_quantises_as_gguf_to_the_byte(form):
    x = rows(form)
    theirs = quants.quantize(x, gguf.GGMLQuantizationType[form.name]).view(np.uint8)
    ours = form.quantize(x.reshape(-1, form.block))
    assert ours.dtype == np.uint8
    assert ours.shape == (x.size // form.block, form.nbytes)
    assert np.array_equal(ours.ravel(), theirs.ravel())


@pytest.mark.parametrize("form", KEPT, ids=lambda f: f.name)
def test_formats_of_no_file_are_q8_0_in_blocks_of_their_own(form):
    x = rows(form).reshape(-1, form.block)
    made = form.quantize(x)
    assert made.shape == (len(x), form.nbytes) == (len(x), 2 + form.block)
    d = made[:, :2].copy().view("<f2").astype(np.float32)
    assert np.array_equal(d[:, 0], (np.abs(x).max(1) / np.float32(127)).astype("<f2"))
    assert np.array_equal(form.dequantize(made), d * made[:, 2:].view(np.int8))
    if form.block == 32:
        assert np.array_equal(made, FORMATS["Q8_0"].quantize(x))


@pytest.mark.parametrize("form", [*WRITE, *KEPT], ids=lambda f: f.name)
def test_quantised_values_come_back_near(form):
    x = rows(form).reshape(-1, form.block)
    step = {"Q4_0": 8, "Q4_1": 15, "Q5_0": 16, "Q5_1": 31}
    step = step.get(form.name, 127 if form.block > 1 else 200)
    bound = 2.0 * np.abs(x).max(axis=1, keepdims=True) / step + 6e-8 * step  # fp16 scales
    assert (np.abs(form.dequantize(form.quantize(x)) - x) <= bound).all()


def test_bf16_rounds_to_even_and_keeps_nan():
    x = np.array([1.0, 1.00390625, 1.01171875, np.inf, -np.inf, np.nan, -0.0, 3.4e38], np.float32)
    form = FORMATS["BF16"]
    back = form.dequantize(form.quantize(x.reshape(-1, 1))).ravel()
    assert np.array_equal(back[:5], np.array([1.0, 1.0, 1.015625, np.inf, -np.inf], np.float32))
    assert np.isnan(back[5])
    assert np.signbit(back[6])
    assert np.isinf(back[7])  # nearer to 2^128 than to the largest bf16


def test_infinite_scales_give_no_warning():
    blocks = random_blocks(FORMATS["Q4_K"], 3)
    blocks[:, 0:2] = np.array([[np.inf]], "<f2").view(np.uint8)
    assert not np.isfinite(FORMATS["Q4_K"].dequantize(blocks)).all()


def test_listed_formats_are_refused_by_name():
    with pytest.raises(Unsupported, match=r"format I32 cannot be computed with; golem runs F32, F"):
        FORMATS["I32"].dequantize(np.zeros((1, 4), np.uint8))


def test_blocks_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"Q4_0 blocks are uint8 \[n, 18\], not uint8 \[2, 17\]"):
        FORMATS["Q4_0"].dequantize(np.zeros((2, 17), np.uint8))
