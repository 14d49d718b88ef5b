# Products of packed codes with the codes of columns: one tile of rows and columns.
#
# A value's sum runs over the blocks in ascending order: the exact integer sum of a block, then
# one fused multiply-add to the value (and one for the minimum). It is the same sum in a tile of
# any shape. Bounds: a block's sum is at most 32 * 255 * 127; a half of Q6_K's times its scale at
# most 16 * 32 * 127 * 128, and both halves less than 2^24, so they are exact as floats.
#
# A tile unpacks the codes that it multiplies. Those of 5 and 6 bits take so many instructions that
# for several tiles of columns they are unpacked once, SPREAD blocks at a time, which stay in the
# nearest cache; between these the values wait in `out`.

cdef enum:
    SPREAD = 16                 # blocks whose codes are unpacked at a time,
    SEVERAL = 16                # for so many columns at least

cdef extern from *:
    void __builtin_prefetch(const void*, int, int) nogil


cdef inline void prefetch(int format, const unsigned char* block) noexcept nogil:
    """Asks for what a narrow tile reads soon: such a tile waits for memory, not for sums."""
    cdef int i
    for i in range(code_bits(format) + 1):
        __builtin_prefetch(block + AHEAD + 64 * i, 0, 3)


cdef inline bytes64 vector(int format, const unsigned char* block, int j) noexcept nogil:
    """Vector j of a block's codes."""
    cdef bytes64 v
    if code_bits(format) == 8:
        return load_bytes(block + 64 * j)
    v = load_bytes(block + 64 * (j & 3))
    v = low_nibbles(v) if j < 4 else high_nibbles(v)
    if code_bits(format) == 5:
        v = with_fifth(v, load_bytes(block + 256), j)
    elif code_bits(format) == 6:
        v = with_pair(v, load_bytes(block + 256 + 64 * (j >> 2)), j & 3)
    return v


cdef inline void step(int format, int R, int N, int plain, int j, const unsigned char* w,
                      Py_ssize_t panel, const signed char* codes, Py_ssize_t cols,
                      i32x16* sums) noexcept nogil:
    """Adds vector j of R panels times N columns to sums[n + WIDEST * r]."""
    cdef bytes64 w0, w1
    cdef bytes4 four
    cdef int n
    w0 = load_bytes(w + 64 * j) if plain else vector(format, w, j)
    if R == 2:
        w1 = load_bytes(w + panel + 64 * j) if plain else vector(format, w + panel, j)
    for n in range(N):
        four = splat4(codes + n * cols + 4 * j)
        if code_bits(format) == 8:
            sums[n] = dots_wide(sums[n], w0, four)
            if R == 2:
                sums[n + WIDEST] = dots_wide(sums[n + WIDEST], w1, four)
        else:
            sums[n] = dots(sums[n], w0, four)
            if R == 2:
                sums[n + WIDEST] = dots(sums[n + WIDEST], w1, four)


cdef inline void start(int format, int R, int N, const int* sums, Py_ssize_t stride,
                       i32x16* into) noexcept nogil:
    """The codes' offset, as the value that the sums begin from."""
    cdef int n
    for n in range(N):
        if offset(format) == 0:
            into[n] = no_dots()
        elif code_bits(format) == 8:
            into[n] = minus_sum_wide(sums + n * stride)
        else:
            into[n] = minus_sum(sums + n * stride, offset(format))
        if R == 2:
            into[n + WIDEST] = into[n]


cdef inline void settle(int format, int N, i32x16* partial, i32x16* sums) noexcept nogil:
    """Where sums are kept in 16 bits for a while: adds them to the sums, and begins anew."""
    cdef int n
    if PARTIAL and format != Q8_0:
        for n in range(N):
            sums[n] = widen(sums[n], partial[n])
            partial[n] = no_dots()


cdef inline f32x16 block_scale(int format, const unsigned char* group, Py_ssize_t index,
                               int half) noexcept nogil:
    """d of a block, or d * scale; of half 0 or 1, for Q6_K."""
    cdef const unsigned char* scales = group + (code_bytes(format) << group_shift(format))
    cdef const unsigned char* mine = scales + scale_bytes(format) * index
    if not grouped(format):
        return load_half(<const unsigned short*>mine)
    if format == Q6_K:
        return load_s8(mine + 16 * half)
    return mul(load_half(<const unsigned short*>(scales + 256)), load_u8(mine))


