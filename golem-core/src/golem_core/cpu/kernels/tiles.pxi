# Products of packed codes with many columns, by tiles: the sums of `integers.pxi`, to the bit.
#
# A tile product of a block is exact: [up to 14 columns, 32 codes] times [32 codes, 16 rows] is a
# tile of int32, which goes through memory to become, for every column, one vector of 16 rows.
# Then the block is scaled and added as everywhere: the order of blocks and of roundings is the
# same. That takes most of the time (with tiles in use, only one port is left to multiply floats),
# so tiles of a step are made while those of the last one are stored and the one before is scaled.
#
# Two panels by 14 columns keep their values in 28 registers. Panels are unpacked to signed codes
# once for all columns, CHUNK blocks at a time, which with their scales stay in the nearest cache;
# between chunks the values wait in `out`.
#
# W8A8 is scaled once in four blocks: a step of it is two tile products of 64 codes each.

cdef enum:
    MOST = 14                   # columns of a tile
    WIDE = 128                  # columns that a chunk is unpacked for
    GROUPS = 10                 # of at most MOST columns, in WIDE
    CHUNK = 32                  # blocks
    SCALES = 32                 # floats of a panel's block: d of 16 rows, then their minima

# How a block is scaled: by d, by d and a minimum, or by d after its codes were multiplied by the
# scales of their halves (Q6_K). Such products have 14 bits; they are kept as 256 * high + low. Or
# by d, as four blocks that are one (W8A8).
cdef enum:
    PLAIN, MINIMUM, SPLIT, RUN


cdef inline int kind_of(int format) noexcept nogil:
    if format == W8A8:
        return RUN
    return SPLIT if format == Q6_K else MINIMUM if offset(format) == 0 else PLAIN


cdef inline Py_ssize_t chunk_of(int format) noexcept nogil:
    """Blocks, or runs, of a chunk: as many as its room for codes holds."""
    return CHUNK // 2 if format == Q6_K else CHUNK // 4 if format == W8A8 else CHUNK


cdef inline int scaled_shift(int format) noexcept nogil:
    """The logarithm of the codes that are scaled at once."""
    return 7 if format == W8A8 else 5


# What a chunk of two panels and a group of columns needs. `codes` are [block, panel, 32 * 16], of
# W8A8 [run, half, panel, 64 * 16].
cdef struct Group:
    const signed char* x        # the first column's codes
    Py_ssize_t cols             # bytes from one column to the next
    const signed char* codes
    const float* d              # [block, panel, SCALES]
    const float* s              # [block, 16]: the columns' scales,
    const float* t              # and these times the sum of their codes
    int* sums                   # [4 steps, panel, 16, 16]
    Py_ssize_t blocks
    float* out
    Py_ssize_t stride
    bint first                  # nothing is in `out`
    bint pair                   # the second panel exists
    Py_ssize_t lead             # columns before this one are computed and not kept
    Py_ssize_t count            # columns


cdef inline void unpack(int format, const unsigned char* panel, Py_ssize_t begin,
                        Py_ssize_t blocks, signed char* codes, float* d) noexcept nogil:
    """A panel's chunk, every second of [block, 2] codes (or [block, high or low, 2]) and scales."""
    cdef const unsigned char* group
    cdef const unsigned char* block
    cdef Py_ssize_t b, index
    if format == W8A8:
        unpack_runs(panel + begin * group_bytes(format), blocks, codes, d)
        return
    for b in range(begin, begin + blocks):
        group = panel + (b >> group_shift(format)) * group_bytes(format)
        index = b & ((1 << group_shift(format)) - 1)
        block = group + index * code_bytes(format)
        if format == Q6_K:
            block_codes_split(block, group + (code_bytes(format) << 3) + 32 * index, codes)
            store(d, load_half(<const unsigned short*>(
                group + ((code_bytes(format) + scale_bytes(format)) << 3))))
            codes += 2048
        else:
            block_codes(format, block, codes)
            store(d, block_scale(format, group, index, 0))
            if offset(format) == 0:
                store(d + 16, block_minimum(format, group, index))
            codes += 1024
        d += 2 * SCALES


