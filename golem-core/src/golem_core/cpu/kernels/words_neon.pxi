# Float and 32-bit integer words of 16 lanes for AArch64 (every 64-bit Arm).
#
# A word is four q registers. What each word means is said in words_generic.pxi.

from libc.string cimport memcpy

cdef extern from "arm_neon.h" nogil:
    ctypedef struct float32x2_t:
        pass
    ctypedef struct float32x4_t:
        pass
    ctypedef struct float16x4_t:
        pass
    ctypedef struct uint16x4_t:
        pass
    ctypedef struct uint32x4_t:
        pass
    ctypedef struct int8x8_t:
        pass
    ctypedef struct int8x16_t:
        pass
    ctypedef struct int16x4_t:
        pass
    ctypedef struct int16x8_t:
        pass
    ctypedef struct int32x4_t:
        pass

    float32x4_t vdupq_n_f32(float)
    float32x4_t vld1q_f32(const float*)
    void vst1q_f32(float*, float32x4_t)
    float32x4_t vaddq_f32(float32x4_t, float32x4_t)
    float32x4_t vsubq_f32(float32x4_t, float32x4_t)
    float32x4_t vmulq_f32(float32x4_t, float32x4_t)
    float32x4_t vdivq_f32(float32x4_t, float32x4_t)
    float32x4_t vfmaq_f32(float32x4_t, float32x4_t, float32x4_t)
    float32x4_t vfmsq_f32(float32x4_t, float32x4_t, float32x4_t)
    uint32x4_t vcgtq_f32(float32x4_t, float32x4_t)
    uint32x4_t vcltq_f32(float32x4_t, float32x4_t)
    float32x4_t vbslq_f32(uint32x4_t, float32x4_t, float32x4_t)
    float32x4_t vcvt_f32_f16(float16x4_t)
    float16x4_t vcvt_f16_f32(float32x4_t)
    float16x4_t vreinterpret_f16_u16(uint16x4_t)
    uint16x4_t vreinterpret_u16_f16(float16x4_t)
    uint16x4_t vld1_u16(const unsigned short*)
    void vst1_u16(unsigned short*, uint16x4_t)
    uint32x4_t vshll_n_u16(uint16x4_t, int)
    float32x4_t vreinterpretq_f32_u32(uint32x4_t)
    float32x4_t vrev64q_f32(float32x4_t)
    float32x4_t vzip1q_f32(float32x4_t, float32x4_t)
    float32x4_t vzip2q_f32(float32x4_t, float32x4_t)
    float32x2_t vget_low_f32(float32x4_t)
    float32x2_t vget_high_f32(float32x4_t)
    float32x2_t vadd_f32(float32x2_t, float32x2_t)
    float vget_lane_f32(float32x2_t, int)

    int32x4_t vdupq_n_s32(int)
    int32x4_t vld1q_s32(const int*)
    void vst1q_s32(int*, int32x4_t)
    int32x4_t vaddq_s32(int32x4_t, int32x4_t)
    int32x4_t vsubq_s32(int32x4_t, int32x4_t)
    int32x4_t vmulq_s32(int32x4_t, int32x4_t)
    int32x4_t vandq_s32(int32x4_t, int32x4_t)
    int32x4_t vmaxq_s32(int32x4_t, int32x4_t)
    int32x4_t vshlq_n_s32(int32x4_t, int)
    int32x4_t vreinterpretq_s32_f32(float32x4_t)
    float32x4_t vreinterpretq_f32_s32(int32x4_t)
    float32x4_t vcvtq_f32_s32(int32x4_t)
    int32x4_t vcvtnq_s32_f32(float32x4_t)
    int16x4_t vmovn_s32(int32x4_t)
    int8x8_t vmovn_s16(int16x8_t)
    int16x8_t vcombine_s16(int16x4_t, int16x4_t)
    int8x16_t vcombine_s8(int8x8_t, int8x8_t)
    void vst1q_s8(signed char*, int8x16_t)
    int vaddvq_s32(int32x4_t)
    int vmaxvq_s32(int32x4_t)

cdef struct f32x16:
    float32x4_t v0
    float32x4_t v1
    float32x4_t v2
    float32x4_t v3

cdef struct i32x16:
    int32x4_t v0
    int32x4_t v1
    int32x4_t v2
    int32x4_t v3

# The tile of attention: TILE items, each with sums of SPAN words. 16 registers of 32.
cdef enum:
    TILE = 4
    SPAN = 1


cdef inline f32x16 zero() noexcept nogil:
    return splat(0.0)


