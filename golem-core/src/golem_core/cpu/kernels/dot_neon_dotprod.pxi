# Integer words for AArch64 with dot products (Armv8.2: Cortex-A76 2018, Apple M1).

cdef extern from "arm_neon.h" nogil:
    int32x4_t vdotq_s32(int32x4_t, int8x16_t, int8x16_t)


cdef inline int32x4_t four_products(int32x4_t sums, int8x16_t a, int8x16_t b) noexcept nogil:
    """Adds each lane's four products."""
    return vdotq_s32(sums, a, b)


include "dot_neon_words.pxi"
