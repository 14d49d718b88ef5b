# Products of weights in float, a panel as [cols, 16], with columns in float32.
#
# A value's sum is one fused multiply-add for each k, ascending, in a tile of any shape.

cdef inline f32x16 row16(int format, const unsigned char* panel, Py_ssize_t k) noexcept nogil:
    """16 rows' weights of one k."""
    if format == F32:
        return load((<const float*>panel) + 16 * k)
    if format == F16:
        return load_half((<const unsigned short*>panel) + 16 * k)
    return load_bf16((<const unsigned short*>panel) + 16 * k)


cdef inline void float_tile(int format, int R, int N, const unsigned char* w, Py_ssize_t panel,
                            const float* x, Py_ssize_t x_stride, Py_ssize_t cols, float* out,
                            Py_ssize_t stride) noexcept nogil:
    """R panels at w times N columns at x."""
    cdef f32x16[2 * FLOAT_WIDEST] values
    cdef f32x16 w0, w1, s
    cdef Py_ssize_t k, size = 64 if format == F32 else 32
    cdef int n
    for n in range(N):
        values[n] = zero()
        if R == 2:
            values[n + FLOAT_WIDEST] = zero()
    for k in range(cols):
        __builtin_prefetch(w + AHEAD + k * size, 0, 3)
        if R == 2:
            __builtin_prefetch(w + panel + AHEAD + k * size, 0, 3)
        w0 = row16(format, w, k)
        if R == 2:
            w1 = row16(format, w + panel, k)
        for n in range(N):
            s = splat(x[n * x_stride + k])
            values[n] = fma(w0, s, values[n])
            if R == 2:
                values[n + FLOAT_WIDEST] = fma(w1, s, values[n + FLOAT_WIDEST])
    for n in range(N):
        store(out + n * stride, values[n])
        if R == 2:
            store(out + n * stride + 16, values[n + FLOAT_WIDEST])


cdef inline void float_rows(int format, int R, const unsigned char* w, Py_ssize_t panel,
                            const Columns* x, Py_ssize_t column, Py_ssize_t columns,
                            Py_ssize_t cols, float* out, Py_ssize_t stride) noexcept nogil:
    """R panels times all columns."""
    cdef const float* at = x.floats + column * x.stride
    while columns >= FLOAT_WIDEST:
        float_tile(format, R, FLOAT_WIDEST, w, panel, at, x.stride, cols, out, stride)
        columns -= FLOAT_WIDEST
        at += FLOAT_WIDEST * x.stride
        out += FLOAT_WIDEST * stride
    while FLOAT_WIDEST > 4 and columns >= 4:
        float_tile(format, R, 4, w, panel, at, x.stride, cols, out, stride)
        columns -= 4
        at += 4 * x.stride
        out += 4 * stride
    if FLOAT_WIDEST > 3 and columns == 3:
        float_tile(format, R, 3, w, panel, at, x.stride, cols, out, stride)
    elif FLOAT_WIDEST > 2 and columns == 2:
        float_tile(format, R, 2, w, panel, at, x.stride, cols, out, stride)
    elif FLOAT_WIDEST > 1 and columns == 1:
        float_tile(format, R, 1, w, panel, at, x.stride, cols, out, stride)


cdef inline void floats(int format, const Packed* w, Py_ssize_t first, Py_ssize_t panels,
                        const Columns* x, Py_ssize_t column, Py_ssize_t columns, float* out,
                        Py_ssize_t stride) noexcept nogil:
    """A `Product` of a format that stores floats."""
    cdef const unsigned char* data = w.data + first * w.panel
    cdef Py_ssize_t p = 0
    while TALLEST == 2 and p + 2 <= panels:
        float_rows(format, 2, data + p * w.panel, w.panel, x, column, columns, w.cols,
                   out + 16 * p, stride)
        p += 2
    while p < panels:
        float_rows(format, 1, data + p * w.panel, w.panel, x, column, columns, w.cols,
                   out + 16 * p, stride)
        p += 1
