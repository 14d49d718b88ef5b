"""The formats that a tensor may be stored in: layout, dequantisation, quantisation.

A stored tensor is a run of blocks; a format says how many elements a block holds and in how many
bytes. `FORMATS` is the table, one row a format. The numpy functions here are the specification of
each layout (little endian, scales in fp16 unless said) and are plain, never tuned; the layouts are
those of ggml (``ggml-common.h``), and each function multiplies in the order that ggml does, so
that its values agree to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from golem_core.errors import Unsupported

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Wholes = npt.NDArray[np.int32]

HALF = np.dtype("<f2")


@dataclass(frozen=True, eq=False)
class Format:
    """One way to store a tensor's elements.

    name: the name that ggml gives it, such as ``Q4_0``.
    number: its number in a GGUF file; None for a type that no GGUF file has.
    block, nbytes: elements in a block, and bytes in a block.
    decode: blocks uint8 [n, nbytes] to float32 [n, block]; None if golem reads no values of it.
    quantize: float32 [n, block] to blocks uint8 [n, nbytes]; None if golem does not write it.
    """

    name: str
    number: int | None
    block: int
    nbytes: int
    decode: Callable[[Bytes], Floats] | None = None
    quantize: Callable[[Floats], Bytes] | None = None

    def dequantize(self, blocks: Bytes) -> Floats:
        """Blocks uint8 [n, nbytes] to their values, float32 [n, block].

        Raises Unsupported for a format that golem lists but does not compute with.
        """
        if self.decode is None:
            raise Unsupported(f"format {self.name} cannot be computed with; golem runs {RUNNABLE}")
        if blocks.ndim != 2 or blocks.shape[1] != self.nbytes or blocks.dtype != np.uint8:
            raise ValueError(
                f"{self.name} blocks are uint8 [n, {self.nbytes}], not {blocks.dtype} "
                f"{list(blocks.shape)}"
            )
        # What a damaged block yields (inf * 0) is a NaN in the result, not a warning.
        with np.errstate(invalid="ignore", over="ignore"):
            return self.decode(blocks)

    def __repr__(self) -> str:
        return f"Format({self.name})"


# ---- pieces of blocks


def _half(blocks: Bytes, at: int) -> Floats:
    """The fp16 at a byte of each block, as float32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(HALF).astype(np.float32)


def _nibbles(packed: Bytes) -> Wholes:
    """Bytes [..., k] to [..., 2k]: first all low nibbles, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.int32)


def _fifth(blocks: Bytes, at: int) -> Wholes:
    """A little-endian word of 32 bits at a byte of each block, as 0 or 16, [n, 32]."""
    bits = np.unpackbits(blocks[:, at : at + 4], axis=1, bitorder="little")
    return bits.astype(np.int32) << 4


def _away(x: Floats) -> Floats:
    """Rounds half away from zero, as C's roundf."""
    whole = np.floor(np.abs(x))
    up = np.floor(2 * (np.abs(x) - whole))
    return np.asarray(np.sign(x) * (whole + up), np.float32)


def _inverse(d: Floats) -> Floats:
    """1/d, and 0 where d is 0."""
    with np.errstate(divide="ignore"):
        inverse: Floats = np.where(d == 0, np.float32(0), np.float32(1) / d)
    return inverse


def _as_half(x: Floats) -> Bytes:
    """float32 [n, 1] to the bytes of fp16, [n, 2]."""
    return x.astype(HALF).view(np.uint8).reshape(len(x), 2)


def _pack_nibbles(q: npt.NDArray[np.uint8]) -> Bytes:
    """Values 0..15, [n, 32], to bytes [n, 16]: element i below, i + 16 above."""
    packed: Bytes = q[:, :16] | (q[:, 16:] << np.uint8(4))
    return packed


def _pack_fifth(q: npt.NDArray[np.uint8]) -> Bytes:
    """Bit 4 of values 0..31, [n, 32], to bytes [n, 4]."""
    return np.packbits((q >> 4) & 1, axis=1, bitorder="little")


# ---- plain numbers


def _plain(dtype: str) -> Callable[[Bytes], Floats]:
    def decode(blocks: Bytes) -> Floats:
        return np.ascontiguousarray(blocks).view(dtype).astype(np.float32)

    return decode


