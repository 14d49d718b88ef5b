# The formats as a file stores them: 32 values of a block at a time, as small integers, a scale
# and what is taken away, for each 16 of them: value = scale * code - minus.
#
# Field for field as GGUF defines the blocks; products of scales are made in float32, in the
# order of the reference (`golem_core.weights.formats`), so dequantised values agree to the bit.


cdef signed char[16] NONLINEAR  # IQ4_NL and IQ4_XS
NONLINEAR[:] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
cdef signed char[16] E2M1  # MXFP4, doubled
E2M1[:] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]


cdef struct Part:
    signed char[32] code
    float[2] scale
    float[2] minus


cdef inline unsigned short word16(const unsigned char* p) noexcept nogil:
    return p[0] | <unsigned short>(p[1] << 8)


cdef inline float half(const unsigned char* p) noexcept nogil:
    """A half as float32, without the processor's help."""
    cdef unsigned int h = word16(p), word
    cdef unsigned int exponent = h >> 10 & 31, fraction = h & 1023
    cdef float value
    if exponent == 0:
        value = <float>fraction * <float>5.9604644775390625e-08  # 2^-24
        return -value if h & 0x8000 else value
    word = (h & 0x8000) << 16 | (255 if exponent == 31 else exponent + 112) << 23 | fraction << 13
    memcpy(&value, &word, 4)
    return value


cdef inline float power(unsigned int e) noexcept nogil:
    """Half of the E8M0 value 2^(e - 127); below 2, a float32 without a leading one."""
    cdef unsigned int word = 0x00200000 << e if e < 2 else (e - 1) << 23
    cdef float value
    memcpy(&value, &word, 4)
    return value


cdef inline void k_scale(const unsigned char* scales, int i, int* scale,
                         int* minimum) noexcept nogil:
    """The 6-bit scale and minimum of the i-th 32 of Q4_K and Q5_K."""
    if i < 4:
        scale[0] = scales[i] & 63
        minimum[0] = scales[i + 4] & 63
    else:
        scale[0] = scales[i + 4] & 15 | scales[i - 4] >> 6 << 4
        minimum[0] = scales[i + 4] >> 4 | scales[i] >> 6 << 4


cdef inline void read_nibbles(const unsigned char* p, signed char* code) noexcept nogil:
    """Codes 0..15 in the low nibbles of 16 bytes, 16..31 in the high ones."""
    cdef int i
    for i in range(16):
        code[i] = p[i] & 15
        code[i + 16] = p[i] >> 4


cdef inline void read_five(const unsigned char* fifth, const unsigned char* p, int zero_code,
                           signed char* code) noexcept nogil:
    cdef int i
    cdef unsigned int plane
    memcpy(&plane, fifth, 4)
    for i in range(16):
        code[i] = (p[i] & 15 | (plane >> i & 1) << 4) - zero_code
        code[i + 16] = (p[i] >> 4 | (plane >> (i + 16) & 1) << 4) - zero_code


cdef inline const signed char* table_of(int format) noexcept nogil:
    """The 16 values that a format's codes stand for; NULL where codes are numbers."""
    if format == IQ4_NL or format == IQ4_XS:
        return NONLINEAR
    return E2M1 if format == MXFP4 else NULL


cdef inline void read_part(int format, const unsigned char* p, int part, Part* out) noexcept nogil:
    """The part-th 32 values of the block at p; codes of a table are left as they are."""
    cdef int i, s, m
    cdef signed char* code = out.code
    out.minus[0] = 0
    out.minus[1] = 0
    if (format == Q4_0 or format == Q4_1 or format == Q5_0 or format == Q5_1 or format == Q8_0
            or format == W8 or format == W8A8):
        out.scale[0] = half(p)
        if format == Q4_0:
            read_nibbles(p + 2, code)
            for i in range(32):
                code[i] -= 8
        elif format == Q4_1:
            out.minus[0] = -half(p + 2)
            read_nibbles(p + 4, code)
        elif format == Q5_0:
            read_five(p + 2, p + 6, 16, code)
        elif format == Q5_1:
            out.minus[0] = -half(p + 2)
            read_five(p + 4, p + 8, 0, code)
        else:
            memcpy(code, p + 2 + 32 * part, 32)
        out.scale[1] = out.scale[0]
        out.minus[1] = out.minus[0]
    elif format == Q4_K or format == Q5_K:
        k_scale(p + 4, part, &s, &m)
        out.scale[0] = half(p) * <float>s
        out.scale[1] = out.scale[0]
        out.minus[0] = half(p + 2) * <float>m
        out.minus[1] = out.minus[0]
        for i in range(32):
            if format == Q4_K:
                code[i] = p[16 + 32 * (part >> 1) + i] >> 4 * (part & 1) & 15
            else:
                code[i] = (p[48 + 32 * (part >> 1) + i] >> 4 * (part & 1) & 15
                           | (p[16 + i] >> part & 1) << 4)
    elif format == Q6_K:
        for i in range(2):
            out.scale[i] = half(p + 208) * <float><signed char>p[192 + 2 * part + i]
        for i in range(32):
            s = p[64 * (part >> 2) + 32 * (part & 1) + i] >> 2 * (part & 2) & 15
            m = p[128 + 32 * (part >> 2) + i] >> 2 * (part & 3) & 3
            code[i] = (s | m << 4) - 32
    elif format == Q2_K:
        for i in range(2):
            out.scale[i] = half(p + 80) * <float>(p[2 * part + i] & 15)
            out.minus[i] = half(p + 82) * <float>(p[2 * part + i] >> 4)
        for i in range(32):
            code[i] = p[16 + 32 * (part >> 2) + i] >> 2 * (part & 3) & 3
    elif format == Q3_K:
        for i in range(2):
            m = 2 * part + i
            s = (p[96 + (m & 7)] >> (m >> 3 << 2) & 15
                 | (p[104 + (m & 3)] >> (m >> 2 << 1) & 3) << 4)
            out.scale[i] = half(p + 108) * <float>(s - 32)
        for i in range(32):
            s = p[32 + 32 * (part >> 2) + i] >> 2 * (part & 3) & 3
            code[i] = s - (0 if p[i] >> part & 1 else 4)
    elif format == IQ4_NL or format == MXFP4:
        i = 2 if format == IQ4_NL else 1
        read_nibbles(p + i, code)
        out.scale[0] = half(p) if format == IQ4_NL else power(p[0])
        out.scale[1] = out.scale[0]
    else:  # IQ4_XS
        read_nibbles(p + 8 + 16 * part, code)
        s = p[4 + (part >> 1)] >> 4 * (part & 1) & 15 | (word16(p + 2) >> 2 * part & 3) << 4
        out.scale[0] = half(p) * <float>(s - 32)
        out.scale[1] = out.scale[0]
