# Integer words for any processor, in plain C.
#
# A lane is a row; a byte of a lane is one of four consecutive columns.

# Tiles: one panel times one column. Nothing is inlined: this module is the truth, not a product.
cdef enum:
    WIDEST = 1
    FLOAT_WIDEST = 1
    TALLEST = 1
    PARTIAL = 0
    AHEAD = 4096                # bytes that weights are asked for ahead of their use

ctypedef struct bytes64:
    unsigned char[64] lane

ctypedef struct bytes4:
    signed char[4] lane


cdef bytes64 load_bytes(const unsigned char* p) noexcept nogil:
    cdef bytes64 v
    cdef int i
    for i in range(64):
        v.lane[i] = p[i]
    return v


cdef void store_bytes(unsigned char* p, bytes64 v) noexcept nogil:
    cdef int i
    for i in range(64):
        p[i] = v.lane[i]


cdef bytes64 low_nibbles(bytes64 v) noexcept nogil:
    cdef int i
    for i in range(64):
        v.lane[i] &= 15
    return v


cdef bytes64 high_nibbles(bytes64 v) noexcept nogil:
    cdef int i
    for i in range(64):
        v.lane[i] >>= 4
    return v


cdef bytes64 with_fifth(bytes64 v, bytes64 plane, int j) noexcept nogil:
    """v + 16 * bit j of plane."""
    cdef int i
    for i in range(64):
        v.lane[i] |= (plane.lane[i] >> j & 1) << 4
    return v


cdef bytes64 with_pair(bytes64 v, bytes64 plane, int j) noexcept nogil:
    """v + 16 * bits 2j and 2j + 1 of plane, j < 4."""
    cdef int i
    for i in range(64):
        v.lane[i] |= (plane.lane[i] >> 2 * j & 3) << 4
    return v


cdef bytes4 splat4(const signed char* p) noexcept nogil:
    """Four consecutive codes of a column, for every row."""
    cdef bytes4 four
    cdef int i
    for i in range(4):
        four.lane[i] = p[i]
    return four


cdef i32x16 minus_sum(const int* sum, int offset) noexcept nogil:
    """-offset * sum in every lane."""
    cdef i32x16 sums
    cdef int i
    for i in range(16):
        sums.lane[i] = -offset * sum[0]
    return sums


cdef i32x16 no_dots() noexcept nogil:
    cdef int none = 0
    return minus_sum(&none, 0)


cdef i32x16 dots(i32x16 sums, bytes64 codes, bytes4 four) noexcept nogil:
    cdef int i
    for i in range(16):
        sums.lane[i] += (codes.lane[4 * i] * four.lane[0] + codes.lane[4 * i + 1] * four.lane[1]
                      + codes.lane[4 * i + 2] * four.lane[2] + codes.lane[4 * i + 3] * four.lane[3])
    return sums


cdef i32x16 widen(i32x16 sums, i32x16 partial) noexcept nogil:
    """Never called: `dots` adds to whole sums here."""
    return sums


cdef i32x16 minus_sum_wide(const int* sum) noexcept nogil:
    """What `dots_wide` starts from, so that its codes count from -128."""
    return minus_sum(sum, 128)


cdef i32x16 dots_wide(i32x16 sums, bytes64 codes, bytes4 four) noexcept nogil:
    """As `dots`, for codes of a whole byte."""
    return dots(sums, codes, four)


cdef f32x16 load_u8(const unsigned char* p) noexcept nogil:
    cdef f32x16 y
    cdef int i
    for i in range(16):
        y.lane[i] = p[i]
    return y


cdef f32x16 load_s8(const unsigned char* p) noexcept nogil:
    cdef f32x16 y
    cdef int i
    for i in range(16):
        y.lane[i] = <signed char>p[i]
    return y


cdef f32x16 signed_byte(bytes64 v, int k) noexcept nogil:
    """Byte k of every lane, as a signed one."""
    cdef f32x16 y
    cdef int i
    for i in range(16):
        y.lane[i] = <signed char> v.lane[4 * i + k]
    return y


cdef bytes64 looked_up(bytes64 v, const signed char* table) noexcept nogil:
    """What a table of 16 says of every byte, 0..15."""
    cdef int i
    for i in range(64):
        v.lane[i] = <unsigned char> table[v.lane[i]]
    return v
