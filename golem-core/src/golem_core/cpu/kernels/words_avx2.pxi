# Float and 32-bit integer words of 16 lanes for AVX2 with FMA and F16C (Haswell 2013, Zen 2017).
#
# A word is two ymm registers. What each word means is said in words_generic.pxi.

cdef extern from "immintrin.h" nogil:
    ctypedef struct __m128:
        pass
    ctypedef struct __m128i:
        pass
    ctypedef struct __m256:
        pass
    ctypedef struct __m256i:
        pass

    __m256 _mm256_set1_ps(float)
    __m256 _mm256_loadu_ps(const float*)
    void _mm256_storeu_ps(float*, __m256)
    __m256 _mm256_maskload_ps(const float*, __m256i)
    void _mm256_maskstore_ps(float*, __m256i, __m256)
    __m256 _mm256_add_ps(__m256, __m256)
    __m256 _mm256_sub_ps(__m256, __m256)
    __m256 _mm256_mul_ps(__m256, __m256)
    __m256 _mm256_div_ps(__m256, __m256)
    __m256 _mm256_fmadd_ps(__m256, __m256, __m256)
    __m256 _mm256_fnmadd_ps(__m256, __m256, __m256)
    __m256 _mm256_max_ps(__m256, __m256)
    __m256 _mm256_min_ps(__m256, __m256)
    __m256 _mm256_cmp_ps(__m256, __m256, int)
    __m256 _mm256_blendv_ps(__m256, __m256, __m256)
    __m256 _mm256_cvtph_ps(__m128i)
    __m128i _mm256_cvtps_ph(__m256, int)
    __m256 _mm256_castsi256_ps(__m256i)
    __m256i _mm256_castps_si256(__m256)
    __m256 _mm256_permute_ps(__m256, int)
    __m256 _mm256_permutevar8x32_ps(__m256, __m256i)
    __m256 _mm256_cvtepi32_ps(__m256i)
    __m256i _mm256_cvtps_epi32(__m256)
    __m128 _mm256_castps256_ps128(__m256)
    __m128 _mm256_extractf128_ps(__m256, int)
    __m128 _mm_add_ps(__m128, __m128)
    __m128 _mm_max_ps(__m128, __m128)
    __m128 _mm_movehl_ps(__m128, __m128)
    __m128 _mm_shuffle_ps(__m128, __m128, int)
    float _mm_cvtss_f32(__m128)

    __m256i _mm256_set1_epi32(int)
    __m256i _mm256_setr_epi32(int, int, int, int, int, int, int, int)
    __m256i _mm256_loadu_si256(const __m256i*)
    void _mm256_storeu_si256(__m256i*, __m256i)
    __m256i _mm256_add_epi32(__m256i, __m256i)
    __m256i _mm256_sub_epi32(__m256i, __m256i)
    __m256i _mm256_mullo_epi32(__m256i, __m256i)
    __m256i _mm256_and_si256(__m256i, __m256i)
    __m256i _mm256_max_epi32(__m256i, __m256i)
    __m256i _mm256_cmpgt_epi32(__m256i, __m256i)
    __m256i _mm256_slli_epi32(__m256i, int)
    __m256i _mm256_packs_epi32(__m256i, __m256i)
    __m256i _mm256_permute4x64_epi64(__m256i, int)
    __m128i _mm256_castsi256_si128(__m256i)
    __m128i _mm256_extracti128_si256(__m256i, int)
    __m128i _mm_loadu_si128(const __m128i*)
    void _mm_storeu_si128(__m128i*, __m128i)
    __m128i _mm_packs_epi16(__m128i, __m128i)
    __m128i _mm_add_epi32(__m128i, __m128i)
    __m128i _mm_max_epi32(__m128i, __m128i)
    __m128i _mm_shuffle_epi32(__m128i, int)
    int _mm_cvtsi128_si32(__m128i)

cdef struct f32x16:
    __m256 lo
    __m256 hi

cdef struct i32x16:
    __m256i lo
    __m256i hi

# The tile of attention: TILE items, each with sums of SPAN words. 12 registers of 16.
cdef enum:
    TILE = 6
    SPAN = 1


cdef inline f32x16 zero() noexcept nogil:
    return splat(0.0)