cdef inline void unpack_runs(const unsigned char* group, Py_ssize_t runs, signed char* codes,
                             float* d) noexcept nogil:
    """Runs of a panel of W8A8, every second of [run, half, 2] codes, and scales."""
    cdef int i
    while runs > 0:
        for i in range(4):
            block_codes(W8A8, group + 512 * i, codes + 2048 * (i >> 1) + 512 * (i & 1))
        store(d, load_half(<const unsigned short*>(group + 2048)))
        group += group_bytes(W8A8)
        codes += 4096
        d += 2 * SCALES
        runs -= 1


cdef inline void block_codes(int format, const unsigned char* block,
                             signed char* codes) noexcept nogil:
    """A block's codes, as they count from their offset."""
    istore(<int*>codes, signed_codes(vector(format, block, 0), offset(format)))
    istore(<int*>(codes + 64), signed_codes(vector(format, block, 1), offset(format)))
    istore(<int*>(codes + 128), signed_codes(vector(format, block, 2), offset(format)))
    istore(<int*>(codes + 192), signed_codes(vector(format, block, 3), offset(format)))
    istore(<int*>(codes + 256), signed_codes(vector(format, block, 4), offset(format)))
    istore(<int*>(codes + 320), signed_codes(vector(format, block, 5), offset(format)))
    istore(<int*>(codes + 384), signed_codes(vector(format, block, 6), offset(format)))
    istore(<int*>(codes + 448), signed_codes(vector(format, block, 7), offset(format)))


cdef inline void block_codes_split(const unsigned char* block, const unsigned char* scales,
                                   signed char* codes) noexcept nogil:
    """A block's codes of Q6_K times the scales of their halves."""
    cdef i32x16 scale = row_scales(scales)
    split(vector(Q6_K, block, 0), scale, codes)
    split(vector(Q6_K, block, 1), scale, codes + 64)
    split(vector(Q6_K, block, 2), scale, codes + 128)
    split(vector(Q6_K, block, 3), scale, codes + 192)
    scale = row_scales(scales + 16)
    split(vector(Q6_K, block, 4), scale, codes + 256)
    split(vector(Q6_K, block, 5), scale, codes + 320)
    split(vector(Q6_K, block, 6), scale, codes + 384)
    split(vector(Q6_K, block, 7), scale, codes + 448)


cdef inline void split(bytes64 v, i32x16 scale, signed char* codes) noexcept nogil:
    """(v - 32) * scale + 128: the high bytes, and 1024 bytes further the low ones less 128."""
    cdef i32x16 even = times_even(v, scale), odd = times_odd(v, scale)
    istore(<int*>codes, high_bytes(even, odd))
    istore(<int*>(codes + 1024), low_bytes(even, odd))


cdef inline void tile_step(int kind, int odd, bint make, bint keep, const signed char* x,
                           Py_ssize_t cols, const signed char* codes, int* sums) noexcept nogil:
    """Multiplies two panels, and stores what the step before has multiplied."""
    if kind == RUN:
        run_step(odd, make, keep, x, cols, codes, sums)
    elif odd:
        if make:
            if kind != SPLIT:
                _tile_loadd(5, x, cols)
            _tile_loadd(6, codes, 64)
            _tile_zero(2)
            if kind == SPLIT:
                _tile_dpbssd(2, 4, 6)
            else:
                _tile_dpbssd(2, 5, 6)
        if keep:
            _tile_stored(0, sums, 64)
        if make:
            _tile_loadd(7, codes + 512, 64)
            _tile_zero(3)
            if kind == SPLIT:
                _tile_dpbssd(3, 4, 7)
            else:
                _tile_dpbssd(3, 5, 7)
        if keep:
            _tile_stored(1, sums + 256, 64)
    else:
        if make:
            _tile_loadd(4, x, cols)
            _tile_loadd(6, codes, 64)
            _tile_zero(0)
            _tile_dpbssd(0, 4, 6)
        if keep:
            _tile_stored(2, sums, 64)
        if make:
            _tile_loadd(7, codes + 512, 64)
            _tile_zero(1)
            _tile_dpbssd(1, 4, 7)
        if keep:
            _tile_stored(3, sums + 256, 64)


