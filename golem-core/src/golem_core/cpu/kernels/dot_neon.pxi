# Integer words for AArch64 without dot products (Cortex-A72 and older).

cdef extern from "arm_neon.h" nogil:
    int8x8_t vget_low_s8(int8x16_t)
    int16x8_t vmull_s8(int8x8_t, int8x8_t)
    int16x8_t vmull_high_s8(int8x16_t, int8x16_t)
    int32x4_t vpaddlq_s16(int16x8_t)
    int32x4_t vpaddq_s32(int32x4_t, int32x4_t)


cdef inline int32x4_t four_products(int32x4_t sums, int8x16_t a, int8x16_t b) noexcept nogil:
    """Adds each lane's four products; one is at most 128 * 127, so 16 bits hold it."""
    return vaddq_s32(sums, vpaddq_s32(
        vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b))),
        vpaddlq_s16(vmull_high_s8(a, b))))


include "dot_neon_words.pxi"