cdef inline f32x16 splat(float x) noexcept nogil:
    cdef f32x16 r
    r.v0 = vdupq_n_f32(x)
    r.v1 = vdupq_n_f32(x)
    r.v2 = vdupq_n_f32(x)
    r.v3 = vdupq_n_f32(x)
    return r


cdef inline f32x16 load(const float* p) noexcept nogil:
    cdef f32x16 r
    r.v0 = vld1q_f32(p)
    r.v1 = vld1q_f32(p + 4)
    r.v2 = vld1q_f32(p + 8)
    r.v3 = vld1q_f32(p + 12)
    return r


cdef inline void store(float* p, f32x16 v) noexcept nogil:
    vst1q_f32(p, v.v0)
    vst1q_f32(p + 4, v.v1)
    vst1q_f32(p + 8, v.v2)
    vst1q_f32(p + 12, v.v3)


cdef inline f32x16 load_n(const float* p, Py_ssize_t n) noexcept nogil:
    cdef float lanes[16]
    if n == 16:
        return load(p)
    store(lanes, zero())
    memcpy(lanes, p, n * sizeof(float))
    return load(lanes)


cdef inline void store_n(float* p, f32x16 v, Py_ssize_t n) noexcept nogil:
    cdef float lanes[16]
    if n == 16:
        store(p, v)
        return
    store(lanes, v)
    memcpy(p, lanes, n * sizeof(float))


cdef inline f32x16 add(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.v0 = vaddq_f32(a.v0, b.v0)
    r.v1 = vaddq_f32(a.v1, b.v1)
    r.v2 = vaddq_f32(a.v2, b.v2)
    r.v3 = vaddq_f32(a.v3, b.v3)
    return r


cdef inline f32x16 sub(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.v0 = vsubq_f32(a.v0, b.v0)
    r.v1 = vsubq_f32(a.v1, b.v1)
    r.v2 = vsubq_f32(a.v2, b.v2)
    r.v3 = vsubq_f32(a.v3, b.v3)
    return r


cdef inline f32x16 mul(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.v0 = vmulq_f32(a.v0, b.v0)
    r.v1 = vmulq_f32(a.v1, b.v1)
    r.v2 = vmulq_f32(a.v2, b.v2)
    r.v3 = vmulq_f32(a.v3, b.v3)
    return r


cdef inline f32x16 div(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.v0 = vdivq_f32(a.v0, b.v0)
    r.v1 = vdivq_f32(a.v1, b.v1)
    r.v2 = vdivq_f32(a.v2, b.v2)
    r.v3 = vdivq_f32(a.v3, b.v3)
    return r


cdef inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) noexcept nogil:
    cdef f32x16 r
    r.v0 = vfmaq_f32(c.v0, a.v0, b.v0)
    r.v1 = vfmaq_f32(c.v1, a.v1, b.v1)
    r.v2 = vfmaq_f32(c.v2, a.v2, b.v2)
    r.v3 = vfmaq_f32(c.v3, a.v3, b.v3)
    return r


cdef inline f32x16 fnma(f32x16 a, f32x16 b, f32x16 c) noexcept nogil:
    cdef f32x16 r
    r.v0 = vfmsq_f32(c.v0, a.v0, b.v0)
    r.v1 = vfmsq_f32(c.v1, a.v1, b.v1)
    r.v2 = vfmsq_f32(c.v2, a.v2, b.v2)
    r.v3 = vfmsq_f32(c.v3, a.v3, b.v3)
    return r


# Not vmaxq: a NaN must choose b, as on the other processors.
cdef inline f32x16 max_(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.v0 = vbslq_f32(vcgtq_f32(a.v0, b.v0), a.v0, b.v0)
    r.v1 = vbslq_f32(vcgtq_f32(a.v1, b.v1), a.v1, b.v1)
    r.v2 = vbslq_f32(vcgtq_f32(a.v2, b.v2), a.v2, b.v2)
    r.v3 = vbslq_f32(vcgtq_f32(a.v3, b.v3), a.v3, b.v3)
    return r


cdef inline f32x16 min_(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.v0 = vbslq_f32(vcltq_f32(a.v0, b.v0), a.v0, b.v0)
    r.v1 = vbslq_f32(vcltq_f32(a.v1, b.v1), a.v1, b.v1)
    r.v2 = vbslq_f32(vcltq_f32(a.v2, b.v2), a.v2, b.v2)
    r.v3 = vbslq_f32(vcltq_f32(a.v3, b.v3), a.v3, b.v3)
    return r


cdef inline f32x16 select_lt(f32x16 a, f32x16 b, f32x16 yes, f32x16 no) noexcept nogil:
    cdef f32x16 r
    r.v0 = vbslq_f32(vcltq_f32(a.v0, b.v0), yes.v0, no.v0)
    r.v1 = vbslq_f32(vcltq_f32(a.v1, b.v1), yes.v1, no.v1)
    r.v2 = vbslq_f32(vcltq_f32(a.v2, b.v2), yes.v2, no.v2)
    r.v3 = vbslq_f32(vcltq_f32(a.v3, b.v3), yes.v3, no.v3)
    return r


cdef inline f32x16 load_half(const unsigned short* p) noexcept nogil:
    cdef f32x16 r
    r.v0 = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))
    r.v1 = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4)))
    r.v2 = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 8)))
    r.v3 = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 12)))
    return r