cdef inline void run_step(int odd, bint make, bint keep, const signed char* x, Py_ssize_t cols,
                          const signed char* codes, int* sums) noexcept nogil:
    """The same for a run of W8A8."""
    if make:
        _tile_loadd(4, x, cols)
        _tile_loadd(5, x + 64, cols)
        _tile_loadd(6, codes, 64)
        _tile_loadd(7, codes + 1024, 64)
    if odd:
        if make:
            _tile_zero(2)
            _tile_dpbssd(2, 4, 6)
            _tile_zero(3)
            _tile_dpbssd(3, 4, 7)
            _tile_loadd(6, codes + 2048, 64)
            _tile_loadd(7, codes + 3072, 64)
        if keep:
            _tile_stored(0, sums, 64)
        if make:
            _tile_dpbssd(2, 5, 6)
            _tile_dpbssd(3, 5, 7)
        if keep:
            _tile_stored(1, sums + 256, 64)
    else:
        if make:
            _tile_zero(0)
            _tile_dpbssd(0, 4, 6)
            _tile_zero(1)
            _tile_dpbssd(1, 4, 7)
            _tile_loadd(6, codes + 2048, 64)
            _tile_loadd(7, codes + 3072, 64)
        if keep:
            _tile_stored(2, sums, 64)
        if make:
            _tile_dpbssd(0, 5, 6)
            _tile_dpbssd(1, 5, 7)
        if keep:
            _tile_stored(3, sums + 256, 64)


cdef inline f32x16 block_sum(int kind, const int* sums) noexcept nogil:
    """A block's sum of one column and a panel's rows, |sum| < 2^24."""
    if kind == SPLIT:
        return to_f32(iadd(_mm512_slli_epi32(iload(sums), 8), iload(sums + 512)))
    return to_f32(iload(sums))


cdef inline void scaled(int kind, int n, int M, int N, const int* sums, const float* d,
                        const float* s, const float* t, f32x16* values) noexcept nogil:
    """Adds a block's sums of column n to its values."""
    cdef f32x16 scale, minimum
    if not M <= n < N:
        return
    scale = splat(s[n])
    values[n] = fma(block_sum(kind, sums + 16 * n), mul(load(d), scale), values[n])
    values[n + MOST] = fma(block_sum(kind, sums + 256 + 16 * n), mul(load(d + SCALES), scale),
                           values[n + MOST])
    if kind == MINIMUM:
        minimum = splat(t[n])
        values[n] = fma(load(d + 16), minimum, values[n])
        values[n + MOST] = fma(load(d + SCALES + 16), minimum, values[n + MOST])


cdef inline void scale_block(int kind, int M, int N, const int* sums, const float* d,
                             const float* s, const float* t, f32x16* values) noexcept nogil:
    """Adds a block's sums of columns M to N."""
    # Column by column: compilers do not unroll as much by themselves.
    scaled(kind, 0, M, N, sums, d, s, t, values)
    scaled(kind, 1, M, N, sums, d, s, t, values)
    scaled(kind, 2, M, N, sums, d, s, t, values)
    scaled(kind, 3, M, N, sums, d, s, t, values)
    scaled(kind, 4, M, N, sums, d, s, t, values)
    scaled(kind, 5, M, N, sums, d, s, t, values)
    scaled(kind, 6, M, N, sums, d, s, t, values)
    scaled(kind, 7, M, N, sums, d, s, t, values)
    scaled(kind, 8, M, N, sums, d, s, t, values)
    scaled(kind, 9, M, N, sums, d, s, t, values)
    scaled(kind, 10, M, N, sums, d, s, t, values)
    scaled(kind, 11, M, N, sums, d, s, t, values)
    scaled(kind, 12, M, N, sums, d, s, t, values)
    scaled(kind, 13, M, N, sums, d, s, t, values)


cdef inline void moved(bint keep, int n, int N, Group* g, f32x16* values) noexcept nogil:
    """Takes column n's values from `out`, or keeps them there."""
    cdef float* out
    if n >= N:
        return
    out = g.out + (n if n < g.count else g.count - 1) * g.stride
    if not keep:
        values[n] = zero() if g.first else load(out)
        values[n + MOST] = zero() if g.first or not g.pair else load(out + 16)
    elif g.lead <= n < g.count:
        store(out, values[n])
        if g.pair:
            store(out + 16, values[n + MOST])


cdef inline void move(bint keep, int N, Group* g, f32x16* values) noexcept nogil:
    moved(keep, 0, N, g, values)
    moved(keep, 1, N, g, values)
    moved(keep, 2, N, g, values)
    moved(keep, 3, N, g, values)
    moved(keep, 4, N, g, values)
    moved(keep, 5, N, g, values)
    moved(keep, 6, N, g, values)
    moved(keep, 7, N, g, values)
    moved(keep, 8, N, g, values)
    moved(keep, 9, N, g, values)
    moved(keep, 10, N, g, values)
    moved(keep, 11, N, g, values)
    moved(keep, 12, N, g, values)
    moved(keep, 13, N, g, values)


