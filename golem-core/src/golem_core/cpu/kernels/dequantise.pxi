# Values in file layout to float32.

cdef inline void dequantise(int format, const unsigned char* source, Py_ssize_t elements,
                            float* out) noexcept nogil:
    """A `Dequantise` of a format with blocks."""
    cdef Py_ssize_t parts = block_elements(format) // 32, i
    cdef const signed char* table = table_of(format)
    cdef Part part
    cdef int k
    for i in range(elements // 32):
        read_part(format, source + i // parts * block_bytes(format), <int> (i % parts), &part)
        if table != NULL:
            for k in range(32):
                part.code[k] = table[part.code[k]]
        for k in range(32):
            out[32 * i + k] = part.scale[k >> 4] * <float>part.code[k] - part.minus[k >> 4]


cdef void dequantise_f32(const unsigned char* source, Py_ssize_t elements,
                         float* out) noexcept nogil:
    memcpy(out, source, 4 * elements)


cdef void dequantise_f16(const unsigned char* source, Py_ssize_t elements,
                         float* out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(elements):
        out[i] = half(source + 2 * i)


cdef void dequantise_bf16(const unsigned char* source, Py_ssize_t elements,
                          float* out) noexcept nogil:
    cdef Py_ssize_t i
    cdef unsigned int word
    for i in range(elements):
        word = <unsigned int>word16(source + 2 * i) << 16
        memcpy(out + i, &word, 4)


cdef void dequantise_w8(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(W8, source, elements, out)


cdef void dequantise_w8a8(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(W8A8, source, elements, out)


cdef void dequantise_q4_0(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(Q4_0, source, elements, out)


cdef void dequantise_q4_1(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(Q4_1, source, elements, out)


cdef void dequantise_q5_0(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(Q5_0, source, elements, out)


cdef void dequantise_q5_1(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(Q5_1, source, elements, out)


cdef void dequantise_q8_0(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(Q8_0, source, elements, out)


cdef void dequantise_q4_k(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(Q4_K, source, elements, out)


cdef void dequantise_q5_k(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(Q5_K, source, elements, out)


cdef void dequantise_q6_k(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(Q6_K, source, elements, out)


cdef void dequantise_q2_k(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(Q2_K, source, elements, out)


cdef void dequantise_q3_k(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(Q3_K, source, elements, out)


cdef void dequantise_iq4_nl(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(IQ4_NL, source, elements, out)


cdef void dequantise_iq4_xs(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(IQ4_XS, source, elements, out)


cdef void dequantise_mxfp4(const unsigned char* source, Py_ssize_t elements,
                        float* out) noexcept nogil:
    dequantise(MXFP4, source, elements, out)
