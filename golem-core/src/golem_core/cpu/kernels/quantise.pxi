# A row of floats to signed bytes, each 32 with a scale of their own.


# scale = amax / 127, code = x * (127 / amax) rounded to even. Blocks whose largest magnitude is
# below 2^-120 (127 / amax might not be finite) count as zeros. A block with a NaN or an infinity
# gets codes of 0 and a scale of NaN: what it is multiplied by becomes NaN and is found there.
cdef void quantise(const float* x, Py_ssize_t cols, signed char* codes, float* scales,
                   int* sums, int* halves) noexcept nogil:
    cdef Py_ssize_t i
    cdef i32x16 magnitude = isplat(0x7FFFFFFF), a, b
    cdef f32x16 inverse
    cdef int largest, first, second
    cdef float amax
    for i in range(cols // 32):
        # As integers, magnitudes order like floats, with infinity and then the NaNs on top.
        a = iand(bits(load(x + 32 * i)), magnitude)
        b = iand(bits(load(x + 32 * i + 16)), magnitude)
        largest = ihmax(imax(a, b))
        if largest >= 0x7F800000 or largest < 0x03800000:
            scales[i] = NAN if largest >= 0x7F800000 else 0.0
            memset(codes + 32 * i, 0, 32)
            sums[i] = halves[2 * i] = halves[2 * i + 1] = 0
            continue
        memcpy(&amax, &largest, sizeof(float))
        scales[i] = amax / <float> 127.0
        inverse = splat(<float> 127.0 / amax)
        a = to_i32(mul(load(x + 32 * i), inverse))
        b = to_i32(mul(load(x + 32 * i + 16), inverse))
        store_i8(codes + 32 * i, a)
        store_i8(codes + 32 * i + 16, b)
        first = ihsum(a)
        second = ihsum(b)
        halves[2 * i] = first
        halves[2 * i + 1] = second
        sums[i] = first + second
