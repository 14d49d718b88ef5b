# Integer dot products for AVX2 (Haswell 2013, Zen 2017 and later).
#
# Pairs of products are summed in 16 bits: up to four vectors of 5-bit codes fit (4 * 2 * 31 * 127 <
# 32768), or two of 6 bits, and a vector of bytes only by their magnitudes (2 * 128 * 127).

include "dot_avx2_words.pxi"

cdef extern from "immintrin.h" nogil:
    __m256i _mm256_set1_epi16(short)
    __m256i _mm256_xor_si256(__m256i, __m256i)
    __m256i _mm256_add_epi16(__m256i, __m256i)
    __m256i _mm256_maddubs_epi16(__m256i, __m256i)
    __m256i _mm256_madd_epi16(__m256i, __m256i)
    __m256i _mm256_abs_epi8(__m256i)
    __m256i _mm256_sign_epi8(__m256i, __m256i)

# Tiles: one panel times up to four columns; more sums would not fit 16 registers.
cdef enum:
    WIDEST = 4
    FLOAT_WIDEST = 6
    TALLEST = 1
    PARTIAL = 1                 # sums of narrow codes are kept in 16 bits for a while
    AHEAD = 4096                # bytes that weights are asked for ahead of their use

cdef inline i32x16 dots(i32x16 sums, bytes64 codes, bytes4 four) noexcept nogil:
    """Adds to partial sums, 32 of 16 bits; `widen` makes them 16 of 32 bits."""
    sums.lo = _mm256_add_epi16(sums.lo, _mm256_maddubs_epi16(codes.lo, four))
    sums.hi = _mm256_add_epi16(sums.hi, _mm256_maddubs_epi16(codes.hi, four))
    return sums


cdef inline i32x16 widen(i32x16 sums, i32x16 partial) noexcept nogil:
    """sums + partial."""
    cdef __m256i one = _mm256_set1_epi16(1)
    sums.lo = _mm256_add_epi32(sums.lo, _mm256_madd_epi16(partial.lo, one))
    sums.hi = _mm256_add_epi32(sums.hi, _mm256_madd_epi16(partial.hi, one))
    return sums


cdef inline i32x16 minus_sum_wide(const int* sum) noexcept nogil:
    """What `dots_wide` starts from, so that its codes count from -128."""
    return no_dots()


cdef inline __m256i products(__m256i codes, __m256i four) noexcept nogil:
    codes = _mm256_xor_si256(codes, _mm256_set1_epi8(-128))
    return _mm256_madd_epi16(
        _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(four, codes)),
        _mm256_set1_epi16(1))


cdef inline i32x16 dots_wide(i32x16 sums, bytes64 codes, bytes4 four) noexcept nogil:
    """Adds to whole sums, for codes of a whole byte."""
    sums.lo = _mm256_add_epi32(sums.lo, products(codes.lo, four))
    sums.hi = _mm256_add_epi32(sums.hi, products(codes.hi, four))
    return sums
