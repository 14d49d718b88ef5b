# Float and 32-bit integer words of 16 lanes for AVX-512 (Cascade Lake 2019, Ice Lake, Zen 4).
#
# A word is one zmm register. What each word means is said in words_generic.pxi.

cdef extern from "immintrin.h" nogil:
    ctypedef struct __m128:
        pass
    ctypedef struct __m128i:
        pass
    ctypedef struct __m256:
        pass
    ctypedef struct __m256i:
        pass
    ctypedef struct __m512:
        pass
    ctypedef struct __m512i:
        pass
    ctypedef unsigned short __mmask16

    __m512 _mm512_setzero_ps()
    __m512 _mm512_set1_ps(float)
    __m512 _mm512_loadu_ps(const void*)
    void _mm512_storeu_ps(void*, __m512)
    __m512 _mm512_maskz_loadu_ps(__mmask16, const void*)
    void _mm512_mask_storeu_ps(void*, __mmask16, __m512)
    __m512 _mm512_add_ps(__m512, __m512)
    __m512 _mm512_sub_ps(__m512, __m512)
    __m512 _mm512_mul_ps(__m512, __m512)
    __m512 _mm512_div_ps(__m512, __m512)
    __m512 _mm512_fmadd_ps(__m512, __m512, __m512)
    __m512 _mm512_fnmadd_ps(__m512, __m512, __m512)
    __m512 _mm512_max_ps(__m512, __m512)
    __m512 _mm512_min_ps(__m512, __m512)
    __m512 _mm512_cvtph_ps(__m256i)
    __m256i _mm512_cvtps_ph(__m512, int)
    __mmask16 _mm512_cmp_ps_mask(__m512, __m512, int)
    __m512 _mm512_mask_blend_ps(__mmask16, __m512, __m512)
    __m512 _mm512_castsi512_ps(__m512i)
    __m512i _mm512_castps_si512(__m512)
    __m512 _mm512_permute_ps(__m512, int)
    __m512 _mm512_permutexvar_ps(__m512i, __m512)
    __m512 _mm512_cvtepi32_ps(__m512i)
    __m512i _mm512_cvtps_epi32(__m512)
    __m512i _mm512_setr_epi32(int, int, int, int, int, int, int, int,
                              int, int, int, int, int, int, int, int)
    __m256 _mm512_castps512_ps256(__m512)
    __m256 _mm512_extractf32x8_ps(__m512, int)
    __m256 _mm256_add_ps(__m256, __m256)
    __m256 _mm256_max_ps(__m256, __m256)
    __m128 _mm256_castps256_ps128(__m256)
    __m128 _mm256_extractf128_ps(__m256, int)
    __m128 _mm_add_ps(__m128, __m128)
    __m128 _mm_max_ps(__m128, __m128)
    __m128 _mm_movehl_ps(__m128, __m128)
    __m128 _mm_shuffle_ps(__m128, __m128, int)
    float _mm_cvtss_f32(__m128)
    __m256i _mm256_loadu_si256(const __m256i*)
    void _mm256_storeu_si256(__m256i*, __m256i)
    void _mm_storeu_si128(__m128i*, __m128i)

    __m512i _mm512_setzero_si512()
    __m512i _mm512_set1_epi32(int)
    __m512i _mm512_loadu_si512(const void*)
    void _mm512_storeu_si512(void*, __m512i)
    __m512i _mm512_add_epi32(__m512i, __m512i)
    __m512i _mm512_sub_epi32(__m512i, __m512i)
    __m512i _mm512_mullo_epi32(__m512i, __m512i)
    __m512i _mm512_and_si512(__m512i, __m512i)
    __m512i _mm512_max_epi32(__m512i, __m512i)
    __m512i _mm512_unpacklo_epi32(__m512i, __m512i)
    __m512i _mm512_unpackhi_epi32(__m512i, __m512i)
    __m512i _mm512_unpacklo_epi64(__m512i, __m512i)
    __m512i _mm512_unpackhi_epi64(__m512i, __m512i)
    __m512i _mm512_shuffle_i32x4(__m512i, __m512i, int)
    __m512i _mm512_slli_epi32(__m512i, unsigned int)
    __m128i _mm512_cvtepi32_epi8(__m512i)
    int _mm512_reduce_add_epi32(__m512i)
    int _mm512_reduce_max_epi32(__m512i)