cdef inline void multiply(int kind, int N, Group* g) noexcept nogil:
    """Two panels times a group of columns, a chunk of blocks."""
    cdef f32x16[2 * MOST] values
    cdef Py_ssize_t i
    cdef const signed char* x = g.x
    cdef const signed char* codes = g.codes
    cdef const float* d = g.d
    cdef const float* s = g.s
    cdef const float* t = g.t
    cdef int* sums = g.sums
    cdef Py_ssize_t cols = g.cols, blocks = g.blocks
    cdef Py_ssize_t width = 128 if kind == RUN else 32  # codes of a step
    move(False, N, g, values)
    if kind == SPLIT:
        # A step is a block's high or low products. Block i is scaled in halves, behind steps
        # 2i + 3 and 2i + 4.
        for i in range(blocks + 2):
            tile_step(kind, 0, i < blocks, 0 < i <= blocks, x, cols, codes,
                      sums + 1024 * (i - 1 & 1) + 512)
            if 1 < i:
                scale_block(kind, N // 2, N, sums + 1024 * (i & 1), d, s, t, values)
                d += 2 * SCALES
                s += 16
            tile_step(kind, 1, i < blocks, i < blocks, x, cols, codes + 1024,
                      sums + 1024 * (i & 1))
            if 0 < i <= blocks:
                scale_block(kind, 0, N // 2, sums + 1024 * (i - 1 & 1), d, s, t, values)
            x += 32
            codes += 2048
    else:
        # A step is a block. Block i is scaled behind step i + 2.
        for i in range(0, blocks + 2, 2):
            tile_step(kind, 0, i < blocks, 0 < i <= blocks, x, cols, codes,
                      sums + 512 * (i - 1 & 3))
            if 0 < i:
                scale_block(kind, 0, N, sums + 512 * (i - 2 & 3), d, s, t, values)
                d += 2 * SCALES
                s += 16
                t += 16
            tile_step(kind, 1, i + 1 < blocks, i < blocks, x + width, cols, codes + 32 * width,
                      sums + 512 * (i & 3))
            if 0 < i <= blocks:
                scale_block(kind, 0, N, sums + 512 * (i - 1 & 3), d, s, t, values)
                d += 2 * SCALES
                s += 16
                t += 16
            x += 2 * width
            codes += 64 * width
    move(True, N, g, values)


cdef void multiply_group(int kind, int N, Group* g) noexcept nogil:
    """As `multiply`, for the numbers of columns that it is compiled for."""
    if kind == PLAIN:
        if N == 14:
            multiply(PLAIN, 14, g)
        elif N == 13:
            multiply(PLAIN, 13, g)
        elif N == 11:
            multiply(PLAIN, 11, g)
        elif N == 9:
            multiply(PLAIN, 9, g)
        else:
            multiply(PLAIN, 8, g)
    elif kind == MINIMUM:
        if N == 14:
            multiply(MINIMUM, 14, g)
        elif N == 13:
            multiply(MINIMUM, 13, g)
        elif N == 11:
            multiply(MINIMUM, 11, g)
        elif N == 9:
            multiply(MINIMUM, 9, g)
        else:
            multiply(MINIMUM, 8, g)
    elif kind == RUN:
        if N == 14:
            multiply(RUN, 14, g)
        elif N == 13:
            multiply(RUN, 13, g)
        elif N == 11:
            multiply(RUN, 11, g)
        elif N == 9:
            multiply(RUN, 9, g)
        else:
            multiply(RUN, 8, g)
    else:
        if N == 14:
            multiply(SPLIT, 14, g)
        elif N == 13:
            multiply(SPLIT, 13, g)
        elif N == 11:
            multiply(SPLIT, 11, g)
        elif N == 9:
            multiply(SPLIT, 9, g)
        else:
            multiply(SPLIT, 8, g)


cdef inline int compiled(Py_ssize_t columns) noexcept nogil:
    """The least number of columns that `multiply` is compiled for, and not less than these."""
    return 8 if columns <= 8 else 9 if columns <= 9 else 11 if columns <= 11 else (
        13 if columns <= 13 else 14)


cdef void gather(const Columns* x, Py_ssize_t column, Py_ssize_t columns, Py_ssize_t per_column,
                 Py_ssize_t begin, Py_ssize_t blocks, bint minimum, float* s,
                 float* t) noexcept nogil:
    """The scales of some columns, [block, 16], and these times the sums of their codes."""
    cdef int[16] where
    cdef i32x16 lanes
    cdef Py_ssize_t at = column * per_column + begin, b
    cdef f32x16 scale
    cdef int i
    for i in range(16):
        where[i] = <int>((i if i < columns else columns - 1) * per_column)
    lanes = iload(where)
    for b in range(blocks):
        scale = from_bits(gathered(<const int*>x.scales + at + b, lanes))
        store(s + 16 * b, scale)
        if minimum:
            store(t + 16 * b, mul(scale, to_f32(gathered(x.sums + at + b, lanes))))


cdef inline void tiles(int format, const Packed* w, Py_ssize_t first, Py_ssize_t panels,
                       const Columns* x, Py_ssize_t column, Py_ssize_t columns, float* out,
                       Py_ssize_t stride) noexcept nogil:
    """A `Product` of a format with integer codes; at most WIDE columns."""
    cdef unsigned char[64 + 1024 * CHUNK + 8192] bytes
    cdef float[2 * SCALES * CHUNK] d
    cdef float[GROUPS * 16 * CHUNK] s
    cdef float[GROUPS * 16 * CHUNK] t
    cdef Py_ssize_t all_blocks = w.cols >> scaled_shift(format), chunk = chunk_of(format)
    cdef Py_ssize_t begin, p, g
    cdef Py_ssize_t groups = (columns + MOST - 1) // MOST
    cdef Py_ssize_t span = (columns + groups - 1) // groups, start, second
    cdef int N = compiled(span)
    cdef const unsigned char* panel
    cdef Group group
    # As wide as it is compiled for, where there are so many columns: the last one reaches back.
    span = N if N < columns else columns
    groups = (columns + span - 1) // span
    group.codes = <const signed char*>&bytes[0] + (-<Py_ssize_t>&bytes[0] & 63)
    group.sums = <int*>(group.codes + 1024 * CHUNK)
    group.d = &d[0]
    group.cols = w.cols
    group.stride = stride
    group.count = span
    configure(<int>span, format == W8A8)
    begin = 0
    while begin < all_blocks:
        group.first = begin == 0
        group.blocks = all_blocks - begin if all_blocks - begin < chunk else chunk
        for g in range(groups):
            start = g * span if g * span + span <= columns else columns - span
            gather(x, column + start, span, all_blocks, begin, group.blocks,
                   kind_of(format) == MINIMUM, &s[16 * CHUNK * g], &t[16 * CHUNK * g])
        for p in range(0, panels, 2):
            group.pair = p + 1 < panels
            panel = w.data + (first + p) * w.panel
            second = w.panel if group.pair else 0
            unpack(format, panel, begin, group.blocks, <signed char*>group.codes, &d[0])
            unpack(format, panel + second, begin, group.blocks,
                   <signed char*>group.codes + (1024 if format == W8A8 else 512), &d[SCALES])
            written(group.codes)
            for g in range(groups):
                start = g * span if g * span + span <= columns else columns - span
                group.lead = g * span - start
                group.x = (x.codes + (column + start) * w.cols
                           + (begin << scaled_shift(format)))
                group.s = &s[16 * CHUNK * g]
                group.t = &t[16 * CHUNK * g]
                group.out = out + start * stride + 16 * p
                multiply_group(kind_of(format), N, &group)
        begin += chunk
    _tile_release()


cdef inline Py_ssize_t fewest(int format) noexcept nogil:
    """From so many columns on, unpacking for tiles pays (measured on Sapphire Rapids)."""
    return 40 if format == Q6_K else 24


cdef inline void many(int format, const Packed* w, Py_ssize_t first, Py_ssize_t panels,
                      const Columns* x, Py_ssize_t column, Py_ssize_t columns, float* out,
                      Py_ssize_t stride, float* scratch) noexcept nogil:
    """A `Product`: few columns go to the layer below."""
    cdef Py_ssize_t some
    if columns < fewest(format):
        below.product[format](w, first, panels, x, column, columns, out, stride, scratch)
        return
    while columns > 0:
        # Of more than WIDE, parts of about the same size.
        some = columns // ((columns + WIDE - 1) // WIDE)
        tiles(format, w, first, panels, x, column, some, out, stride)
        column += some
        columns -= some
        out += some * stride
