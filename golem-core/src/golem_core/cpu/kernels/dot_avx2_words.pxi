# Integer words of 64 bytes in two ymm registers, but for the dot products: AVX2 and AVX-VNNI differ
# in these.
#
# A lane is a row; a byte of a lane is one of four consecutive columns.

include "inline.pxi"

cdef extern from "immintrin.h" nogil:
    __m256i _mm256_set1_epi8(char)
    __m256i _mm256_setzero_si256()
    __m256i _mm256_or_si256(__m256i, __m256i)
    __m256i _mm256_slli_epi16(__m256i, int)
    __m256i _mm256_srli_epi16(__m256i, int)
    __m256i _mm256_srai_epi32(__m256i, int)
    __m256i _mm256_shuffle_epi8(__m256i, __m256i)
    __m256i _mm256_broadcastsi128_si256(__m128i)
    __m256i _mm256_cvtepu8_epi32(__m128i)
    __m256i _mm256_cvtepi8_epi32(__m128i)
    __m128i _mm_loadl_epi64(const __m128i*)

cdef struct bytes64:
    __m256i lo
    __m256i hi

ctypedef __m256i bytes4


cdef inline bytes64 load_bytes(const unsigned char* p) noexcept nogil:
    cdef bytes64 v
    v.lo = _mm256_loadu_si256(<const __m256i*> p)
    v.hi = _mm256_loadu_si256(<const __m256i*> (p + 32))
    return v


cdef inline void store_bytes(unsigned char* p, bytes64 v) noexcept nogil:
    _mm256_storeu_si256(<__m256i*> p, v.lo)
    _mm256_storeu_si256(<__m256i*> (p + 32), v.hi)


cdef inline bytes64 low_nibbles(bytes64 v) noexcept nogil:
    v.lo = _mm256_and_si256(v.lo, _mm256_set1_epi8(15))
    v.hi = _mm256_and_si256(v.hi, _mm256_set1_epi8(15))
    return v


cdef inline bytes64 high_nibbles(bytes64 v) noexcept nogil:
    v.lo = _mm256_srli_epi16(v.lo, 4)
    v.hi = _mm256_srli_epi16(v.hi, 4)
    return low_nibbles(v)


cdef inline __m256i moved(__m256i v, int left) noexcept nogil:
    """16-bit lanes shifted by -3..4 bits; the bits that cross a byte are masked by the caller."""
    if left == 4:
        return _mm256_slli_epi16(v, 4)
    if left == 3:
        return _mm256_slli_epi16(v, 3)
    if left == 2:
        return _mm256_slli_epi16(v, 2)
    if left == 1:
        return _mm256_slli_epi16(v, 1)
    if left == -1:
        return _mm256_srli_epi16(v, 1)
    if left == -2:
        return _mm256_srli_epi16(v, 2)
    if left == -3:
        return _mm256_srli_epi16(v, 3)
    return v


cdef inline bytes64 with_fifth(bytes64 v, bytes64 plane, int j) noexcept nogil:
    """v + 16 * bit j of plane."""
    cdef __m256i mask = _mm256_set1_epi8(16)
    v.lo = _mm256_or_si256(v.lo, _mm256_and_si256(moved(plane.lo, 4 - j), mask))
    v.hi = _mm256_or_si256(v.hi, _mm256_and_si256(moved(plane.hi, 4 - j), mask))
    return v


cdef inline bytes64 with_pair(bytes64 v, bytes64 plane, int j) noexcept nogil:
    """v + 16 * bits 2j and 2j + 1 of plane, j < 4."""
    cdef __m256i mask = _mm256_set1_epi8(48)
    v.lo = _mm256_or_si256(v.lo, _mm256_and_si256(moved(plane.lo, 4 - 2 * j), mask))
    v.hi = _mm256_or_si256(v.hi, _mm256_and_si256(moved(plane.hi, 4 - 2 * j), mask))
    return v


cdef inline bytes4 splat4(const signed char* p) noexcept nogil:
    """Four consecutive codes of a column, to every row."""
    return _mm256_set1_epi32((<const int*> p)[0])


cdef inline i32x16 no_dots() noexcept nogil:
    cdef i32x16 sums
    sums.lo = _mm256_setzero_si256()
    sums.hi = _mm256_setzero_si256()
    return sums


cdef inline i32x16 minus_sum(const int* sum, int offset) noexcept nogil:
    """-offset * sum in every lane."""
    return isplat(-offset * sum[0])


cdef inline f32x16 load_u8(const unsigned char* p) noexcept nogil:
    cdef i32x16 v
    v.lo = _mm256_cvtepu8_epi32(_mm_loadl_epi64(<const __m128i*> p))
    v.hi = _mm256_cvtepu8_epi32(_mm_loadl_epi64(<const __m128i*> (p + 8)))
    return to_f32(v)


cdef inline f32x16 load_s8(const unsigned char* p) noexcept nogil:
    cdef i32x16 v
    v.lo = _mm256_cvtepi8_epi32(_mm_loadl_epi64(<const __m128i*> p))
    v.hi = _mm256_cvtepi8_epi32(_mm_loadl_epi64(<const __m128i*> (p + 8)))
    return to_f32(v)


cdef inline __m256i byte_of(__m256i v, int k) noexcept nogil:
    if k == 0:
        v = _mm256_slli_epi32(v, 24)
    elif k == 1:
        v = _mm256_slli_epi32(v, 16)
    elif k == 2:
        v = _mm256_slli_epi32(v, 8)
    return _mm256_srai_epi32(v, 24)


cdef inline f32x16 signed_byte(bytes64 v, int k) noexcept nogil:
    """Byte k of every lane, as a signed one."""
    cdef i32x16 y
    y.lo = byte_of(v.lo, k)
    y.hi = byte_of(v.hi, k)
    return to_f32(y)


cdef inline bytes64 looked_up(bytes64 v, const signed char* table) noexcept nogil:
    """What a table of 16 says of every byte, 0..15."""
    cdef __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128(<const __m128i*> table))
    v.lo = _mm256_shuffle_epi8(both, v.lo)
    v.hi = _mm256_shuffle_epi8(both, v.hi)
    return v