def _to_f32(x: Floats) -> Bytes:
    return np.ascontiguousarray(x, "<f4").view(np.uint8).reshape(-1, 4)


def _to_f16(x: Floats) -> Bytes:
    with np.errstate(over="ignore"):
        return x.astype("<f2").view(np.uint8).reshape(-1, 2)


def _bf16(blocks: Bytes) -> Floats:
    """bf16 is the upper half of a float32."""
    upper = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32)
    return (upper << 16).view(np.float32)


def _to_bf16(x: Floats) -> Bytes:
    """Rounds to nearest, ties to even; a NaN stays a (quiet) NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    even = bits.astype(np.uint64) + (0x7FFF + ((bits >> 16) & 1))
    upper = np.where(nan, (bits >> 16) | 64, (even >> 16) & 0xFFFF)
    return upper.astype("<u2").view(np.uint8).reshape(-1, 2)


# ---- blocks of 32


def _q4_0(b: Bytes) -> Floats:
    """Half d, nibbles [16]: (q - 8) d."""
    return (_nibbles(b[:, 2:]) - 8).astype(np.float32) * _half(b, 0)


def _to_q4_0(x: Floats) -> Bytes:
    d = _extreme(x) / np.float32(-8)
    q = np.clip(np.trunc(x * _inverse(d) + np.float32(8.5)), 0, 15).astype(np.uint8)
    return np.concatenate([_as_half(d), _pack_nibbles(q)], axis=1)


def _q4_1(b: Bytes) -> Floats:
    """Half d, half m, nibbles [16]: q d + m."""
    return _nibbles(b[:, 4:]).astype(np.float32) * _half(b, 0) + _half(b, 2)


def _to_q4_1(x: Floats) -> Bytes:
    low = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - low) / np.float32(15)
    q = np.clip(np.trunc((x - low) * _inverse(d) + np.float32(0.5)), 0, 15).astype(np.uint8)
    return np.concatenate([_as_half(d), _as_half(low), _pack_nibbles(q)], axis=1)


def _q5_0(b: Bytes) -> Floats:
    """Half d, bit 4 of each [4], nibbles [16]: (q - 16) d."""
    q = _nibbles(b[:, 6:]) | _fifth(b, 2)
    return (q - 16).astype(np.float32) * _half(b, 0)


def _to_q5_0(x: Floats) -> Bytes:
    d = _extreme(x) / np.float32(-16)
    q = np.clip(np.trunc(x * _inverse(d) + np.float32(16.5)), 0, 31).astype(np.uint8)
    return np.concatenate([_as_half(d), _pack_fifth(q), _pack_nibbles(q & 15)], axis=1)


def _q5_1(b: Bytes) -> Floats:
    """Half d, half m, bit 4 of each [4], nibbles [16]: q d + m."""
    q = _nibbles(b[:, 8:]) | _fifth(b, 4)
    return q.astype(np.float32) * _half(b, 0) + _half(b, 2)


def _to_q5_1(x: Floats) -> Bytes:
    low = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - low) / np.float32(31)
    q = np.clip(np.trunc((x - low) * _inverse(d) + np.float32(0.5)), 0, 31).astype(np.uint8)
    scales = [_as_half(d), _as_half(low)]
    return np.concatenate([*scales, _pack_fifth(q), _pack_nibbles(q & 15)], axis=1)


def _q8_0(b: Bytes) -> Floats:
    """Half d, int8 [as many as there are]: q d."""
    return b[:, 2:].view(np.int8).astype(np.float32) * _half(b, 0)


def _to_q8_0(x: Floats) -> Bytes:
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    q = _away(x * _inverse(d)).astype(np.int8).view(np.uint8)
    return np.concatenate([_as_half(d), q], axis=1)


def _extreme(x: Floats) -> Floats:
    """The element of largest magnitude with its sign, [n, 1]; the first of equals."""
    at = np.abs(x).argmax(axis=1, keepdims=True)
    return np.take_along_axis(x, at, axis=1)


# ---- superblocks of 256


def _twos(packed: Bytes) -> Wholes:
    """Bytes [n, 64] of 2-bit values to [n, 256]: 32 bytes give four runs of 32 elements."""
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    q = (packed.reshape(-1, 2, 1, 32) >> shifts) & 3
    return q.reshape(-1, 256).astype(np.int32)


def _six_bit_scales(s: Bytes) -> tuple[Floats, Floats]:
    """The 12 bytes of Q4_K and Q5_K to eight scales and eight minimums of 6 bits, [n, 8] each.

    Bytes 0-3 and 4-7 hold the low six bits of the first four of each; their upper two bits are
    the high bits of the last four, whose low four bits are the nibbles of bytes 8-11.
    """
    first, second, rest = s[:, 0:4], s[:, 4:8], s[:, 8:12]
    scales = np.concatenate([first & 63, (rest & 15) | ((first >> 6) << 4)], axis=1)
    minimums = np.concatenate([second & 63, (rest >> 4) | ((second >> 6) << 4)], axis=1)
    return scales.astype(np.float32), minimums.astype(np.float32)


def _by_run(q: Wholes, d: Floats, m: Floats | None = None) -> Floats:
    """q d - m [n, 256], where d and m [n, k] each cover 256/k elements."""
    values: Floats = d[:, :, None] * q.reshape(len(q), d.shape[1], -1).astype(np.float32)
    if m is not None:
        values -= m[:, :, None]
    return values.reshape(len(q), 256)


def _q2_k(b: Bytes) -> Floats:
    """Scale and minimum nibbles [16], 2-bit values [64], half d, half dmin; runs of 16."""
    d, m = _half(b, 80), _half(b, 82)
    return _by_run(_twos(b[:, 16:80]), d * (b[:, :16] & 15), m * (b[:, :16] >> 4))


def _q3_k(b: Bytes) -> Floats:
    """High bits [32], 2-bit values [64], sixteen 6-bit scales [12], half d; runs of 16."""
    low = np.concatenate([b[:, 96:104] & 15, b[:, 96:104] >> 4], axis=1)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = ((b[:, None, 104:108] >> shifts) & 3).reshape(-1, 16)
    scales = (low | (high << 4)).astype(np.float32) - 32
    bits = np.arange(8, dtype=np.uint8)[:, None]
    clear = 1 - ((b[:, None, :32] >> bits) & 1).reshape(-1, 256).astype(np.int32)
    q = _twos(b[:, 32:96]) - 4 * clear
    return _by_run(q, _half(b, 108) * scales)


def _pairs_of_32(packed: Bytes) -> Wholes:
    """Nibbles [n, 128] to [n, 256]: 32 bytes give 32 low nibbles, then 32 high ones."""
    return _nibbles(packed.reshape(-1, 4, 32)).reshape(-1, 256)


def _q4_k(b: Bytes) -> Floats:
    """Half d, half dmin, 6-bit scales and minimums [12], nibbles [128]; runs of 32."""
    scales, minimums = _six_bit_scales(b[:, 4:16])
    return _by_run(_pairs_of_32(b[:, 16:]), _half(b, 0) * scales, _half(b, 2) * minimums)


def _q5_k(b: Bytes) -> Floats:
    """As Q4_K with bit 4 of each [32] before the nibbles: bit k belongs to run k."""
    scales, minimums = _six_bit_scales(b[:, 4:16])
    bits = np.arange(8, dtype=np.uint8)[:, None]
    fifth = ((b[:, None, 16:48] >> bits) & 1).reshape(-1, 256).astype(np.int32) << 4
    q = _pairs_of_32(b[:, 48:]) | fifth
    return _by_run(q, _half(b, 0) * scales, _half(b, 2) * minimums)


def _q6_k(b: Bytes) -> Floats:
    """Low nibbles [128], upper 2 bits [64], int8 scales [16], half d; runs of 16, q - 32."""
    low = _nibbles(b[:, :128].reshape(-1, 2, 64)).reshape(-1, 256)
    q = (low | (_twos(b[:, 128:192]) << 4)) - 32
    scales = b[:, 192:208].view(np.int8).astype(np.float32) * _half(b, 208)
    return _by_run(q, scales)


# ---- nibbles that index a list of values

# ggml's kvalues_iq4nl: sixteen levels, denser near zero.
IQ4_LEVELS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
# E2M1 (OCP Microscaling Formats 1.0), twice its values so that they are whole.
MXFP4_LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


def _iq4_nl(b: Bytes) -> Floats:
    """Half d, nibbles [16]: level[q] d."""
    return IQ4_LEVELS[_nibbles(b[:, 2:])].astype(np.float32) * _half(b, 0)


def _iq4_xs(b: Bytes) -> Floats:
    """Half d, upper scale bits [2], lower scale nibbles [4], nibbles [128]; runs of 32."""
    low = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    upper = np.ascontiguousarray(b[:, 2:4]).view("<u2")
    high = (upper >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    scales = (low | (high << 4)).astype(np.float32) - 32
    q = _nibbles(b[:, 8:].reshape(-1, 8, 16))
    return _by_run(IQ4_LEVELS[q].astype(np.int32), _half(b, 0) * scales)


def _mxfp4(b: Bytes) -> Floats:
    """Exponent E8M0 [1], nibbles [16]: level[q] 2^(e - 128); the levels are twice E2M1's."""
    e = b[:, :1].astype(np.uint32)
    # 2^(e - 128): below e = 2 the float32 is subnormal.
    bits = np.where(e < 2, np.uint32(0x00200000) << e, (e - np.uint32(1)) << 23)
    scale: Floats = bits.view(np.float32)
    return MXFP4_LEVELS[_nibbles(b[:, 1:])].astype(np.float32) * scale


