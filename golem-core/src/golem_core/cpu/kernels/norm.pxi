# Root mean square norm.


# The sum of squares runs in four words, word i into sum i % 4, that are added pairwise.
cdef void rms_norm(const float* x, const float* weight, Py_ssize_t cols, float eps,
                   float* out) noexcept nogil:
    cdef f32x16 a = zero(), b = zero(), c = zero(), d = zero(), v
    cdef Py_ssize_t i = 0, n
    while i + 64 <= cols:
        v = load(x + i)
        a = fma(v, v, a)
        v = load(x + i + 16)
        b = fma(v, v, b)
        v = load(x + i + 32)
        c = fma(v, v, c)
        v = load(x + i + 48)
        d = fma(v, v, d)
        i += 64
    v = load_n(x + i, least(cols - i, 16))
    a = fma(v, v, a)
    if i + 16 < cols:
        v = load_n(x + i + 16, least(cols - i - 16, 16))
        b = fma(v, v, b)
    if i + 32 < cols:
        v = load_n(x + i + 32, least(cols - i - 32, 16))
        c = fma(v, v, c)
    if i + 48 < cols:
        v = load_n(x + i + 48, cols - i - 48)
        d = fma(v, v, d)
    cdef float mean = hsum(add(add(a, b), add(c, d))) / <float> cols
    cdef f32x16 inverse = splat(<float> 1.0 / sqrtf(mean + eps))
    for i in range(0, cols, 16):
        n = least(cols - i, 16)
        v = mul(load_n(x + i, n), inverse)
        if weight != NULL:
            v = mul(v, load_n(weight + i, n))
        store_n(out + i, v, n)
