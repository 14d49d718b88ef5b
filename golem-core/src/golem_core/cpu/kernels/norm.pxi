# Root mean square norm and layer norm.


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


cdef inline f32x16 away(const float* x, Py_ssize_t cols, Py_ssize_t i, float mean) noexcept nogil:
    """x - mean of the word at i; 0 where there is no element."""
    cdef Py_ssize_t n = most(least(cols - i, 16), 0)
    return sub(load_n(x + i, n), load_n_of(mean, n))


cdef inline f32x16 load_n_of(float value, Py_ssize_t n) noexcept nogil:
    """The value in the first n lanes, 0 in the others."""
    cdef float[16] lanes
    cdef Py_ssize_t i
    if n == 16:
        return splat(value)
    for i in range(16):
        lanes[i] = value if i < n else 0
    return load(lanes)


# Two sums, of x and of (x - mean)^2, each as in `rms_norm`: word i into sum i % 4.
cdef void layer_norm(const float* x, const float* weight, const float* bias, Py_ssize_t cols,
                     float eps, float* out) noexcept nogil:
    cdef f32x16 a = zero(), b = zero(), c = zero(), d = zero(), v
    cdef Py_ssize_t i, n
    cdef float mean, variance
    for i in range(0, cols, 64):
        a = add(a, load_n(x + i, least(cols - i, 16)))
        b = add(b, load_n(x + i + 16, most(least(cols - i - 16, 16), 0)))
        c = add(c, load_n(x + i + 32, most(least(cols - i - 32, 16), 0)))
        d = add(d, load_n(x + i + 48, most(least(cols - i - 48, 16), 0)))
    mean = hsum(add(add(a, b), add(c, d))) / <float> cols
    a = b = c = d = zero()
    for i in range(0, cols, 64):
        v = away(x, cols, i, mean)
        a = fma(v, v, a)
        v = away(x, cols, i + 16, mean)
        b = fma(v, v, b)
        v = away(x, cols, i + 32, mean)
        c = fma(v, v, c)
        v = away(x, cols, i + 48, mean)
        d = fma(v, v, d)
    variance = hsum(add(add(a, b), add(c, d))) / <float> cols
    cdef f32x16 inverse = splat(<float> 1.0 / sqrtf(variance + eps))
    for i in range(0, cols, 16):
        n = least(cols - i, 16)
        v = mul(sub(load_n(x + i, n), splat(mean)), inverse)
        if bias != NULL:
            v = fma(v, load_n(weight + i, n), load_n(bias + i, n))
        elif weight != NULL:
            v = mul(v, load_n(weight + i, n))
        store_n(out + i, v, n)
