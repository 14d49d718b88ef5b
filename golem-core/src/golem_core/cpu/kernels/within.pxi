# Attention of some rows of a text to that text, in float32.
#
# Keys are laid in panels of 16 positions and values in panels of 16 dimensions, so scores and sums
# are products as of a matrix of weights. A row's scores are kept whole: their largest, then the
# weights, then the sums, each over ascending positions. A row's block begins at a multiple of
# WITHIN rows of its text and decides no bit of its result, as no tile of a product does.

cdef inline Py_ssize_t up16(Py_ssize_t n) noexcept nogil:
    return (n + 15) & ~<Py_ssize_t> 15


# [length, dim] rows to panels of 16 positions, [dim, 16] each; the last is filled up with zeros.
cdef inline void lay_keys(const float* k, Py_ssize_t stride, Py_ssize_t length, Py_ssize_t dim,
                          float* out) noexcept nogil:
    cdef Py_ssize_t p, d, s, n
    cdef const float* row
    for p in range(0, length, 16):
        n = least(length - p, 16)
        if n < 16:
            memset(out + p * dim, 0, 64 * dim)
        for s in range(n):
            row = k + (p + s) * stride
            for d in range(dim):
                out[p * dim + 16 * d + s] = row[d]


# [length, dim] rows to panels of 16 dimensions, [positions, 16] each.
cdef inline void lay_values(const float* v, Py_ssize_t stride, Py_ssize_t length, Py_ssize_t dim,
                            Py_ssize_t positions, float* out) noexcept nogil:
    cdef Py_ssize_t p, d
    for d in range(0, dim, 16):
        for p in range(length):
            store(out + d * positions + 16 * p, load_n(v + p * stride + d, least(dim - d, 16)))
        if length < positions:
            memset(out + d * positions + 16 * length, 0, 64 * (positions - length))


# Scores of positions at..end of the row at `row` to weights exp(score - peak), 0 where the row does
# not see; gives their sum. at is a multiple of 16, and [end, up16(end)) become zeros.
cdef inline float weigh_row(float* scores, const float* bias, Py_ssize_t row, Py_ssize_t at,
                            Py_ssize_t end, Py_ssize_t low, Py_ssize_t high) noexcept nogil:
    cdef f32x16 peaks = splat(-INFINITY), s, total = zero(), unseen = splat(-INFINITY), slot
    cdef Py_ssize_t j
    cdef float peak
    for j in range(at, end, 16):
        s = load(scores + j)
        if bias != NULL:
            s = add(s, load_n(bias + j - row, least(end - j, 16)))
        if j < low or j + 16 > high:
            slot = load(SLOTS)
            s = select_lt(slot, splat(<float> (high - j)), s, unseen)
            s = select_lt(slot, splat(<float> (low - j)), unseen, s)
        peaks = max_(peaks, s)
        store(scores + j, s)
    peak = hmax(peaks)
    for j in range(at, end, 16):
        s = exp_(sub(load(scores + j), splat(peak)))
        total = add(total, s)
        store(scores + j, s)
    return hsum(total)


cdef void attend_within(const float* q, Py_ssize_t q_stride, const float* k, Py_ssize_t k_stride,
                        const float* v, Py_ssize_t v_stride, Py_ssize_t length, Py_ssize_t dim,
                        Py_ssize_t first, Py_ssize_t rows, float scale, Py_ssize_t before,
                        Py_ssize_t after, const float* bias, float* out, Py_ssize_t out_stride,
                        float* scratch) noexcept nogil:
    cdef Py_ssize_t low = most(0, first - before) & ~<Py_ssize_t> 15
    cdef Py_ssize_t high = least(length, first + rows + after)
    cdef Py_ssize_t positions = up16(high - low), wide = up16(dim)
    cdef float* keys = <float*> ((<size_t> scratch + 63) & ~<size_t> 63)
    cdef float* values = keys + positions * dim
    cdef float* scores = values + positions * wide      # [WITHIN, positions]
    cdef float* queries = scores + WITHIN * positions   # [WITHIN, dim]
    cdef float* sums = queries + WITHIN * wide          # [WITHIN, wide]
    cdef float[WITHIN] totals
    cdef Py_ssize_t block, row, i, d, n, count, at, end
    cdef f32x16 inverse
    cdef Packed w
    cdef Columns x
    memset(&x, 0, sizeof(Columns))
    lay_keys(k + low * k_stride, k_stride, high - low, dim, keys)
    lay_values(v + low * v_stride, v_stride, high - low, dim, positions, values)
    for block in range((rows + WITHIN - 1) // WITHIN):
        row = first + WITHIN * block
        count = least(WITHIN, first + rows - row)
        at = (most(0, row - before) & ~<Py_ssize_t> 15) - low   # of these keys and values
        end = least(length, row + count + after) - low
        for i in range(count):
            for d in range(0, dim, 16):
                n = least(dim - d, 16)
                store_n(queries + i * wide + d,
                        mul(load_n(q + (row + i) * q_stride + d, n), splat(scale)), n)
        w.data = <const unsigned char*> (keys + at * dim)
        w.rows = up16(end - at)
        w.cols = dim
        w.panel = 64 * dim
        x.floats = queries
        x.stride = wide
        floats(F32, &w, 0, w.rows // 16, &x, 0, count, scores + at, positions)
        for i in range(count):
            totals[i] = weigh_row(
                scores + i * positions, bias, row + i - low, at, end,
                most(0, row + i - before) - low, least(length, row + i + after + 1) - low)
        w.data = <const unsigned char*> (values + 16 * at)
        w.rows = wide
        w.cols = end - at
        w.panel = 64 * positions
        x.floats = scores + at
        x.stride = positions
        floats(F32, &w, 0, wide // 16, &x, 0, count, sums, wide)
        for i in range(count):
            inverse = splat(<float> 1.0 / totals[i])
            for d in range(0, dim, 16):
                n = least(dim - d, 16)
                store_n(out + (row + i) * out_stride + d, mul(load(sums + i * wide + d), inverse), n)