# ---- the table

_ROWS = [
    Format("F32", 0, 1, 4, _plain("<f4"), _to_f32),
    Format("F16", 1, 1, 2, _plain("<f2"), _to_f16),
    Format("BF16", 30, 1, 2, _bf16, _to_bf16),
    Format("Q4_0", 2, 32, 18, _q4_0, _to_q4_0),
    Format("Q4_1", 3, 32, 20, _q4_1, _to_q4_1),
    Format("Q5_0", 6, 32, 22, _q5_0, _to_q5_0),
    Format("Q5_1", 7, 32, 24, _q5_1, _to_q5_1),
    Format("Q8_0", 8, 32, 34, _q8_0, _to_q8_0),
    Format("Q2_K", 10, 256, 84, _q2_k),
    Format("Q3_K", 11, 256, 110, _q3_k),
    Format("Q4_K", 12, 256, 144, _q4_k),
    Format("Q5_K", 13, 256, 176, _q5_k),
    Format("Q6_K", 14, 256, 210, _q6_k),
    Format("IQ4_NL", 20, 32, 18, _iq4_nl),
    Format("IQ4_XS", 23, 256, 136, _iq4_xs),
    Format("MXFP4", 39, 32, 17, _mxfp4),
    # In no file; what matrices of floats are kept in. W8 is Q8_0 whose columns stay float32. W8A8
    # has a scale each 128 values, and its columns are codes with a scale each 128 as well.
    Format("W8", None, 32, 34, _q8_0, _to_q8_0),
    Format("W8A8", None, 128, 130, _q8_0, _to_q8_0),
    # Known by size, so that a file that holds them can be opened and described.
    Format("Q8_1", 9, 32, 40),
    Format("Q8_K", 15, 256, 292),
    Format("IQ2_XXS", 16, 256, 66),
    Format("IQ2_XS", 17, 256, 74),
    Format("IQ3_XXS", 18, 256, 98),
    Format("IQ1_S", 19, 256, 50),
    Format("IQ3_S", 21, 256, 110),
    Format("IQ2_S", 22, 256, 82),
    Format("IQ1_M", 29, 256, 56),
    Format("TQ1_0", 34, 256, 54),
    Format("TQ2_0", 35, 256, 66),
    Format("NVFP4", 40, 64, 36),
    Format("Q1_0", 41, 128, 18),
    Format("I8", 24, 1, 1),
    Format("I16", 25, 1, 2),
    Format("I32", 26, 1, 4),
    Format("I64", 27, 1, 8),
    Format("F64", 28, 1, 8),
    # Only in safetensors.
    Format("U8", None, 1, 1),
    Format("U16", None, 1, 2),
    Format("U32", None, 1, 4),
    Format("U64", None, 1, 8),
    Format("BOOL", None, 1, 1),
    Format("F8_E4M3", None, 1, 1),
    Format("F8_E5M2", None, 1, 1),
]

FORMATS: dict[str, Format] = {f.name: f for f in _ROWS}
BY_NUMBER: dict[int, Format] = {f.number: f for f in _ROWS if f.number is not None}
RUNNABLE = ", ".join(f.name for f in _ROWS if f.decode is not None and f.number is not None)
