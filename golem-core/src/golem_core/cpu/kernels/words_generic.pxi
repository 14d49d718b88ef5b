# Float and 32-bit integer words of 16 lanes in plain C: what every other set of words must equal.
#
# All sets agree to the bit (only the payload and sign of a NaN may differ): each operation is
# one IEEE operation in round-to-nearest-even, `fma` rounds once, and the horizontal sums add
# lane i to lane i + 8, then i + 4, i + 2, i + 1.

from libc.math cimport fmaf, rintf
from libc.string cimport memcpy

cdef struct f32x16:
    float lane[16]

cdef struct i32x16:
    int lane[16]

# The tile of attention: TILE items, each with sums of SPAN words.
cdef enum:
    TILE = 4
    SPAN = 1


cdef inline f32x16 zero() noexcept nogil:
    return splat(0.0)


cdef inline f32x16 splat(float x) noexcept nogil:
    cdef f32x16 r
    cdef int i
    for i in range(16):
        r.lane[i] = x
    return r


cdef inline f32x16 load(const float* p) noexcept nogil:
    cdef f32x16 r
    memcpy(&r, p, sizeof(r))
    return r


cdef inline void store(float* p, f32x16 v) noexcept nogil:
    memcpy(p, &v, sizeof(v))


# The first n <= 16 lanes, and zeros; touches no memory past them.
cdef inline f32x16 load_n(const float* p, Py_ssize_t n) noexcept nogil:
    cdef f32x16 r = zero()
    memcpy(&r, p, n * sizeof(float))
    return r


cdef inline void store_n(float* p, f32x16 v, Py_ssize_t n) noexcept nogil:
    memcpy(p, &v, n * sizeof(float))


