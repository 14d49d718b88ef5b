# What goes on from row to row: the causal convolution and the gated delta rule.


cdef inline const float* row_before(const float* x, Py_ssize_t x_stride, const float* before,
                                    Py_ssize_t before_stride, Py_ssize_t past,
                                    Py_ssize_t row) noexcept nogil:
    """Row `row` of x, which where it is negative counts back from the end of `before` [past]."""
    if row >= 0:
        return x + row * x_stride
    return before + (past + row) * before_stride


cdef void conv(const float* x, Py_ssize_t x_stride, const float* weight, Py_ssize_t weight_stride,
               Py_ssize_t taps, Py_ssize_t channels, const float* before,
               Py_ssize_t before_stride, Py_ssize_t rows, float* out,
               Py_ssize_t out_stride) noexcept nogil:
    cdef Py_ssize_t i, row, tap, n
    cdef const float* seen
    cdef f32x16 sum
    for row in range(rows):
        for i in range(0, channels, 16):
            n = least(channels - i, 16)
            sum = zero()
            for tap in range(taps):
                seen = row_before(x, x_stride, before, before_stride, taps - 1,
                                  row - taps + 1 + tap)
                sum = fma(load_n(weight + tap * weight_stride + i, n), load_n(seen + i, n), sum)
            store_n(out + row * out_stride + i, sum, n)


# The lanes of a word are values of the head, so a row needs no sum across a word, and the state
# stays in the nearest cache over all rows.
cdef void delta(float* state, Py_ssize_t dk, Py_ssize_t lanes, const float* q, Py_ssize_t q_stride,
                const float* k, Py_ssize_t k_stride, const float* v, Py_ssize_t v_stride,
                const float* decay, Py_ssize_t decay_stride, const float* beta,
                Py_ssize_t beta_stride, Py_ssize_t rows, float* out,
                Py_ssize_t out_stride) noexcept nogil:
    cdef Py_ssize_t row, i, left = least(lanes, 16), right = most(lanes - 16, 0)
    cdef f32x16 a0, a1, a2, a3, b0, b1, b2, b3, e0, e1, fade, weight
    for row in range(rows):
        fade = splat(decay[row * decay_stride])
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero()
        i = 0
        while i + 4 <= dk:
            weight = splat(k[i])
            a0 = fma(load(state + 32 * i), weight, a0)
            b0 = fma(load(state + 32 * i + 16), weight, b0)
            weight = splat(k[i + 1])
            a1 = fma(load(state + 32 * i + 32), weight, a1)
            b1 = fma(load(state + 32 * i + 48), weight, b1)
            weight = splat(k[i + 2])
            a2 = fma(load(state + 32 * i + 64), weight, a2)
            b2 = fma(load(state + 32 * i + 80), weight, b2)
            weight = splat(k[i + 3])
            a3 = fma(load(state + 32 * i + 96), weight, a3)
            b3 = fma(load(state + 32 * i + 112), weight, b3)
            i += 4
        while i < dk:
            weight = splat(k[i])
            a0 = fma(load(state + 32 * i), weight, a0)
            b0 = fma(load(state + 32 * i + 16), weight, b0)
            i += 1
        # k'(fade * state) is fade * k'state.
        weight = splat(beta[row * beta_stride])
        e0 = mul(fnma(add(add(a0, a1), add(a2, a3)), fade, load_n(v, left)), weight)
        e1 = zero()
        if right > 0:
            e1 = mul(fnma(add(add(b0, b1), add(b2, b3)), fade, load_n(v + 16, right)), weight)
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero()
        i = 0
        while i + 4 <= dk:
            a0 = turn(state + 32 * i, fade, k[i], e0, q[i], a0)
            b0 = turn(state + 32 * i + 16, fade, k[i], e1, q[i], b0)
            a1 = turn(state + 32 * i + 32, fade, k[i + 1], e0, q[i + 1], a1)
            b1 = turn(state + 32 * i + 48, fade, k[i + 1], e1, q[i + 1], b1)
            a2 = turn(state + 32 * i + 64, fade, k[i + 2], e0, q[i + 2], a2)
            b2 = turn(state + 32 * i + 80, fade, k[i + 2], e1, q[i + 2], b2)
            a3 = turn(state + 32 * i + 96, fade, k[i + 3], e0, q[i + 3], a3)
            b3 = turn(state + 32 * i + 112, fade, k[i + 3], e1, q[i + 3], b3)
            i += 4
        while i < dk:
            a0 = turn(state + 32 * i, fade, k[i], e0, q[i], a0)
            b0 = turn(state + 32 * i + 16, fade, k[i], e1, q[i], b0)
            i += 1
        store_n(out, add(add(a0, a1), add(a2, a3)), left)
        if right > 0:
            store_n(out + 16, add(add(b0, b1), add(b2, b3)), right)
        q += q_stride
        k += k_stride
        v += v_stride
        out += out_stride


cdef inline f32x16 turn(float* state, f32x16 fade, float key, f32x16 error, float query,
                        f32x16 sum) noexcept nogil:
    """One word of the state: faded, corrected, and added to the row's result."""
    cdef f32x16 s = fma(splat(key), error, mul(load(state), fade))
    store(state, s)
    return fma(s, splat(query), sum)