cdef inline f32x16 splat(float x) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_set1_ps(x)
    r.hi = _mm256_set1_ps(x)
    return r


cdef inline f32x16 load(const float* p) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_loadu_ps(p)
    r.hi = _mm256_loadu_ps(p + 8)
    return r


cdef inline void store(float* p, f32x16 v) noexcept nogil:
    _mm256_storeu_ps(p, v.lo)
    _mm256_storeu_ps(p + 8, v.hi)


# All ones in the first n lanes of a register.
cdef inline __m256i mask_n(Py_ssize_t n) noexcept nogil:
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(<int> n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))


cdef inline f32x16 load_n(const float* p, Py_ssize_t n) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_maskload_ps(p, mask_n(n))
    r.hi = _mm256_maskload_ps(p + 8, mask_n(n - 8))
    return r


cdef inline void store_n(float* p, f32x16 v, Py_ssize_t n) noexcept nogil:
    _mm256_maskstore_ps(p, mask_n(n), v.lo)
    _mm256_maskstore_ps(p + 8, mask_n(n - 8), v.hi)


cdef inline f32x16 add(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_add_ps(a.lo, b.lo)
    r.hi = _mm256_add_ps(a.hi, b.hi)
    return r


cdef inline f32x16 sub(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_sub_ps(a.lo, b.lo)
    r.hi = _mm256_sub_ps(a.hi, b.hi)
    return r


cdef inline f32x16 mul(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_mul_ps(a.lo, b.lo)
    r.hi = _mm256_mul_ps(a.hi, b.hi)
    return r


cdef inline f32x16 div(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_div_ps(a.lo, b.lo)
    r.hi = _mm256_div_ps(a.hi, b.hi)
    return r


cdef inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_fmadd_ps(a.lo, b.lo, c.lo)
    r.hi = _mm256_fmadd_ps(a.hi, b.hi, c.hi)
    return r


cdef inline f32x16 fnma(f32x16 a, f32x16 b, f32x16 c) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_fnmadd_ps(a.lo, b.lo, c.lo)
    r.hi = _mm256_fnmadd_ps(a.hi, b.hi, c.hi)
    return r


cdef inline f32x16 max_(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_max_ps(a.lo, b.lo)
    r.hi = _mm256_max_ps(a.hi, b.hi)
    return r


cdef inline f32x16 min_(f32x16 a, f32x16 b) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_min_ps(a.lo, b.lo)
    r.hi = _mm256_min_ps(a.hi, b.hi)
    return r


cdef inline f32x16 select_lt(f32x16 a, f32x16 b, f32x16 yes, f32x16 no) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, 0x11))
    r.hi = _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, 0x11))
    return r


cdef inline f32x16 load_half(const unsigned short* p) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_cvtph_ps(_mm_loadu_si128(<const __m128i*> p))
    r.hi = _mm256_cvtph_ps(_mm_loadu_si128(<const __m128i*> (p + 8)))
    return r


cdef inline void store_half(unsigned short* p, f32x16 v) noexcept nogil:
    _mm_storeu_si128(<__m128i*> p, _mm256_cvtps_ph(v.lo, 8))  # 8: to nearest even, quiet
    _mm_storeu_si128(<__m128i*> (p + 8), _mm256_cvtps_ph(v.hi, 8))


cdef inline f32x16 swap_pairs(f32x16 v) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_permute_ps(v.lo, 0xB1)
    r.hi = _mm256_permute_ps(v.hi, 0xB1)
    return r


cdef inline f32x16 twice_n(const float* p, Py_ssize_t n) noexcept nogil:
    cdef f32x16 r
    cdef __m256 v = _mm256_maskload_ps(p, mask_n(n))
    r.lo = _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3))
    r.hi = _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))
    return r


cdef inline float hsum(f32x16 v) noexcept nogil:
    cdef __m256 a = _mm256_add_ps(v.lo, v.hi)
    cdef __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1))
    b = _mm_add_ps(b, _mm_movehl_ps(b, b))
    return _mm_cvtss_f32(_mm_add_ps(b, _mm_shuffle_ps(b, b, 1)))


