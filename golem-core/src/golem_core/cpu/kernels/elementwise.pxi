# Kernels that treat each element by itself: gated units, sums, products, caps.

cdef enum Act:
    SILU
    GELU_TANH
    GELU_ERF
    SIGMOID
    ELU


cdef inline f32x16 act(Act kind, f32x16 x) noexcept nogil:
    cdef f32x16 t
    if kind == GELU_ERF:
        return gelu_(x)
    if kind == ELU:
        return select_lt(x, zero(), expm1_(x), x)
    if kind == GELU_TANH:  # x/2 (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)
        t = fma(mul(x, x), splat(-2.0 * 0.79788456080286535588 * 0.044715),
                splat(-2.0 * 0.79788456080286535588))
        t = mul(x, t)
    else:
        t = sub(zero(), x)
    return div(splat(1.0) if kind == SIGMOID else x, add(splat(1.0), exp_(t)))


cdef inline void glu(Act kind, const float* gate, const float* up, Py_ssize_t n,
                     float* out) noexcept nogil:
    cdef Py_ssize_t i, left
    cdef f32x16 v
    for i in range(0, n, 16):
        left = least(n - i, 16)
        v = act(kind, load_n(gate + i, left))
        if up != NULL:
            v = mul(v, load_n(up + i, left))
        store_n(out + i, v, left)


cdef void silu(const float* gate, const float* up, Py_ssize_t n, float* out) noexcept nogil:
    glu(SILU, gate, up, n, out)


cdef void gelu_tanh(const float* gate, const float* up, Py_ssize_t n, float* out) noexcept nogil:
    glu(GELU_TANH, gate, up, n, out)


cdef void gelu_erf(const float* gate, const float* up, Py_ssize_t n, float* out) noexcept nogil:
    glu(GELU_ERF, gate, up, n, out)


cdef void sigmoid(const float* gate, const float* up, Py_ssize_t n, float* out) noexcept nogil:
    glu(SIGMOID, gate, up, n, out)


cdef void elu(const float* gate, const float* up, Py_ssize_t n, float* out) noexcept nogil:
    glu(ELU, gate, up, n, out)


cdef void axpy_floats(const float* a, float c, Py_ssize_t n, float* out) noexcept nogil:
    cdef Py_ssize_t i, left
    for i in range(0, n, 16):
        left = least(n - i, 16)
        store_n(out + i, fma(load_n(a + i, left), splat(c), load_n(out + i, left)), left)


cdef void add_floats(const float* a, const float* b, Py_ssize_t n, float* out) noexcept nogil:
    cdef Py_ssize_t i, left
    for i in range(0, n, 16):
        left = least(n - i, 16)
        store_n(out + i, add(load_n(a + i, left), load_n(b + i, left)), left)


cdef void mul_floats(const float* a, const float* b, Py_ssize_t n, float* out) noexcept nogil:
    cdef Py_ssize_t i, left
    for i in range(0, n, 16):
        left = least(n - i, 16)
        store_n(out + i, mul(load_n(a + i, left), load_n(b + i, left)), left)


cdef void scale_floats(const float* a, float c, Py_ssize_t n, float* out) noexcept nogil:
    cdef Py_ssize_t i, left
    for i in range(0, n, 16):
        left = least(n - i, 16)
        store_n(out + i, mul(load_n(a + i, left), splat(c)), left)


cdef inline f32x16 cap(f32x16 v, float c) noexcept nogil:
    return mul(splat(c), tanh_(mul(v, splat(<float> 1.0 / c))))


cdef void softcap_floats(const float* a, float c, Py_ssize_t n, float* out) noexcept nogil:
    cdef Py_ssize_t i, left
    for i in range(0, n, 16):
        left = least(n - i, 16)
        store_n(out + i, cap(load_n(a + i, left), c), left)