cdef inline f32x16 block_minimum(int format, const unsigned char* group,
                                 Py_ssize_t index) noexcept nogil:
    """m of a block, or -dmin * minimum."""
    cdef const unsigned char* scales = group + (code_bytes(format) << group_shift(format))
    cdef const unsigned char* mine = scales + scale_bytes(format) * index
    if not grouped(format):
        return load_half(<const unsigned short*>(mine + 32))
    return mul(load_half(<const unsigned short*>(scales + 288)), load_u8(mine + 16))


cdef inline void finish(int format, int R, int N, const unsigned char* group, Py_ssize_t panel,
                        Py_ssize_t index, i32x16* sums, const float* scales, const int* totals,
                        Py_ssize_t stride, f32x16* values) noexcept nogil:
    """Adds a block's sums, and its minima, to the values."""
    cdef f32x16 d0, d1, m0, m1, s
    cdef int n
    d0 = block_scale(format, group, index, 0)
    if R == 2:
        d1 = block_scale(format, group + panel, index, 0)
    if offset(format) == 0:
        m0 = block_minimum(format, group, index)
        if R == 2:
            m1 = block_minimum(format, group + panel, index)
    for n in range(N):
        s = splat(scales[n * stride])
        values[n] = fma(to_f32(sums[n]), mul(d0, s), values[n])
        if R == 2:
            values[n + WIDEST] = fma(to_f32(sums[n + WIDEST]), mul(d1, s), values[n + WIDEST])
        if offset(format) == 0:
            s = mul(s, to_f32(isplat(totals[n * stride])))
            values[n] = fma(m0, s, values[n])
            if R == 2:
                values[n + WIDEST] = fma(m1, s, values[n + WIDEST])


cdef inline void halves(int format, int R, int N, const unsigned char* group, Py_ssize_t panel,
                        Py_ssize_t index, int half, i32x16* sums,
                        f32x16* scaled) noexcept nogil:
    """Scales the sums of a half of Q6_K's block, which are exact in float32."""
    cdef f32x16 s0, s1
    cdef int n
    s0 = block_scale(format, group, index, half)
    if R == 2:
        s1 = block_scale(format, group + panel, index, half)
    for n in range(N):
        if half == 0:
            scaled[n] = mul(to_f32(sums[n]), s0)
            if R == 2:
                scaled[n + WIDEST] = mul(to_f32(sums[n + WIDEST]), s1)
        else:
            scaled[n] = fma(to_f32(sums[n]), s0, scaled[n])
            if R == 2:
                scaled[n + WIDEST] = fma(to_f32(sums[n + WIDEST]), s1, scaled[n + WIDEST])


cdef inline void finish_halves(int format, int R, int N, const unsigned char* group,
                               Py_ssize_t panel, f32x16* scaled, const float* scales,
                               Py_ssize_t stride, f32x16* values) noexcept nogil:
    """Adds a block of Q6_K to the values."""
    cdef const unsigned char* d = group + ((code_bytes(format) + scale_bytes(format)) << 3)
    cdef f32x16 d0, d1, s
    cdef int n
    d0 = load_half(<const unsigned short*>d)
    if R == 2:
        d1 = load_half(<const unsigned short*>(d + panel))
    for n in range(N):
        s = splat(scales[n * stride])
        values[n] = fma(scaled[n], mul(d0, s), values[n])
        if R == 2:
            values[n + WIDEST] = fma(scaled[n + WIDEST], mul(d1, s), values[n + WIDEST])