cdef inline float hmax(f32x16 v) noexcept nogil:
    cdef __m256 a = _mm256_max_ps(v.lo, v.hi)
    cdef __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1))
    b = _mm_max_ps(b, _mm_movehl_ps(b, b))
    return _mm_cvtss_f32(_mm_max_ps(b, _mm_shuffle_ps(b, b, 1)))


cdef inline i32x16 izero() noexcept nogil:
    return isplat(0)


cdef inline i32x16 isplat(int x) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_set1_epi32(x)
    r.hi = _mm256_set1_epi32(x)
    return r


cdef inline i32x16 iload(const int* p) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_loadu_si256(<const __m256i*> p)
    r.hi = _mm256_loadu_si256(<const __m256i*> (p + 8))
    return r


cdef inline void istore(int* p, i32x16 v) noexcept nogil:
    _mm256_storeu_si256(<__m256i*> p, v.lo)
    _mm256_storeu_si256(<__m256i*> (p + 8), v.hi)


cdef inline i32x16 iadd(i32x16 a, i32x16 b) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_add_epi32(a.lo, b.lo)
    r.hi = _mm256_add_epi32(a.hi, b.hi)
    return r


cdef inline i32x16 isub(i32x16 a, i32x16 b) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_sub_epi32(a.lo, b.lo)
    r.hi = _mm256_sub_epi32(a.hi, b.hi)
    return r


cdef inline i32x16 imul(i32x16 a, i32x16 b) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_mullo_epi32(a.lo, b.lo)
    r.hi = _mm256_mullo_epi32(a.hi, b.hi)
    return r


cdef inline i32x16 iand(i32x16 a, i32x16 b) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_and_si256(a.lo, b.lo)
    r.hi = _mm256_and_si256(a.hi, b.hi)
    return r


cdef inline i32x16 imax(i32x16 a, i32x16 b) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_max_epi32(a.lo, b.lo)
    r.hi = _mm256_max_epi32(a.hi, b.hi)
    return r


cdef inline i32x16 shift_16(i32x16 v) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_slli_epi32(v.lo, 16)
    r.hi = _mm256_slli_epi32(v.hi, 16)
    return r


cdef inline i32x16 shift_23(i32x16 v) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_slli_epi32(v.lo, 23)
    r.hi = _mm256_slli_epi32(v.hi, 23)
    return r


cdef inline i32x16 bits(f32x16 v) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_castps_si256(v.lo)
    r.hi = _mm256_castps_si256(v.hi)
    return r


cdef inline f32x16 from_bits(i32x16 v) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_castsi256_ps(v.lo)
    r.hi = _mm256_castsi256_ps(v.hi)
    return r


cdef inline f32x16 to_f32(i32x16 v) noexcept nogil:
    cdef f32x16 r
    r.lo = _mm256_cvtepi32_ps(v.lo)
    r.hi = _mm256_cvtepi32_ps(v.hi)
    return r


cdef inline i32x16 to_i32(f32x16 v) noexcept nogil:
    cdef i32x16 r
    r.lo = _mm256_cvtps_epi32(v.lo)
    r.hi = _mm256_cvtps_epi32(v.hi)
    return r


# Packing saturates, which the low bytes of -128..127 do not notice.
cdef inline void store_i8(signed char* p, i32x16 v) noexcept nogil:
    # Both packs work in 128-bit halves: lanes 0-3, 8-11, 4-7, 12-15 come out.
    cdef __m256i a = _mm256_packs_epi32(v.lo, v.hi)
    a = _mm256_permute4x64_epi64(a, 0xD8)
    _mm_storeu_si128(<__m128i*> p, _mm_packs_epi16(_mm256_castsi256_si128(a),
                                                   _mm256_extracti128_si256(a, 1)))


cdef inline int ihsum(i32x16 v) noexcept nogil:
    cdef __m256i a = _mm256_add_epi32(v.lo, v.hi)
    cdef __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1))
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E))
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xB1)))


cdef inline int ihmax(i32x16 v) noexcept nogil:
    cdef __m256i a = _mm256_max_epi32(v.lo, v.hi)
    cdef __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1))
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4E))
    return _mm_cvtsi128_si32(_mm_max_epi32(b, _mm_shuffle_epi32(b, 0xB1)))


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
