"""Plain quantisers that write valid blocks of every ggml format golem multiplies.

A recording needs a file that two engines read alike, not the best possible rounding, so each
quantiser here is the shortest that fills the block layout: scales from the largest magnitude (or
the range) of a sub-block, values by rounding. They depend on numpy and `gguf` alone and use
elementwise arithmetic only, so the bytes are the same on every machine; the recordings carry a
checksum of them. Layouts are those of ggml's `ggml-common.h`; `gguf.quants` reads them back in
the tests. `gguf` itself quantises the formats without super-blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np
from gguf.quants import dequantize as gguf_dequantize
from gguf.quants import quantize as gguf_quantize
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

SUPER = 256  # values in a super-block of the K formats
IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)


def _half(x: Floats) -> tuple[Bytes, Floats]:
    """The bytes of x [n] as half precision, [n, 2], and the values they stand for, [n]."""
    half = x.astype("<f2")
    return half.view(np.uint8).reshape(-1, 2), half.astype(np.float32)


def _ratio(x: Floats, by: Floats) -> Floats:
    """x / by, and 0 where by is 0."""
    return np.divide(x, by, out=np.zeros(np.broadcast(x, by).shape, np.float32), where=by != 0)


def _round(x: Floats, low: int, high: int) -> Bytes:
    """x rounded to whole numbers, limited to low..high, as bytes (two's complement)."""
    return np.clip(np.rint(x), low, high).astype(np.int8).view(np.uint8)


def _symmetric(x: Floats, steps: int, scale_low: int, scale_high: int) -> tuple[Bytes, ...]:
    """Blocks [n, sub-blocks, size] as d * scale * (q - steps).

    Returns the bytes of d [n, 2], whole scales [n, sub-blocks] and q [n, sub-blocks, size] in
    0..2*steps-1.
    """
    scale = np.abs(x).max(axis=2) / np.float32(steps - 1)
    d, d_value = _half(scale.max(axis=1) / np.float32(scale_high))
    whole = _round(_ratio(scale, d_value[:, None]), scale_low, scale_high)
    step = d_value[:, None] * whole.view(np.int8).astype(np.float32)
    q = _round(_ratio(x, step[:, :, None]), -steps, steps - 1) + np.uint8(steps)
    return d, whole, q


def _affine(x: Floats, top: int, scale_top: int) -> tuple[Bytes, ...]:
    """Blocks [n, sub-blocks, size] as d * scale * q - dmin * minimum, minimum >= 0.

    Returns the bytes of d and dmin [n, 2], whole scales and minimums [n, sub-blocks] in
    0..scale_top and q [n, sub-blocks, size] in 0..top.
    """
    low = np.minimum(x.min(axis=2), np.float32(0))
    scale = (x.max(axis=2).clip(0) - low) / np.float32(top)
    d, d_value = _half(scale.max(axis=1) / np.float32(scale_top))
    dmin, dmin_value = _half((-low).max(axis=1) / np.float32(scale_top))
    whole = _round(_ratio(scale, d_value[:, None]), 0, scale_top)
    minimum = _round(_ratio(-low, dmin_value[:, None]), 0, scale_top)
    step = (d_value[:, None] * whole)[:, :, None]
    offset = (dmin_value[:, None] * minimum)[:, :, None]
    q = _round(_ratio((x + offset).astype(np.float32), step.astype(np.float32)), 0, top)
    return d, dmin, whole, minimum, q


def _bits(q: Bytes, run: int, width: int) -> Bytes:
    """Values [n, 256] packed as ggml packs them: byte j of a group of `run` bytes holds the
    values j, j + run, j + 2*run ... of `width` bits each, the first in the lowest bits."""
    lanes = 8 // width
    parts = q.reshape(len(q), -1, lanes, run)
    shifts = (np.arange(lanes) * width).astype(np.uint8)[None, None, :, None]
    packed: Bytes = np.bitwise_or.reduce(parts << shifts, axis=2)
    return packed.reshape(len(q), -1)


def _scale_min(scale: Bytes, minimum: Bytes) -> Bytes:
    """Eight 6-bit scales and eight 6-bit minimums in the 12 bytes of Q4_K and Q5_K."""
    first = scale[:, :4] | (scale[:, 4:] >> 4) << 6
    second = minimum[:, :4] | (minimum[:, 4:] >> 4) << 6
    third = (scale[:, 4:] & 15) | (minimum[:, 4:] & 15) << 4
    return np.concatenate([first, second, third], axis=1)


def q2_k(x: Floats) -> Bytes:
    """[n, 256] to blocks [n, 84]: scales and minimums of 4 bits for 16 values, 2-bit values."""
    d, dmin, scale, minimum, q = _affine(x.reshape(-1, 16, 16), 3, 15)
    values = _bits(q.reshape(-1, SUPER), 32, 2)
    return np.concatenate([scale | minimum << 4, values, d, dmin], axis=1)


def q3_k(x: Floats) -> Bytes:
    """[n, 256] to blocks [n, 110]: 6-bit scales for 16 values; values of 2 bits and a high bit."""
    d, scale, groups = _symmetric(x.reshape(-1, 16, 16), 4, -32, 31)
    q = groups.reshape(-1, SUPER)
    scale = scale + np.uint8(32)
    low = (scale[:, :8] & 15) | (scale[:, 8:] & 15) << 4
    high = np.zeros((len(q), 4), np.uint8)
    for part in range(4):
        high |= (scale[:, 4 * part : 4 * part + 4] >> 4) << np.uint8(2 * part)
    values = [_bits(q >> np.uint8(2), 32, 1), _bits(q & np.uint8(3), 32, 2)]
    return np.concatenate([*values, low, high, d], axis=1)


def q4_k(x: Floats) -> Bytes:
    """[n, 256] to blocks [n, 144]: 6-bit scales and minimums for 32 values, 4-bit values."""
    d, dmin, scale, minimum, q = _affine(x.reshape(-1, 8, 32), 15, 63)
    values = _bits(q.reshape(-1, SUPER), 32, 4)
    return np.concatenate([d, dmin, _scale_min(scale, minimum), values], axis=1)


def q5_k(x: Floats) -> Bytes:
    """[n, 256] to blocks [n, 176]: as Q4_K, with a fifth bit in 32 bytes of their own."""
    d, dmin, scale, minimum, q = _affine(x.reshape(-1, 8, 32), 31, 63)
    q = q.reshape(-1, SUPER)
    parts = [d, dmin, _scale_min(scale, minimum), _bits(q >> np.uint8(4), 32, 1)]
    return np.concatenate([*parts, _bits(q & np.uint8(15), 32, 4)], axis=1)


def q6_k(x: Floats) -> Bytes:
    """[n, 256] to blocks [n, 210]: signed 8-bit scales for 16 values, values of 4 and 2 bits."""
    d, scale, q = _symmetric(x.reshape(-1, 16, 16), 32, -127, 127)
    q = q.reshape(-1, SUPER)
    values = [_bits(q & np.uint8(15), 64, 4), _bits(q >> np.uint8(4), 32, 2)]
    return np.concatenate([*values, scale, d], axis=1)


def _nearest(x: Floats) -> Bytes:
    """The index of the IQ4 value nearest to each element."""
    middles = (IQ4_VALUES[1:] + IQ4_VALUES[:-1]) / 2
    return np.searchsorted(middles, x).astype(np.uint8)


def iq4_nl(x: Floats) -> Bytes:
    """[n, 32] to blocks [n, 18]: a scale and sixteen bytes of indices into the IQ4 values."""
    d, d_value = _half(np.abs(x).max(axis=1) / np.float32(120))
    q = _nearest(_ratio(x, d_value[:, None]))
    return np.concatenate([d, _bits(q, 16, 4)], axis=1)


def iq4_xs(x: Floats) -> Bytes:
    """[n, 256] to blocks [n, 136]: 6-bit scales for 32 values, indices into the IQ4 values."""
    groups = x.reshape(-1, 8, 32)
    scale = np.abs(groups).max(axis=2) / np.float32(120)
    d, d_value = _half(scale.max(axis=1) / np.float32(31))
    whole = _round(_ratio(scale, d_value[:, None]), -32, 31)
    step = d_value[:, None] * whole.view(np.int8).astype(np.float32)
    q = _nearest(_ratio(groups, step[:, :, None]))
    stored = whole + np.uint8(32)
    low = (stored[:, 0::2] & 15) | (stored[:, 1::2] & 15) << 4
    shifts = (np.arange(8) * 2).astype(np.uint16)
    high = np.bitwise_or.reduce((stored >> 4).astype(np.uint16) << shifts, axis=1).astype("<u2")
    parts = [d, high.view(np.uint8).reshape(-1, 2), low, _bits(q.reshape(-1, SUPER), 16, 4)]
    return np.concatenate(parts, axis=1)


OWN: dict[str, Callable[[Floats], Bytes]] = {
    "Q2_K": q2_k,
    "Q3_K": q3_k,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
    "IQ4_NL": iq4_nl,
    "IQ4_XS": iq4_xs,
}


def quantise(x: Floats, name: str) -> Bytes:
    """A matrix [rows, columns] as bytes [rows, bytes of a row] of the ggml format `name`.

    Raises ValueError when the columns are no multiple of the format's block.
    """
    number = gguf.GGMLQuantizationType[name]
    block, _ = gguf.GGML_QUANT_SIZES[number]
    if x.shape[1] % block:
        raise ValueError(f"{name} takes blocks of {block}; the matrix has {x.shape[1]} columns")
    if name in OWN:
        return OWN[name](np.ascontiguousarray(x).reshape(-1, block)).reshape(len(x), -1)
    if name == "F32":
        return np.ascontiguousarray(x, "<f4").view(np.uint8)
    return np.ascontiguousarray(gguf_quantize(x, number)).view(np.uint8).reshape(len(x), -1)


def dequantise(x: Bytes, name: str) -> Floats:
    """What bytes [rows, bytes of a row] of the ggml format `name` stand for, by `gguf`."""
    made: Floats = gguf_dequantize(x, gguf.GGMLQuantizationType[name]).astype(np.float32)
    return made.reshape(len(x), -1)