cdef inline void store_half(unsigned short* p, f32x16 v) noexcept nogil:
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v.v0)))
    vst1_u16(p + 4, vreinterpret_u16_f16(vcvt_f16_f32(v.v1)))
    vst1_u16(p + 8, vreinterpret_u16_f16(vcvt_f16_f32(v.v2)))
    vst1_u16(p + 12, vreinterpret_u16_f16(vcvt_f16_f32(v.v3)))


cdef inline f32x16 swap_pairs(f32x16 v) noexcept nogil:
    cdef f32x16 r
    r.v0 = vrev64q_f32(v.v0)
    r.v1 = vrev64q_f32(v.v1)
    r.v2 = vrev64q_f32(v.v2)
    r.v3 = vrev64q_f32(v.v3)
    return r


cdef inline f32x16 twice_n(const float* p, Py_ssize_t n) noexcept nogil:
    cdef f32x16 r
    cdef f32x16 v = load_n(p, n)
    r.v0 = vzip1q_f32(v.v0, v.v0)
    r.v1 = vzip2q_f32(v.v0, v.v0)
    r.v2 = vzip1q_f32(v.v1, v.v1)
    r.v3 = vzip2q_f32(v.v1, v.v1)
    return r


cdef inline float hsum(f32x16 v) noexcept nogil:
    cdef float32x4_t a = vaddq_f32(vaddq_f32(v.v0, v.v2), vaddq_f32(v.v1, v.v3))
    cdef float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a))
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1)


cdef inline float hmax(f32x16 v) noexcept nogil:
    cdef float lanes[16]
    cdef int i, half = 8
    store(lanes, v)
    while half:
        for i in range(half):
            lanes[i] = lanes[i] if lanes[i] > lanes[i + half] else lanes[i + half]
        half //= 2
    return lanes[0]


cdef inline i32x16 izero() noexcept nogil:
    return isplat(0)


cdef inline i32x16 isplat(int x) noexcept nogil:
    cdef i32x16 r
    r.v0 = vdupq_n_s32(x)
    r.v1 = vdupq_n_s32(x)
    r.v2 = vdupq_n_s32(x)
    r.v3 = vdupq_n_s32(x)
    return r


cdef inline i32x16 iload(const int* p) noexcept nogil:
    cdef i32x16 r
    r.v0 = vld1q_s32(p)
    r.v1 = vld1q_s32(p + 4)
    r.v2 = vld1q_s32(p + 8)
    r.v3 = vld1q_s32(p + 12)
    return r


cdef inline void istore(int* p, i32x16 v) noexcept nogil:
    vst1q_s32(p, v.v0)
    vst1q_s32(p + 4, v.v1)
    vst1q_s32(p + 8, v.v2)
    vst1q_s32(p + 12, v.v3)


cdef inline i32x16 iadd(i32x16 a, i32x16 b) noexcept nogil:
    cdef i32x16 r
    r.v0 = vaddq_s32(a.v0, b.v0)
    r.v1 = vaddq_s32(a.v1, b.v1)
    r.v2 = vaddq_s32(a.v2, b.v2)
    r.v3 = vaddq_s32(a.v3, b.v3)
    return r


cdef inline i32x16 isub(i32x16 a, i32x16 b) noexcept nogil:
    cdef i32x16 r
    r.v0 = vsubq_s32(a.v0, b.v0)
    r.v1 = vsubq_s32(a.v1, b.v1)
    r.v2 = vsubq_s32(a.v2, b.v2)
    r.v3 = vsubq_s32(a.v3, b.v3)
    return r


