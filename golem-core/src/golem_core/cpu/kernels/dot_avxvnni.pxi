# Integer dot products for AVX-VNNI (Alder Lake 2021, Zen 5 and later): AVX-512's in ymm registers.

include "dot_avx2_words.pxi"

cdef extern from "immintrin.h" nogil:
    __m256i _mm256_dpbusd_avx_epi32(__m256i, __m256i, __m256i)

# Tiles: one panel times up to four columns; more sums would not fit 16 registers.
cdef enum:
    WIDEST = 4
    FLOAT_WIDEST = 6
    TALLEST = 1
    PARTIAL = 0
    AHEAD = 4096                # bytes that weights are asked for ahead of their use


cdef inline i32x16 dots(i32x16 sums, bytes64 codes, bytes4 four) noexcept nogil:
    sums.lo = _mm256_dpbusd_avx_epi32(sums.lo, codes.lo, four)
    sums.hi = _mm256_dpbusd_avx_epi32(sums.hi, codes.hi, four)
    return sums


cdef inline i32x16 widen(i32x16 sums, i32x16 partial) noexcept nogil:
    """Never called: `dots` adds to whole sums here."""
    return sums


cdef inline i32x16 minus_sum_wide(const int* sum) noexcept nogil:
    """What `dots_wide` starts from, so that its codes count from -128."""
    return minus_sum(sum, 128)


cdef inline i32x16 dots_wide(i32x16 sums, bytes64 codes, bytes4 four) noexcept nogil:
    """As `dots`, for codes of a whole byte."""
    return dots(sums, codes, four)
