# Integer words that both layers of AArch64 share; `four_products` is the layer's own.
#
# A lane is a row; a byte of a lane is one of four consecutive columns. Codes are below 64, or a
# byte less 128, so they multiply as signed bytes.

include "inline.pxi"

cdef extern from "arm_neon.h" nogil:
    ctypedef struct uint8x16_t:
        pass
    ctypedef struct uint8x8_t:
        pass
    ctypedef struct uint16x8_t:
        pass

    uint8x16_t vld1q_u8(const unsigned char*)
    void vst1q_u8(unsigned char*, uint8x16_t)
    uint8x8_t vld1_u8(const unsigned char*)
    uint8x16_t vdupq_n_u8(unsigned char)
    int8x16_t vdupq_n_s8(signed char)
    uint8x16_t vandq_u8(uint8x16_t, uint8x16_t)
    uint8x16_t vorrq_u8(uint8x16_t, uint8x16_t)
    uint8x16_t veorq_u8(uint8x16_t, uint8x16_t)
    uint8x16_t vshlq_u8(uint8x16_t, int8x16_t)
    uint8x16_t vqtbl1q_u8(uint8x16_t, uint8x16_t)
    int8x16_t vreinterpretq_s8_u8(uint8x16_t)
    int8x16_t vreinterpretq_s8_s32(int32x4_t)
    int32x4_t vreinterpretq_s32_u8(uint8x16_t)
    int32x4_t vshlq_s32(int32x4_t, int32x4_t)
    int32x4_t vshrq_n_s32(int32x4_t, int)
    uint16x8_t vmovl_u8(uint8x8_t)
    int16x8_t vreinterpretq_s16_u16(uint16x8_t)
    int8x8_t vreinterpret_s8_u8(uint8x8_t)
    int16x8_t vmovl_s8(int8x8_t)
    int16x4_t vget_low_s16(int16x8_t)
    int16x4_t vget_high_s16(int16x8_t)
    int32x4_t vmovl_s16(int16x4_t)

# Tiles: one panel times up to four columns are 16 of 32 registers of sums.
cdef enum:
    WIDEST = 4
    FLOAT_WIDEST = 4
    TALLEST = 1
    PARTIAL = 0
    AHEAD = 1024                # bytes that weights are asked for ahead of their use

cdef struct bytes64:
    uint8x16_t v0
    uint8x16_t v1
    uint8x16_t v2
    uint8x16_t v3

ctypedef int8x16_t bytes4


cdef inline bytes64 load_bytes(const unsigned char* p) noexcept nogil:
    cdef bytes64 v
    v.v0 = vld1q_u8(p)
    v.v1 = vld1q_u8(p + 16)
    v.v2 = vld1q_u8(p + 32)
    v.v3 = vld1q_u8(p + 48)
    return v


cdef inline void store_bytes(unsigned char* p, bytes64 v) noexcept nogil:
    vst1q_u8(p, v.v0)
    vst1q_u8(p + 16, v.v1)
    vst1q_u8(p + 32, v.v2)
    vst1q_u8(p + 48, v.v3)


cdef inline bytes64 masked(bytes64 v, int left, int mask) noexcept nogil:
    """Bytes shifted to the left (or by -left to the right), and what the mask keeps of them."""
    v.v0 = vandq_u8(vshlq_u8(v.v0, vdupq_n_s8(left)), vdupq_n_u8(mask))
    v.v1 = vandq_u8(vshlq_u8(v.v1, vdupq_n_s8(left)), vdupq_n_u8(mask))
    v.v2 = vandq_u8(vshlq_u8(v.v2, vdupq_n_s8(left)), vdupq_n_u8(mask))
    v.v3 = vandq_u8(vshlq_u8(v.v3, vdupq_n_s8(left)), vdupq_n_u8(mask))
    return v


cdef inline bytes64 either(bytes64 a, bytes64 b) noexcept nogil:
    a.v0 = vorrq_u8(a.v0, b.v0)
    a.v1 = vorrq_u8(a.v1, b.v1)
    a.v2 = vorrq_u8(a.v2, b.v2)
    a.v3 = vorrq_u8(a.v3, b.v3)
    return a


cdef inline bytes64 low_nibbles(bytes64 v) noexcept nogil:
    return masked(v, 0, 15)


cdef inline bytes64 high_nibbles(bytes64 v) noexcept nogil:
    return masked(v, -4, 15)


