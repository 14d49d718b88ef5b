# Products of matrices that are kept in bytes: W8 with columns of floats, W8A8 with codes.

# Blocks of W8 that become floats at a time: of two panels as many as NEAR holds.
cdef enum:
    BLOCKS_NEAR = NEAR // (2 * 32 * 64)


cdef inline void floats_of(const unsigned char* panel, Py_ssize_t begin, Py_ssize_t blocks,
                           float* out) noexcept nogil:
    """Some blocks of a panel of W8 to [32 * blocks, 16]."""
    cdef const unsigned char* group
    cdef const unsigned char* block
    cdef f32x16 scale
    cdef bytes64 fours
    cdef Py_ssize_t b
    cdef int j
    for b in range(begin, begin + blocks):
        group = panel + (b >> 1) * group_bytes(W8)
        block = group + (b & 1) * code_bytes(W8)
        scale = block_scale(W8, group, b & 1, 0)
        for j in range(8):
            fours = load_bytes(block + 64 * j)
            store(out, mul(signed_byte(fours, 0), scale))
            store(out + 16, mul(signed_byte(fours, 1), scale))
            store(out + 32, mul(signed_byte(fours, 2), scale))
            store(out + 48, mul(signed_byte(fours, 3), scale))
            out += 64


cdef inline void weights_alone(int R, const unsigned char* w, Py_ssize_t panel, const Columns* x,
                               Py_ssize_t column, Py_ssize_t columns, Py_ssize_t cols, float* out,
                               Py_ssize_t stride) noexcept nogil:
    """R panels of W8 times all columns: as products of F32 whose weights are made on the way."""
    cdef float[2 * BLOCKS_NEAR * 32 * 16] values
    cdef const float* at = x.floats + column * x.stride
    cdef Py_ssize_t all_blocks = cols >> 5, begin = 0, blocks = 2 * BLOCKS_NEAR // R
    cdef int r
    while begin < all_blocks:
        if blocks > all_blocks - begin:
            blocks = all_blocks - begin
        for r in range(R):
            floats_of(w + r * panel, begin, blocks, values + r * blocks * 512)
        float_columns(F32, R, <const unsigned char*>&values[0], 2048 * blocks, 32 * blocks,
                      begin == 0, at + 32 * begin, x.stride, columns, out, stride)
        begin += blocks


cdef void product_w8(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                     Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                     float* scratch) noexcept nogil:
    cdef const unsigned char* data = w.data + first * w.panel
    cdef Py_ssize_t p = 0
    while TALLEST == 2 and p + 2 <= panels:
        weights_alone(2, data + p * w.panel, w.panel, x, column, columns, w.cols, out + 16 * p,
                      stride)
        p += 2
    while p < panels:
        weights_alone(1, data + p * w.panel, w.panel, x, column, columns, w.cols, out + 16 * p,
                      stride)
        p += 1


cdef inline void run_tile(int R, int N, const unsigned char* w, Py_ssize_t panel,
                          const Columns* x, Py_ssize_t column, Py_ssize_t cols, float* out,
                          Py_ssize_t stride) noexcept nogil:
    """R panels of W8A8 at w times N columns.

    A run's sum of 128 products is exact, at most 128 * 127 * 128 < 2^24; then one fused
    multiply-add brings it to the value, runs ascending.
    """
    cdef f32x16[2 * WIDEST] values
    cdef i32x16[2 * WIDEST] sums
    cdef Py_ssize_t runs = cols >> 7, run
    cdef const signed char* codes = x.codes + column * cols
    cdef const float* scales = x.scales + column * runs
    cdef const int* totals = x.sums + column * runs
    cdef f32x16 d0, d1, s
    cdef int n, b, j
    for n in range(N):
        values[n] = zero()
        if R == 2:
            values[n + WIDEST] = zero()
    for run in range(runs):
        start(W8A8, R, N, totals, runs, sums)
        for b in range(4):
            prefetch(W8A8, w)
            if R == 2:
                prefetch(W8A8, w + panel)
            step(W8A8, R, N, 1, 0, w, panel, codes, cols, sums)
            step(W8A8, R, N, 1, 1, w, panel, codes, cols, sums)
            step(W8A8, R, N, 1, 2, w, panel, codes, cols, sums)
            step(W8A8, R, N, 1, 3, w, panel, codes, cols, sums)
            step(W8A8, R, N, 1, 4, w, panel, codes, cols, sums)
            step(W8A8, R, N, 1, 5, w, panel, codes, cols, sums)
            step(W8A8, R, N, 1, 6, w, panel, codes, cols, sums)
            step(W8A8, R, N, 1, 7, w, panel, codes, cols, sums)
            w += 512
            codes += 32
        d0 = load_half(<const unsigned short*>w)
        if R == 2:
            d1 = load_half(<const unsigned short*>(w + panel))
        for n in range(N):
            s = splat(scales[n * runs])
            values[n] = fma(to_f32(sums[n]), mul(d0, s), values[n])
            if R == 2:
                values[n + WIDEST] = fma(to_f32(sums[n + WIDEST]), mul(d1, s), values[n + WIDEST])
        w += 64
        scales += 1
        totals += 1
    for n in range(N):
        store(out + n * stride, values[n])
        if R == 2:
            store(out + n * stride + 16, values[n + WIDEST])


cdef inline void run_columns(int R, const unsigned char* w, Py_ssize_t panel, const Columns* x,
                             Py_ssize_t column, Py_ssize_t columns, Py_ssize_t cols, float* out,
                             Py_ssize_t stride) noexcept nogil:
    """R panels times all columns, in tiles as wide as they come."""
    cdef Py_ssize_t end = column + columns
    while end - column >= WIDEST:
        run_tile(R, WIDEST, w, panel, x, column, cols, out, stride)
        column += WIDEST
        out += WIDEST * stride
    while WIDEST > 4 and end - column >= 4:
        run_tile(R, 4, w, panel, x, column, cols, out, stride)
        column += 4
        out += 4 * stride
    if WIDEST > 3 and end - column == 3:
        run_tile(R, 3, w, panel, x, column, cols, out, stride)
    elif WIDEST > 2 and end - column == 2:
        run_tile(R, 2, w, panel, x, column, cols, out, stride)
    elif WIDEST > 1 and end - column == 1:
        run_tile(R, 1, w, panel, x, column, cols, out, stride)


cdef void product_w8a8(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                       Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                       float* scratch) noexcept nogil:
    cdef const unsigned char* data = w.data + first * w.panel
    cdef Py_ssize_t p = 0
    while TALLEST == 2 and p + 2 <= panels:
        run_columns(2, data + p * w.panel, w.panel, x, column, columns, w.cols, out + 16 * p,
                    stride)
        p += 2
    while p < panels:
        run_columns(1, data + p * w.panel, w.panel, x, column, columns, w.cols, out + 16 * p,
                    stride)
        p += 1
