# Products of weights in float with columns in float32; BF16's with columns rounded to bf16.
#
# A value's sum is one fused multiply-add for each k, ascending, in a tile of any shape. Of BF16, k
# come in pairs, and of a pair the second is added first: that is what the instructions for pairs
# do. They take numbers below the normal ones for zeros, so no sum may be one: weights and columns
# of BF16 below 2^-56 count as zeros. Then every product is a multiple of 2^-126, the least normal
# number, and so is every sum.

include "round.pxi"

cdef void round_bf16(const float* x, Py_ssize_t cols, float* out) noexcept nogil:
    """A `Round`, to float32."""
    cdef unsigned int word
    cdef Py_ssize_t i
    for i in range(cols):
        memcpy(&word, x + i, 4)
        word = rounded_bf16(word)
        memcpy(out + i, &word, 4)
    if cols & 1:
        out[cols] = 0


# Bytes of weights that many columns are multiplied with before the next are looked at.
cdef enum:
    NEAR = 16384


cdef inline f32x16 first_of_pair(const unsigned char* pair) noexcept nogil:
    """Of 16 rows, the weights of the pair's lower k."""
    return from_bits(shift_16(iload(<const int*>pair)))


cdef inline f32x16 second_of_pair(const unsigned char* pair) noexcept nogil:
    return from_bits(iand(iload(<const int*>pair), isplat(-65536)))


cdef inline f32x16 row16(int format, const unsigned char* at) noexcept nogil:
    """16 rows' weights of one k."""
    if format == F32:
        return load(<const float*>at)
    return load_half(<const unsigned short*>at)


cdef inline void add_k(int R, int N, f32x16 w0, f32x16 w1, const float** x, Py_ssize_t k,
                       Py_ssize_t x_stride, f32x16* values) noexcept nogil:
    """One k: weights of R panels times N columns.

    Addresses of three columns each come from one pointer, or they would not fit the registers.
    """
    cdef f32x16 s
    cdef int n
    for n in range(N):
        s = splat((x[n // 3] + k)[n % 3 * x_stride])
        values[n] = fma(w0, s, values[n])
        if R == 2:
            values[n + FLOAT_WIDEST] = fma(w1, s, values[n + FLOAT_WIDEST])


cdef inline void float_tile(int format, int R, int N, const unsigned char* w, Py_ssize_t panel,
                            Py_ssize_t steps, bint begins, const float* x, Py_ssize_t x_stride,
                            float* out, Py_ssize_t stride) noexcept nogil:
    """R panels at w times N columns at x, or what so many steps of k add to what is in `out`."""
    cdef f32x16[2 * FLOAT_WIDEST] values
    cdef const float* at[4]  # of columns 0, 3, 6 and 9
    cdef f32x16 w0, w1
    cdef const unsigned char* other = w + panel if R == 2 else w
    cdef Py_ssize_t k
    cdef int n
    for n in range((N + 2) // 3):
        at[n] = x + 3 * n * x_stride
    for n in range(N):
        values[n] = zero() if begins else load(out + n * stride)
        if R == 2:
            values[n + FLOAT_WIDEST] = zero() if begins else load(out + n * stride + 16)
    for k in range(steps):
        if N <= 4:
            __builtin_prefetch(w + AHEAD, 0, 3)
            if R == 2:
                __builtin_prefetch(other + AHEAD, 0, 3)
        if format == BF16:
            w0 = second_of_pair(w)
            w1 = second_of_pair(other)
            add_k(R, N, w0, w1, at, 1, x_stride, values)
            w0 = first_of_pair(w)
            w1 = first_of_pair(other)
            add_k(R, N, w0, w1, at, 0, x_stride, values)
        else:
            w0 = row16(format, w)
            w1 = row16(format, other)
            add_k(R, N, w0, w1, at, 0, x_stride, values)
        for n in range((N + 2) // 3):
            at[n] += per_step(format)
        w += step_bytes(format)
        other += step_bytes(format)
    for n in range(N):
        store(out + n * stride, values[n])
        if R == 2:
            store(out + n * stride + 16, values[n + FLOAT_WIDEST])


cdef inline int per_step(int format) noexcept nogil:
    """The k that a step of a tile takes: one, or a pair."""
    return 2 if format == BF16 else 1


cdef inline Py_ssize_t step_bytes(int format) noexcept nogil:
    """Bytes of a panel for a step."""
    return 32 if format == F16 else 64


cdef inline void float_columns(int format, int R, const unsigned char* w, Py_ssize_t panel,
                               Py_ssize_t steps, bint begins, const float* x, Py_ssize_t x_stride,
                               Py_ssize_t columns, float* out, Py_ssize_t stride) noexcept nogil:
    """R panels times all columns, in tiles as wide as they come."""
    while columns >= FLOAT_WIDEST:
        float_tile(format, R, FLOAT_WIDEST, w, panel, steps, begins, x, x_stride, out, stride)
        columns -= FLOAT_WIDEST
        x += FLOAT_WIDEST * x_stride
        out += FLOAT_WIDEST * stride
    while FLOAT_WIDEST > 4 and columns >= 4:
        float_tile(format, R, 4, w, panel, steps, begins, x, x_stride, out, stride)
        columns -= 4
        x += 4 * x_stride
        out += 4 * stride
    if FLOAT_WIDEST > 3 and columns == 3:
        float_tile(format, R, 3, w, panel, steps, begins, x, x_stride, out, stride)
    elif FLOAT_WIDEST > 2 and columns == 2:
        float_tile(format, R, 2, w, panel, steps, begins, x, x_stride, out, stride)
    elif FLOAT_WIDEST > 1 and columns == 1:
        float_tile(format, R, 1, w, panel, steps, begins, x, x_stride, out, stride)


cdef inline void float_rows(int format, int R, const unsigned char* w, Py_ssize_t panel,
                            const Columns* x, Py_ssize_t column, Py_ssize_t columns,
                            Py_ssize_t cols, float* out, Py_ssize_t stride) noexcept nogil:
    """R panels times all columns; of many, as much of k at a time as the nearest cache holds."""
    cdef Py_ssize_t x_stride = even(cols) if format == BF16 else x.stride
    cdef const float* at = (x.rounded if format == BF16 else x.floats) + column * x_stride
    cdef Py_ssize_t steps = even(cols) >> 1 if format == BF16 else cols, done = 0, some = steps
    if columns > FLOAT_WIDEST:
        some = NEAR // (R * step_bytes(format))
    while done < steps:
        if some > steps - done:
            some = steps - done
        float_columns(format, R, w + done * step_bytes(format), panel, some, done == 0,
                      at + done * per_step(format), x_stride, columns, out, stride)
        done += some


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