cdef inline f32x16 add(f32x16 a, f32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = a.lane[i] + b.lane[i]
    return a


cdef inline f32x16 sub(f32x16 a, f32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = a.lane[i] - b.lane[i]
    return a


cdef inline f32x16 mul(f32x16 a, f32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = a.lane[i] * b.lane[i]
    return a


cdef inline f32x16 div(f32x16 a, f32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = a.lane[i] / b.lane[i]
    return a


# a * b + c, rounded once.
cdef inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) noexcept nogil:
    cdef int i
    for i in range(16):
        c.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i])
    return c


# c - a * b, rounded once.
cdef inline f32x16 fnma(f32x16 a, f32x16 b, f32x16 c) noexcept nogil:
    cdef int i
    for i in range(16):
        c.lane[i] = fmaf(-a.lane[i], b.lane[i], c.lane[i])
    return c


# a > b ? a : b, so b where either is a NaN (as the processors of x86 have it).
cdef inline f32x16 max_(f32x16 a, f32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = a.lane[i] if a.lane[i] > b.lane[i] else b.lane[i]
    return a


# a < b ? a : b, so b where either is a NaN.
cdef inline f32x16 min_(f32x16 a, f32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = a.lane[i] if a.lane[i] < b.lane[i] else b.lane[i]
    return a


# a < b ? yes : no, so no where either is a NaN.
cdef inline f32x16 select_lt(f32x16 a, f32x16 b, f32x16 yes, f32x16 no) noexcept nogil:
    cdef int i
    for i in range(16):
        no.lane[i] = yes.lane[i] if a.lane[i] < b.lane[i] else no.lane[i]
    return no


cdef inline float half_to_float(unsigned int h) noexcept nogil:
    cdef unsigned int sign = (h & 0x8000) << 16
    cdef unsigned int rest = h & 0x7FFF
    cdef unsigned int u
    cdef float f
    if rest < 0x0400:  # zero and denormals, exact: rest * 2^-24
        f = <float> rest * <float> 5.9604644775390625e-8
        memcpy(&u, &f, 4)
    elif rest > 0x7C00:  # a NaN comes out quiet
        u = 0x7FC00000 | (rest << 13)
    elif rest == 0x7C00:
        u = 0x7F800000
    else:
        u = (rest << 13) + 0x38000000  # exponent bias 15 to 127
    u |= sign
    memcpy(&f, &u, 4)
    return f


cdef inline unsigned short float_to_half(float f) noexcept nogil:
    cdef unsigned int u
    memcpy(&u, &f, 4)
    cdef unsigned int sign = (u >> 16) & 0x8000
    u &= 0x7FFFFFFF
    if u > 0x7F800000:
        return <unsigned short> (sign | 0x7E00 | ((u >> 13) & 0x03FF))
    if u >= 0x47800000:  # 65536 and above, and infinity
        return <unsigned short> (sign | 0x7C00)
    if u < 0x38800000:  # a denormal half: adding 0.5 leaves its steps of 2^-24, rounded to even
        memcpy(&f, &u, 4)
        f += <float> 0.5
        memcpy(&u, &f, 4)
        return <unsigned short> (sign | (u - 0x3F000000))
    # To nearest even in the 13 bits cut off; a carry runs into the exponent, up to infinity.
    return <unsigned short> (sign | ((u - 0x38000000 + 0x0FFF + ((u >> 13) & 1)) >> 13))


cdef inline f32x16 load_half(const unsigned short* p) noexcept nogil:
    cdef f32x16 r
    cdef int i
    for i in range(16):
        r.lane[i] = half_to_float(p[i])
    return r


# Half precision, rounded to nearest even.
cdef inline void store_half(unsigned short* p, f32x16 v) noexcept nogil:
    cdef int i
    for i in range(16):
        p[i] = float_to_half(v.lane[i])


cdef inline f32x16 swap_pairs(f32x16 v) noexcept nogil:
    cdef f32x16 r
    cdef int i
    for i in range(16):
        r.lane[i] = v.lane[i ^ 1]
    return r


# p[0], p[0], p[1], p[1], ... of n <= 8 floats, and zeros.
cdef inline f32x16 twice_n(const float* p, Py_ssize_t n) noexcept nogil:
    cdef f32x16 r = zero()
    cdef Py_ssize_t i
    for i in range(n):
        r.lane[2 * i] = p[i]
        r.lane[2 * i + 1] = p[i]
    return r


cdef inline float hsum(f32x16 v) noexcept nogil:
    cdef int i, half = 8
    while half:
        for i in range(half):
            v.lane[i] = v.lane[i] + v.lane[i + half]
        half //= 2
    return v.lane[0]


cdef inline float hmax(f32x16 v) noexcept nogil:
    cdef int i, half = 8
    while half:
        for i in range(half):
            v.lane[i] = v.lane[i] if v.lane[i] > v.lane[i + half] else v.lane[i + half]
        half //= 2
    return v.lane[0]


cdef inline i32x16 izero() noexcept nogil:
    return isplat(0)


cdef inline i32x16 isplat(int x) noexcept nogil:
    cdef i32x16 r
    cdef int i
    for i in range(16):
        r.lane[i] = x
    return r


cdef inline i32x16 iload(const int* p) noexcept nogil:
    cdef i32x16 r
    memcpy(&r, p, sizeof(r))
    return r


cdef inline void istore(int* p, i32x16 v) noexcept nogil:
    memcpy(p, &v, sizeof(v))


# Sums and products wrap around.
cdef inline i32x16 iadd(i32x16 a, i32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = <int> (<unsigned int> a.lane[i] + <unsigned int> b.lane[i])
    return a


cdef inline i32x16 isub(i32x16 a, i32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = <int> (<unsigned int> a.lane[i] - <unsigned int> b.lane[i])
    return a


cdef inline i32x16 imul(i32x16 a, i32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = <int> (<unsigned int> a.lane[i] * <unsigned int> b.lane[i])
    return a


cdef inline i32x16 iand(i32x16 a, i32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = a.lane[i] & b.lane[i]
    return a


cdef inline i32x16 imax(i32x16 a, i32x16 b) noexcept nogil:
    cdef int i
    for i in range(16):
        a.lane[i] = a.lane[i] if a.lane[i] > b.lane[i] else b.lane[i]
    return a


# An exponent to its place in a float.
cdef inline i32x16 shift_16(i32x16 v) noexcept nogil:
    cdef int i
    for i in range(16):
        v.lane[i] = <int> (<unsigned int> v.lane[i] << 16)
    return v


cdef inline i32x16 shift_23(i32x16 v) noexcept nogil:
    cdef int i
    for i in range(16):
        v.lane[i] = <int> (<unsigned int> v.lane[i] << 23)
    return v


cdef inline i32x16 bits(f32x16 v) noexcept nogil:
    cdef i32x16 r
    memcpy(&r, &v, sizeof(r))
    return r


cdef inline f32x16 from_bits(i32x16 v) noexcept nogil:
    cdef f32x16 r
    memcpy(&r, &v, sizeof(r))
    return r


cdef inline f32x16 to_f32(i32x16 v) noexcept nogil:
    cdef f32x16 r
    cdef int i
    for i in range(16):
        r.lane[i] = <float> v.lane[i]
    return r


# To nearest even; only for values that an int holds.
cdef inline i32x16 to_i32(f32x16 v) noexcept nogil:
    cdef i32x16 r
    cdef int i
    for i in range(16):
        r.lane[i] = <int> rintf(v.lane[i])
    return r


# The low byte of each lane.
cdef inline void store_i8(signed char* p, i32x16 v) noexcept nogil:
    cdef int i
    for i in range(16):
        p[i] = <signed char> v.lane[i]


cdef inline int ihsum(i32x16 v) noexcept nogil:
    cdef unsigned int total = 0
    cdef int i
    for i in range(16):
        total += <unsigned int> v.lane[i]
    return <int> total


cdef inline int ihmax(i32x16 v) noexcept nogil:
    cdef int most = v.lane[0]
    cdef int i
    for i in range(1, 16):
        most = v.lane[i] if v.lane[i] > most else most
    return most


cdef inline i32x16 rows_max(const int* p) noexcept nogil:
    """The largest of each of 16 words at p, which lie side by side: of word i in lane i."""
    cdef int[16] lanes
    cdef int i
    for i in range(16):
        lanes[i] = ihmax(iload(p + 16 * i))
    return iload(lanes)


cdef inline i32x16 rows_sum(const int* p) noexcept nogil:
    """The sum of each of 16 words at p, as in `rows_max`."""
    cdef int[16] lanes
    cdef int i
    for i in range(16):
        lanes[i] = ihsum(iload(p + 16 * i))
    return iload(lanes)
