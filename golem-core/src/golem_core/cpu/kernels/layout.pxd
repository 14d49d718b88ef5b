"""How matrices lie in memory, packed: panels of 16 rows, lane = row.

The formats with integer products:

A block is 32 columns of a panel: 8 vectors of 64 bytes, where byte 4r + e of vector j is the
code of row r, column 4j + e. Codes are unsigned; `offset` is what stands for zero. (W8's are
signed, since its products read them as floats.)
  4 bits: vector j in the low nibbles of bytes 64j.., j < 4, vector j + 4 in the high ones.
  5 bits: then 64 bytes of fifth bits: bit j of byte 4r + e belongs to vector j.
  6 bits: then two times 64 bytes of upper pairs: bits 2j, 2j + 1 to vector j, then to j + 4.
  8 bits: the vectors themselves.
Blocks come in groups, so that codes stay on whole cache lines: the codes of its blocks, then
their scales. Of two blocks, each with 16 halves d (and 16 halves m, for the formats with a
minimum): value = d * code + m. Or, for the K formats, of eight, each with 16 bytes of scales
and 16 of minima (Q6_K: two times 16 signed scales, of its 16-column halves), then for the
group 16 halves d and 16 halves -dmin: value = d * scale * code - dmin * minimum. Or, for W8A8,
of four, with 16 halves d for all four, filled up to a cache line.
A last group that is not whole is filled up with zeros.

Formats in float: a panel is [cols, 16], or, of BF16, pairs of columns [even(cols) / 2, 16, 2], so
that a lane's two values are one word of 32 bits.
"""

from golem_core.cpu.kernels.table cimport (
    BF16, F16, F32, IQ4_NL, IQ4_XS, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
    W8, W8A8)


cdef inline int code_bits(int format) noexcept nogil:
    """Bits of a code."""
    if format == Q8_0 or format == W8 or format == W8A8:
        return 8
    if format == Q6_K:
        return 6
    if format == Q5_0 or format == Q5_1 or format == Q5_K:
        return 5
    return 4


cdef inline int offset(int format) noexcept nogil:
    """The code that stands for zero; 0 where a minimum is added instead."""
    if format == Q8_0 or format == W8A8:
        return 128
    if format == Q6_K:
        return 32
    if format == Q5_0:
        return 16
    if format == Q4_0:
        return 8
    return 0


cdef inline bint grouped(int format) noexcept nogil:
    """Whether scales are bytes under a scale of 256 columns."""
    return format == Q4_K or format == Q5_K or format == Q6_K


cdef inline Py_ssize_t code_bytes(int format) noexcept nogil:
    """Bytes of a block's codes."""
    return 64 * code_bits(format)


cdef inline Py_ssize_t scale_bytes(int format) noexcept nogil:
    """Bytes of a block's scales."""
    if format == W8A8:
        return 0  # a run of four blocks has its own
    return 32 if (format == Q4_0 or format == Q5_0 or format == Q8_0 or format == W8
                  or grouped(format)) else 64


cdef inline int group_shift(int format) noexcept nogil:
    """The logarithm of the blocks in a group."""
    return 3 if grouped(format) else 2 if format == W8A8 else 1


cdef inline Py_ssize_t group_bytes(int format) noexcept nogil:
    cdef Py_ssize_t size = (code_bytes(format) + scale_bytes(format)) << group_shift(format)
    # Q6_K and W8A8 fill the last 32.
    return size + 64 if grouped(format) or format == W8A8 else size


cdef inline int block_elements(int format) noexcept nogil:
    """Values in a block of a file."""
    if format == F32 or format == F16 or format == BF16:
        return 1
    if (format == Q2_K or format == Q3_K or format == Q4_K or format == Q5_K or format == Q6_K
            or format == IQ4_XS):
        return 256
    return 128 if format == W8A8 else 32


cdef inline Py_ssize_t block_bytes(int format) noexcept nogil:
    """Bytes of a block of a file."""
    if format == F32:
        return 4
    if format == F16 or format == BF16:
        return 2
    if format == Q4_0 or format == IQ4_NL:
        return 18
    if format == Q4_1:
        return 20
    if format == Q5_0:
        return 22
    if format == Q5_1:
        return 24
    if format == Q8_0 or format == W8:
        return 34
    if format == W8A8:
        return 130
    if format == Q2_K:
        return 84
    if format == Q3_K:
        return 110
    if format == Q4_K:
        return 144
    if format == Q5_K:
        return 176
    if format == Q6_K:
        return 210
    if format == IQ4_XS:
        return 136
    return 17  # MXFP4


cdef inline Py_ssize_t even(Py_ssize_t cols) noexcept nogil:
    """Columns in pairs: one of zeros is added to an odd number."""
    return cols + (cols & 1)


cdef inline Py_ssize_t panel_bytes(int format, Py_ssize_t cols) noexcept nogil:
    """From one panel of 16 rows to the next."""
    cdef int shift
    if format == F32:
        return 64 * cols
    if format == F16:
        return 32 * cols
    if format == BF16:
        return 32 * even(cols)
    if format >= Q2_K:
        return 16 * (cols // block_elements(format)) * block_bytes(format)
    shift = group_shift(format)
    return (((cols >> 5) + (1 << shift) - 1) >> shift) * group_bytes(format)