cdef inline bytes64 with_fifth(bytes64 v, bytes64 plane, int j) noexcept nogil:
    """v + 16 * bit j of plane."""
    return either(v, masked(plane, 4 - j, 16))


cdef inline bytes64 with_pair(bytes64 v, bytes64 plane, int j) noexcept nogil:
    """v + 16 * bits 2j and 2j + 1 of plane, j < 4."""
    return either(v, masked(plane, 4 - 2 * j, 48))


cdef inline bytes4 splat4(const signed char* p) noexcept nogil:
    """Four consecutive codes of a column, to every row."""
    return vreinterpretq_s8_s32(vdupq_n_s32((<const int*> p)[0]))


cdef inline i32x16 no_dots() noexcept nogil:
    return izero()


cdef inline i32x16 minus_sum(const int* sum, int offset) noexcept nogil:
    """-offset * sum in every lane."""
    return isplat(-offset * sum[0])


cdef inline i32x16 dots(i32x16 sums, bytes64 codes, bytes4 four) noexcept nogil:
    sums.v0 = four_products(sums.v0, vreinterpretq_s8_u8(codes.v0), four)
    sums.v1 = four_products(sums.v1, vreinterpretq_s8_u8(codes.v1), four)
    sums.v2 = four_products(sums.v2, vreinterpretq_s8_u8(codes.v2), four)
    sums.v3 = four_products(sums.v3, vreinterpretq_s8_u8(codes.v3), four)
    return sums


cdef inline i32x16 widen(i32x16 sums, i32x16 partial) noexcept nogil:
    """Never called: `dots` adds to whole sums here."""
    return sums


cdef inline i32x16 minus_sum_wide(const int* sum) noexcept nogil:
    """What `dots_wide` starts from, so that its codes count from -128."""
    return izero()


cdef inline i32x16 dots_wide(i32x16 sums, bytes64 codes, bytes4 four) noexcept nogil:
    """As `dots`, for codes of a whole byte."""
    codes.v0 = veorq_u8(codes.v0, vdupq_n_u8(128))
    codes.v1 = veorq_u8(codes.v1, vdupq_n_u8(128))
    codes.v2 = veorq_u8(codes.v2, vdupq_n_u8(128))
    codes.v3 = veorq_u8(codes.v3, vdupq_n_u8(128))
    return dots(sums, codes, four)


cdef inline f32x16 widened(int16x8_t low, int16x8_t high) noexcept nogil:
    cdef i32x16 v
    v.v0 = vmovl_s16(vget_low_s16(low))
    v.v1 = vmovl_s16(vget_high_s16(low))
    v.v2 = vmovl_s16(vget_low_s16(high))
    v.v3 = vmovl_s16(vget_high_s16(high))
    return to_f32(v)


cdef inline f32x16 load_u8(const unsigned char* p) noexcept nogil:
    return widened(vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p))),
                   vreinterpretq_s16_u16(vmovl_u8(vld1_u8(p + 8))))


cdef inline f32x16 load_s8(const unsigned char* p) noexcept nogil:
    return widened(vmovl_s8(vreinterpret_s8_u8(vld1_u8(p))),
                   vmovl_s8(vreinterpret_s8_u8(vld1_u8(p + 8))))


cdef inline int32x4_t byte_of(uint8x16_t v, int k) noexcept nogil:
    return vshrq_n_s32(vshlq_s32(vreinterpretq_s32_u8(v), vdupq_n_s32(24 - 8 * k)), 24)


cdef inline f32x16 signed_byte(bytes64 v, int k) noexcept nogil:
    """Byte k of every lane, as a signed one."""
    cdef i32x16 y
    y.v0 = byte_of(v.v0, k)
    y.v1 = byte_of(v.v1, k)
    y.v2 = byte_of(v.v2, k)
    y.v3 = byte_of(v.v3, k)
    return to_f32(y)


cdef inline bytes64 looked_up(bytes64 v, const signed char* table) noexcept nogil:
    """What a table of 16 says of every byte, 0..15."""
    cdef uint8x16_t t = vld1q_u8(<const unsigned char*> table)
    v.v0 = vqtbl1q_u8(t, v.v0)
    v.v1 = vqtbl1q_u8(t, v.v1)
    v.v2 = vqtbl1q_u8(t, v.v2)
    v.v3 = vqtbl1q_u8(t, v.v3)
    return v
