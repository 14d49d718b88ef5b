# A row of floats to signed bytes, each 32 with a scale of their own.


# scale = amax / 127, code = x * (127 / amax) rounded to even. Blocks whose largest magnitude is
# below 2^-120 (127 / amax might not be finite) count as zeros. A block with a NaN or an infinity
# gets codes of 0 and a scale of NaN: what it is multiplied by becomes NaN and is found there.
# Up to 16 blocks go together, so that what is done across lanes is done for a block a lane.
cdef void quantise(const float* x, Py_ssize_t cols, signed char* codes, float* scales,
                   int* sums, int* halves) noexcept nogil:
    cdef Py_ssize_t begin
    for begin in range(0, cols // 32, 16):
        quantise_blocks(x + 32 * begin, least(cols // 32 - begin, 16), codes + 32 * begin,
                        scales + begin, sums + begin, halves + 2 * begin)


# The same with a scale and a sum for each 128; of halves nothing is written.
cdef void quantise_runs(const float* x, Py_ssize_t cols, signed char* codes, float* scales,
                        int* sums, int* halves) noexcept nogil:
    cdef int[256] lanes
    cdef int[16] largest
    cdef i32x16 magnitude = isplat(0x7FFFFFFF), a, sum
    cdef f32x16 inverse
    cdef float amax
    cdef Py_ssize_t run, i
    for run in range(cols // 128):
        a = izero()
        for i in range(8):
            a = imax(a, iand(bits(load(x + 16 * i)), magnitude))
        memset(lanes, 0, sizeof(lanes))
        istore(lanes, a)
        istore(largest, rows_max(lanes))
        if largest[0] >= 0x7F800000 or largest[0] < 0x03800000:
            scales[run] = NAN if largest[0] >= 0x7F800000 else 0.0
            sums[run] = 0
            memset(codes, 0, 128)
        else:
            memcpy(&amax, largest, 4)
            scales[run] = amax / <float>127.0
            inverse = splat(<float>127.0 / amax)
            sum = izero()
            for i in range(8):
                a = to_i32(mul(load(x + 16 * i), inverse))
                store_i8(codes + 16 * i, a)
                sum = iadd(sum, a)
            istore(lanes, sum)
            istore(largest, rows_sum(lanes))
            sums[run] = largest[0]
        x += 128
        codes += 128


cdef inline void quantise_blocks(const float* x, Py_ssize_t blocks, signed char* codes,
                                 float* scales, int* sums, int* halves) noexcept nogil:
    cdef int[2 * 256] lanes
    cdef float[16] inverses
    cdef float[16] made
    cdef int[16] largest
    cdef i32x16 magnitude = isplat(0x7FFFFFFF), a, b
    cdef f32x16 amax, inverse
    cdef Py_ssize_t i
    if blocks < 16:
        memset(lanes, 0, sizeof(lanes))
    for i in range(blocks):
        # As integers, magnitudes order like floats, with infinity and then the NaNs on top.
        a = iand(bits(load(x + 32 * i)), magnitude)
        b = iand(bits(load(x + 32 * i + 16)), magnitude)
        istore(lanes + 16 * i, imax(a, b))
    a = rows_max(lanes)
    istore(largest, a)
    amax = from_bits(a)
    store(made, div(amax, splat(127.0)))
    store(inverses, div(splat(127.0), amax))
    for i in range(blocks):
        if largest[i] >= 0x7F800000 or largest[i] < 0x03800000:
            made[i] = NAN if largest[i] >= 0x7F800000 else 0.0
            memset(codes + 32 * i, 0, 32)
            istore(lanes + 32 * i, izero())
            istore(lanes + 32 * i + 16, izero())
            continue
        inverse = splat(inverses[i])
        a = to_i32(mul(load(x + 32 * i), inverse))
        b = to_i32(mul(load(x + 32 * i + 16), inverse))
        store_i8(codes + 32 * i, a)
        store_i8(codes + 32 * i + 16, b)
        istore(lanes + 32 * i, a)
        istore(lanes + 32 * i + 16, b)
    memcpy(scales, made, 4 * blocks)
    istore(largest, rows_sum(lanes))
    memcpy(halves, largest, 4 * least(2 * blocks, 16))
    if blocks > 8:
        istore(largest, rows_sum(lanes + 256))
        memcpy(halves + 16, largest, 4 * (2 * blocks - 16))
    for i in range(blocks):
        sums[i] = halves[2 * i] + halves[2 * i + 1]
