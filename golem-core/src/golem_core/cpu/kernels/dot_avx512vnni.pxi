# Integer words for AVX-512 VNNI (Ice Lake, Sapphire Rapids, Zen 4 and later).
#
# A lane is a row; a byte of a lane is one of four consecutive columns.

include "inline.pxi"

cdef extern from "immintrin.h" nogil:
    __m128i _mm_loadu_si128(const __m128i*)
    __m512i _mm512_set1_epi8(char)
    __m512i _mm512_srli_epi16(__m512i, unsigned int)
    __m512i _mm512_slli_epi16(__m512i, unsigned int)
    __m512i _mm512_srai_epi32(__m512i, unsigned int)
    __m512i _mm512_shuffle_epi8(__m512i, __m512i)
    __m512i _mm512_broadcast_i32x4(__m128i)
    __m512i _mm512_ternarylogic_epi32(__m512i, __m512i, __m512i, int)
    __m512i _mm512_madd_epi16(__m512i, __m512i)
    __m512i _mm512_dpbusd_epi32(__m512i, __m512i, __m512i)
    __m512i _mm512_cvtepu8_epi32(__m128i)
    __m512i _mm512_cvtepi8_epi32(__m128i)

# Tiles: two panels times up to six columns leave 24 registers to sums and values.
cdef enum:
    WIDEST = 6
    FLOAT_WIDEST = 12
    TALLEST = 2
    PARTIAL = 0
    AHEAD = 4096                # bytes that weights are asked for ahead of their use

ctypedef __m512i bytes64
ctypedef __m512i bytes4


cdef inline bytes64 load_bytes(const unsigned char* p) noexcept nogil:
    return _mm512_loadu_si512(p)


cdef inline void store_bytes(unsigned char* p, bytes64 v) noexcept nogil:
    _mm512_storeu_si512(p, v)


cdef inline bytes64 low_nibbles(bytes64 v) noexcept nogil:
    return _mm512_and_si512(v, _mm512_set1_epi8(15))


cdef inline bytes64 high_nibbles(bytes64 v) noexcept nogil:
    return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15))


cdef inline bytes64 with_fifth(bytes64 v, bytes64 plane, int j) noexcept nogil:
    """v + 16 * bit j of plane."""
    if j == 0:
        plane = _mm512_slli_epi16(plane, 4)
    elif j == 1:
        plane = _mm512_slli_epi16(plane, 3)
    elif j == 2:
        plane = _mm512_slli_epi16(plane, 2)
    elif j == 3:
        plane = _mm512_slli_epi16(plane, 1)
    elif j == 5:
        plane = _mm512_srli_epi16(plane, 1)
    elif j == 6:
        plane = _mm512_srli_epi16(plane, 2)
    elif j == 7:
        plane = _mm512_srli_epi16(plane, 3)
    return _mm512_ternarylogic_epi32(v, plane, _mm512_set1_epi8(16), 0xF8)  # v | plane & 16


cdef inline bytes64 with_pair(bytes64 v, bytes64 plane, int j) noexcept nogil:
    """v + 16 * bits 2j and 2j + 1 of plane, j < 4."""
    if j == 0:
        plane = _mm512_slli_epi16(plane, 4)
    elif j == 1:
        plane = _mm512_slli_epi16(plane, 2)
    elif j == 3:
        plane = _mm512_srli_epi16(plane, 2)
    return _mm512_ternarylogic_epi32(v, plane, _mm512_set1_epi8(48), 0xF8)


cdef inline bytes4 splat4(const signed char* p) noexcept nogil:
    """Four consecutive codes of a column, to every row."""
    return _mm512_set1_epi32((<const int*> p)[0])


cdef inline i32x16 no_dots() noexcept nogil:
    return _mm512_setzero_si512()


cdef inline i32x16 minus_sum(const int* sum, int offset) noexcept nogil:
    """-offset * sum in every lane, offset <= 128, |sum| <= 32 * 127: a 16-bit product."""
    return _mm512_madd_epi16(_mm512_set1_epi32(sum[0]), _mm512_set1_epi32(-offset & 0xFFFF))


cdef inline i32x16 dots(i32x16 sums, bytes64 codes, bytes4 four) noexcept nogil:
    return _mm512_dpbusd_epi32(sums, codes, four)


cdef inline i32x16 widen(i32x16 sums, i32x16 partial) noexcept nogil:
    """Never called: `dots` adds to whole sums here."""
    return sums


cdef inline i32x16 minus_sum_wide(const int* sum) noexcept nogil:
    """What `dots_wide` starts from, so that its codes count from -128."""
    return minus_sum(sum, 128)


cdef inline i32x16 dots_wide(i32x16 sums, bytes64 codes, bytes4 four) noexcept nogil:
    """As `dots`, for codes of a whole byte."""
    return _mm512_dpbusd_epi32(sums, codes, four)


cdef inline f32x16 load_u8(const unsigned char* p) noexcept nogil:
    return to_f32(_mm512_cvtepu8_epi32(_mm_loadu_si128(<const __m128i*>p)))


cdef inline f32x16 load_s8(const unsigned char* p) noexcept nogil:
    return to_f32(_mm512_cvtepi8_epi32(_mm_loadu_si128(<const __m128i*>p)))


cdef inline f32x16 signed_byte(bytes64 v, int k) noexcept nogil:
    """Byte k of every lane, as a signed one."""
    if k == 0:
        v = _mm512_slli_epi32(v, 24)
    elif k == 1:
        v = _mm512_slli_epi32(v, 16)
    elif k == 2:
        v = _mm512_slli_epi32(v, 8)
    return to_f32(_mm512_srai_epi32(v, 24))


cdef inline bytes64 looked_up(bytes64 v, const signed char* table) noexcept nogil:
    """What a table of 16 says of every byte, 0..15."""
    return _mm512_shuffle_epi8(
        _mm512_broadcast_i32x4(_mm_loadu_si128(<const __m128i*> table)), v)