cdef inline void tile(int format, int R, int N, int plain, const unsigned char* w,
                      Py_ssize_t panel, const unsigned char* unpacked, const Columns* x,
                      Py_ssize_t column, Py_ssize_t blocks, Py_ssize_t begin, Py_ssize_t end,
                      float* out, Py_ssize_t stride) noexcept nogil:
    """R panels at w times N columns: blocks begin to end of all `blocks`.

    With `plain` their codes lie at `unpacked`, and what the blocks before came to in `out`.
    """
    cdef f32x16[2 * WIDEST] values
    cdef f32x16[2 * WIDEST] scaled
    cdef i32x16[2 * WIDEST] sums
    cdef i32x16[2 * WIDEST] partial
    cdef i32x16* into = &sums[0]
    cdef const signed char* codes = x.codes + (column * blocks + begin) * 32
    cdef const float* scales = x.scales + column * blocks + begin
    cdef const int* totals = x.sums + column * blocks + begin
    cdef const int* parts = x.halves + (column * blocks + begin) * 2
    cdef Py_ssize_t cols = blocks * 32, b, index
    cdef Py_ssize_t apart = 512 * SPREAD if plain else panel  # of the panels' codes
    cdef const unsigned char* group
    cdef const unsigned char* block
    cdef int shift = group_shift(format), n
    if PARTIAL and format != Q8_0:
        into = &partial[0]
    for n in range(N):
        values[n] = load(out + n * stride) if plain and begin else zero()
        partial[n] = no_dots()
        if R == 2:
            values[n + WIDEST] = load(out + n * stride + 16) if plain and begin else zero()
    for b in range(begin, end):
        group = w + (b >> shift) * group_bytes(format)
        index = b & ((1 << shift) - 1)
        if plain:
            block = unpacked + 512 * (b - begin)
        else:
            block = group + index * code_bytes(format)
            prefetch(format, block)
            if R == 2:
                prefetch(format, block + panel)
        start(format, R, N, parts if format == Q6_K else totals,
              2 * blocks if format == Q6_K else blocks, sums)
        step(format, R, N, plain, 0, block, apart, codes, cols, into)
        step(format, R, N, plain, 1, block, apart, codes, cols, into)
        if code_bits(format) == 6:
            settle(format, N, partial, sums)
        step(format, R, N, plain, 2, block, apart, codes, cols, into)
        step(format, R, N, plain, 3, block, apart, codes, cols, into)
        if code_bits(format) > 4:
            settle(format, N, partial, sums)
        if format == Q6_K:
            halves(format, R, N, group, panel, index, 0, sums, scaled)
            start(format, R, N, parts + 1, 2 * blocks, sums)
        step(format, R, N, plain, 4, block, apart, codes, cols, into)
        step(format, R, N, plain, 5, block, apart, codes, cols, into)
        if code_bits(format) == 6:
            settle(format, N, partial, sums)
        step(format, R, N, plain, 6, block, apart, codes, cols, into)
        step(format, R, N, plain, 7, block, apart, codes, cols, into)
        settle(format, N, partial, sums)
        if format == Q6_K:
            halves(format, R, N, group, panel, index, 1, sums, scaled)
            finish_halves(format, R, N, group, panel, scaled, scales, blocks, values)
        else:
            finish(format, R, N, group, panel, index, sums, scales, totals, blocks, values)
        codes += 32
        scales += 1
        totals += 1
        parts += 2
    for n in range(N):
        store(out + n * stride, values[n])
        if R == 2:
            store(out + n * stride + 16, values[n + WIDEST])


cdef inline void rows(int format, int R, const unsigned char* w, Py_ssize_t panel,
                      const Columns* x, Py_ssize_t column, Py_ssize_t columns, Py_ssize_t blocks,
                      float* out, Py_ssize_t stride) noexcept nogil:
    """R panels times all columns, in tiles as wide as they come."""
    cdef Py_ssize_t end = column + columns
    if WIDEST > 4 and R == 1 and 4 < columns <= 8:
        # A batch of decoding: one tile, so that no sum waits for memory that another has read.
        if columns == 8:
            tile(format, 1, 8, 0, w, panel, NULL, x, column, blocks, 0, blocks, out, stride)
        elif columns == 7:
            tile(format, 1, 7, 0, w, panel, NULL, x, column, blocks, 0, blocks, out, stride)
        elif columns == 6:
            tile(format, 1, 6, 0, w, panel, NULL, x, column, blocks, 0, blocks, out, stride)
        else:
            tile(format, 1, 5, 0, w, panel, NULL, x, column, blocks, 0, blocks, out, stride)
        return
    while end - column >= WIDEST:
        tile(format, R, WIDEST, 0, w, panel, NULL, x, column, blocks, 0, blocks, out, stride)
        column += WIDEST
        out += WIDEST * stride
    while WIDEST > 4 and end - column >= 4:
        tile(format, R, 4, 0, w, panel, NULL, x, column, blocks, 0, blocks, out, stride)
        column += 4
        out += 4 * stride
    if WIDEST > 3 and end - column == 3:
        tile(format, R, 3, 0, w, panel, NULL, x, column, blocks, 0, blocks, out, stride)
    elif WIDEST > 2 and end - column == 2:
        tile(format, R, 2, 0, w, panel, NULL, x, column, blocks, 0, blocks, out, stride)
    elif WIDEST > 1 and end - column == 1:
        tile(format, R, 1, 0, w, panel, NULL, x, column, blocks, 0, blocks, out, stride)