cdef inline i32x16 imul(i32x16 a, i32x16 b) noexcept nogil:
    cdef i32x16 r
    r.v0 = vmulq_s32(a.v0, b.v0)
    r.v1 = vmulq_s32(a.v1, b.v1)
    r.v2 = vmulq_s32(a.v2, b.v2)
    r.v3 = vmulq_s32(a.v3, b.v3)
    return r


cdef inline i32x16 iand(i32x16 a, i32x16 b) noexcept nogil:
    cdef i32x16 r
    r.v0 = vandq_s32(a.v0, b.v0)
    r.v1 = vandq_s32(a.v1, b.v1)
    r.v2 = vandq_s32(a.v2, b.v2)
    r.v3 = vandq_s32(a.v3, b.v3)
    return r


cdef inline i32x16 imax(i32x16 a, i32x16 b) noexcept nogil:
    cdef i32x16 r
    r.v0 = vmaxq_s32(a.v0, b.v0)
    r.v1 = vmaxq_s32(a.v1, b.v1)
    r.v2 = vmaxq_s32(a.v2, b.v2)
    r.v3 = vmaxq_s32(a.v3, b.v3)
    return r


cdef inline i32x16 shift_16(i32x16 v) noexcept nogil:
    cdef i32x16 r
    r.v0 = vshlq_n_s32(v.v0, 16)
    r.v1 = vshlq_n_s32(v.v1, 16)
    r.v2 = vshlq_n_s32(v.v2, 16)
    r.v3 = vshlq_n_s32(v.v3, 16)
    return r


cdef inline i32x16 shift_23(i32x16 v) noexcept nogil:
    cdef i32x16 r
    r.v0 = vshlq_n_s32(v.v0, 23)
    r.v1 = vshlq_n_s32(v.v1, 23)
    r.v2 = vshlq_n_s32(v.v2, 23)
    r.v3 = vshlq_n_s32(v.v3, 23)
    return r


cdef inline i32x16 bits(f32x16 v) noexcept nogil:
    cdef i32x16 r
    r.v0 = vreinterpretq_s32_f32(v.v0)
    r.v1 = vreinterpretq_s32_f32(v.v1)
    r.v2 = vreinterpretq_s32_f32(v.v2)
    r.v3 = vreinterpretq_s32_f32(v.v3)
    return r


cdef inline f32x16 from_bits(i32x16 v) noexcept nogil:
    cdef f32x16 r
    r.v0 = vreinterpretq_f32_s32(v.v0)
    r.v1 = vreinterpretq_f32_s32(v.v1)
    r.v2 = vreinterpretq_f32_s32(v.v2)
    r.v3 = vreinterpretq_f32_s32(v.v3)
    return r


cdef inline f32x16 to_f32(i32x16 v) noexcept nogil:
    cdef f32x16 r
    r.v0 = vcvtq_f32_s32(v.v0)
    r.v1 = vcvtq_f32_s32(v.v1)
    r.v2 = vcvtq_f32_s32(v.v2)
    r.v3 = vcvtq_f32_s32(v.v3)
    return r


cdef inline i32x16 to_i32(f32x16 v) noexcept nogil:
    cdef i32x16 r
    r.v0 = vcvtnq_s32_f32(v.v0)
    r.v1 = vcvtnq_s32_f32(v.v1)
    r.v2 = vcvtnq_s32_f32(v.v2)
    r.v3 = vcvtnq_s32_f32(v.v3)
    return r


cdef inline void store_i8(signed char* p, i32x16 v) noexcept nogil:
    cdef int16x8_t a = vcombine_s16(vmovn_s32(v.v0), vmovn_s32(v.v1))
    cdef int16x8_t b = vcombine_s16(vmovn_s32(v.v2), vmovn_s32(v.v3))
    vst1q_s8(p, vcombine_s8(vmovn_s16(a), vmovn_s16(b)))


cdef inline int ihsum(i32x16 v) noexcept nogil:
    return vaddvq_s32(vaddq_s32(vaddq_s32(v.v0, v.v2), vaddq_s32(v.v1, v.v3)))


cdef inline int ihmax(i32x16 v) noexcept nogil:
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(v.v0, v.v2), vmaxq_s32(v.v1, v.v3)))


cdef inline i32x16 rows_max(const int* p) noexcept nogil:
    cdef int[16] lanes
    cdef int i
    for i in range(16):
        lanes[i] = ihmax(iload(p + 16 * i))
    return iload(lanes)


cdef inline i32x16 rows_sum(const int* p) noexcept nogil:
    cdef int[16] lanes
    cdef int i
    for i in range(16):
        lanes[i] = ihsum(iload(p + 16 * i))
    return iload(lanes)