ctypedef __m512 f32x16
ctypedef __m512i i32x16

# The tile of attention: TILE items, each with sums of SPAN words. 16 sums, of 32 registers.
cdef enum:
    TILE = 8
    SPAN = 2


cdef inline f32x16 zero() noexcept nogil:
    return _mm512_setzero_ps()


cdef inline f32x16 splat(float x) noexcept nogil:
    return _mm512_set1_ps(x)


cdef inline f32x16 load(const float* p) noexcept nogil:
    return _mm512_loadu_ps(p)


cdef inline void store(float* p, f32x16 v) noexcept nogil:
    _mm512_storeu_ps(p, v)


cdef inline f32x16 load_n(const float* p, Py_ssize_t n) noexcept nogil:
    return _mm512_maskz_loadu_ps(<__mmask16> ((1 << n) - 1), p)


cdef inline void store_n(float* p, f32x16 v, Py_ssize_t n) noexcept nogil:
    _mm512_mask_storeu_ps(p, <__mmask16> ((1 << n) - 1), v)


cdef inline f32x16 add(f32x16 a, f32x16 b) noexcept nogil:
    return _mm512_add_ps(a, b)


cdef inline f32x16 sub(f32x16 a, f32x16 b) noexcept nogil:
    return _mm512_sub_ps(a, b)


cdef inline f32x16 mul(f32x16 a, f32x16 b) noexcept nogil:
    return _mm512_mul_ps(a, b)


cdef inline f32x16 div(f32x16 a, f32x16 b) noexcept nogil:
    return _mm512_div_ps(a, b)


cdef inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) noexcept nogil:
    return _mm512_fmadd_ps(a, b, c)


cdef inline f32x16 fnma(f32x16 a, f32x16 b, f32x16 c) noexcept nogil:
    return _mm512_fnmadd_ps(a, b, c)


cdef inline f32x16 max_(f32x16 a, f32x16 b) noexcept nogil:
    return _mm512_max_ps(a, b)


cdef inline f32x16 min_(f32x16 a, f32x16 b) noexcept nogil:
    return _mm512_min_ps(a, b)


cdef inline f32x16 select_lt(f32x16 a, f32x16 b, f32x16 yes, f32x16 no) noexcept nogil:
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, 0x11), no, yes)  # 0x11: less, quiet


cdef inline f32x16 load_half(const unsigned short* p) noexcept nogil:
    return _mm512_cvtph_ps(_mm256_loadu_si256(<const __m256i*> p))


cdef inline void store_half(unsigned short* p, f32x16 v) noexcept nogil:
    _mm256_storeu_si256(<__m256i*> p, _mm512_cvtps_ph(v, 8))  # 8: to nearest even, quiet


cdef inline f32x16 swap_pairs(f32x16 v) noexcept nogil:
    return _mm512_permute_ps(v, 0xB1)


cdef inline f32x16 twice_n(const float* p, Py_ssize_t n) noexcept nogil:
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), load_n(p, n))


cdef inline float hsum(f32x16 v) noexcept nogil:
    cdef __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1))
    cdef __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1))
    b = _mm_add_ps(b, _mm_movehl_ps(b, b))
    return _mm_cvtss_f32(_mm_add_ps(b, _mm_shuffle_ps(b, b, 1)))


cdef inline float hmax(f32x16 v) noexcept nogil:
    cdef __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1))
    cdef __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1))
    b = _mm_max_ps(b, _mm_movehl_ps(b, b))
    return _mm_cvtss_f32(_mm_max_ps(b, _mm_shuffle_ps(b, b, 1)))