cdef inline void unpack_codes(int format, const unsigned char* w, Py_ssize_t begin, Py_ssize_t end,
                              unsigned char* codes) noexcept nogil:
    """The codes of a panel's blocks begin to end, a byte each: [block, 8, 64]."""
    cdef const unsigned char* block
    cdef Py_ssize_t b
    cdef int shift = group_shift(format)
    for b in range(begin, end):
        block = (w + (b >> shift) * group_bytes(format)
                 + (b & ((1 << shift) - 1)) * code_bytes(format))
        prefetch(format, block)
        store_bytes(codes, vector(format, block, 0))
        store_bytes(codes + 64, vector(format, block, 1))
        store_bytes(codes + 128, vector(format, block, 2))
        store_bytes(codes + 192, vector(format, block, 3))
        store_bytes(codes + 256, vector(format, block, 4))
        store_bytes(codes + 320, vector(format, block, 5))
        store_bytes(codes + 384, vector(format, block, 6))
        store_bytes(codes + 448, vector(format, block, 7))
        codes += 512


cdef inline void wide_rows(int format, int R, const unsigned char* w, Py_ssize_t panel,
                           const Columns* x, Py_ssize_t column, Py_ssize_t columns,
                           Py_ssize_t blocks, float* out, Py_ssize_t stride) noexcept nogil:
    """R panels times a multiple of WIDEST columns: codes are unpacked once for all of them."""
    cdef unsigned char[TALLEST * 512 * SPREAD + 64] room
    cdef unsigned char* codes = &room[0] + (-<Py_ssize_t>&room[0] & 63)
    cdef Py_ssize_t begin = 0, end, n
    while begin < blocks:
        end = begin + SPREAD if begin + SPREAD < blocks else blocks
        unpack_codes(format, w, begin, end, codes)
        if R == 2:
            unpack_codes(format, w + panel, begin, end, codes + 512 * SPREAD)
        n = 0
        while n < columns:
            tile(format, R, WIDEST, 1, w, panel, codes, x, column + n, blocks, begin, end,
                 out + n * stride, stride)
            n += WIDEST
        begin = end


cdef inline void all_rows(int format, int R, const unsigned char* w, Py_ssize_t panel,
                          const Columns* x, Py_ssize_t column, Py_ssize_t columns,
                          Py_ssize_t blocks, float* out, Py_ssize_t stride) noexcept nogil:
    """R panels times all columns."""
    cdef Py_ssize_t wide = columns - columns % WIDEST
    if WIDEST > 1 and 4 < code_bits(format) < 8 and columns >= SEVERAL:
        wide_rows(format, R, w, panel, x, column, wide, blocks, out, stride)
        column += wide
        columns -= wide
        out += wide * stride
    if columns:
        rows(format, R, w, panel, x, column, columns, blocks, out, stride)


cdef inline void integers(int format, const Packed* w, Py_ssize_t first, Py_ssize_t panels,
                          const Columns* x, Py_ssize_t column, Py_ssize_t columns, float* out,
                          Py_ssize_t stride) noexcept nogil:
    """A `Product` of a format with integer codes."""
    cdef const unsigned char* data = w.data + first * w.panel
    cdef Py_ssize_t p = 0
    while TALLEST == 2 and (columns < 5 or columns > 8) and p + 2 <= panels:
        all_rows(format, 2, data + p * w.panel, w.panel, x, column, columns, w.cols // 32,
                 out + 16 * p, stride)
        p += 2
    while p < panels:
        all_rows(format, 1, data + p * w.panel, w.panel, x, column, columns, w.cols // 32,
                 out + 16 * p, stride)
        p += 1
