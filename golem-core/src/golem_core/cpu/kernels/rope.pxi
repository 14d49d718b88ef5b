# Rotary position embedding of one head.


# The parts past the rotated ones, as they are.
cdef inline void copy_rest(const float* x, Py_ssize_t first, Py_ssize_t dim,
                           float* out) noexcept nogil:
    if out != x and first < dim:
        memcpy(out + first, x + first, (dim - first) * sizeof(float))


cdef void rope_half(const float* x, const float* cos, const float* sin, Py_ssize_t half,
                    Py_ssize_t dim, float* out) noexcept nogil:
    cdef Py_ssize_t i, n
    cdef f32x16 a, b, c, s
    for i in range(0, half, 16):
        n = least(half - i, 16)
        a = load_n(x + i, n)
        b = load_n(x + half + i, n)
        c = load_n(cos + i, n)
        s = load_n(sin + i, n)
        store_n(out + i, fnma(b, s, mul(a, c)), n)
        store_n(out + half + i, fma(a, s, mul(b, c)), n)
    copy_rest(x, 2 * half, dim, out)


cdef void rope_pairs(const float* x, const float* cos, const float* sin, Py_ssize_t half,
                     Py_ssize_t dim, float* out) noexcept nogil:
    cdef Py_ssize_t i, n
    cdef f32x16 v, signs = load(ALTERNATING)
    for i in range(0, half, 8):
        n = least(half - i, 8)
        v = load_n(x + 2 * i, 2 * n)
        store_n(out + 2 * i, fma(swap_pairs(v), mul(twice_n(sin + i, n), signs),
                                 mul(v, twice_n(cos + i, n))), 2 * n)
    copy_rest(x, 2 * half, dim, out)