cdef inline i32x16 izero() noexcept nogil:
    return _mm512_setzero_si512()


cdef inline i32x16 isplat(int x) noexcept nogil:
    return _mm512_set1_epi32(x)


cdef inline i32x16 iload(const int* p) noexcept nogil:
    return _mm512_loadu_si512(p)


cdef inline void istore(int* p, i32x16 v) noexcept nogil:
    _mm512_storeu_si512(p, v)


cdef inline i32x16 iadd(i32x16 a, i32x16 b) noexcept nogil:
    return _mm512_add_epi32(a, b)


cdef inline i32x16 isub(i32x16 a, i32x16 b) noexcept nogil:
    return _mm512_sub_epi32(a, b)


cdef inline i32x16 imul(i32x16 a, i32x16 b) noexcept nogil:
    return _mm512_mullo_epi32(a, b)


cdef inline i32x16 iand(i32x16 a, i32x16 b) noexcept nogil:
    return _mm512_and_si512(a, b)


cdef inline i32x16 imax(i32x16 a, i32x16 b) noexcept nogil:
    return _mm512_max_epi32(a, b)


cdef inline i32x16 shift_16(i32x16 v) noexcept nogil:
    return _mm512_slli_epi32(v, 16)


cdef inline i32x16 shift_23(i32x16 v) noexcept nogil:
    return _mm512_slli_epi32(v, 23)


cdef inline i32x16 bits(f32x16 v) noexcept nogil:
    return _mm512_castps_si512(v)


cdef inline f32x16 from_bits(i32x16 v) noexcept nogil:
    return _mm512_castsi512_ps(v)


cdef inline f32x16 to_f32(i32x16 v) noexcept nogil:
    return _mm512_cvtepi32_ps(v)


cdef inline i32x16 to_i32(f32x16 v) noexcept nogil:
    return _mm512_cvtps_epi32(v)


cdef inline void store_i8(signed char* p, i32x16 v) noexcept nogil:
    _mm_storeu_si128(<__m128i*> p, _mm512_cvtepi32_epi8(v))


cdef inline int ihsum(i32x16 v) noexcept nogil:
    return _mm512_reduce_add_epi32(v)


cdef inline int ihmax(i32x16 v) noexcept nogil:
    return _mm512_reduce_max_epi32(v)


# Four words to one: in each 128 bits, lane i is of word i, of its lanes there.
cdef inline i32x16 four_max(const int* p) noexcept nogil:
    cdef i32x16 a = iload(p), b = iload(p + 16), c = iload(p + 32), d = iload(p + 48)
    a = imax(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))  # a0 b0 a1 b1
    c = imax(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d))
    return imax(_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c))


cdef inline i32x16 four_sum(const int* p) noexcept nogil:
    cdef i32x16 a = iload(p), b = iload(p + 16), c = iload(p + 32), d = iload(p + 48)
    a = iadd(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
    c = iadd(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d))
    return iadd(_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c))


cdef inline i32x16 rows_max(const int* p) noexcept nogil:
    cdef i32x16 a = four_max(p), b = four_max(p + 64)
    cdef i32x16 c = four_max(p + 128), d = four_max(p + 192)
    a = imax(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD))
    c = imax(_mm512_shuffle_i32x4(c, d, 0x88), _mm512_shuffle_i32x4(c, d, 0xDD))
    return imax(_mm512_shuffle_i32x4(a, c, 0x88), _mm512_shuffle_i32x4(a, c, 0xDD))


cdef inline i32x16 rows_sum(const int* p) noexcept nogil:
    cdef i32x16 a = four_sum(p), b = four_sum(p + 64)
    cdef i32x16 c = four_sum(p + 128), d = four_sum(p + 192)
    a = iadd(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD))
    c = iadd(_mm512_shuffle_i32x4(c, d, 0x88), _mm512_shuffle_i32x4(c, d, 0xDD))
    return iadd(_mm512_shuffle_i32x4(a, c, 0x88), _mm512_shuffle_i32x4(a, c, 0xDD))
