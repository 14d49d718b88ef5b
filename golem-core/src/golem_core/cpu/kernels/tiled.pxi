# Products of the formats that are multiplied as floats: a panel, stored as in the file, is
# dequantised to [cols, 16] floats once for all columns of a call.

cdef inline void dequantise_panel(int format, const unsigned char* source, int rows,
                                  Py_ssize_t cols, float* out) noexcept nogil:
    """`rows` rows of the file, up to 16, to [cols, 16]; the other rows are zeros.

    Codes change places four at a time, as bytes, and are multiplied 16 rows at a time.
    """
    cdef Py_ssize_t parts = block_elements(format) // 32
    cdef Py_ssize_t row = cols // block_elements(format) * block_bytes(format), b
    cdef unsigned char[8 * 64] codes  # [8, 16 rows, 4]
    cdef bytes64 fours
    cdef float[2 * 16] scales
    cdef float[2 * 16] minima
    cdef const signed char* table = table_of(format)
    cdef f32x16 values
    cdef Part part
    cdef int r, k, j, half
    memset(codes, 0, 8 * 64)
    memset(scales, 0, 4 * 2 * 16)
    memset(minima, 0, 4 * 2 * 16)
    for b in range(cols // 32):
        for r in range(rows):
            read_part(format, source + r * row + b // parts * block_bytes(format),
                      <int> (b % parts), &part)
            for j in range(8):
                memcpy(&codes[64 * j + 4 * r], &part.code[4 * j], 4)
            for half in range(2):
                scales[16 * half + r] = part.scale[half]
                minima[16 * half + r] = part.minus[half]
        for j in range(8):
            fours = load_bytes(&codes[64 * j])
            if table != NULL:
                fours = looked_up(fours, table)
            half = j >> 2
            for k in range(4):
                values = mul(signed_byte(fours, k), load(&scales[16 * half]))
                if format == Q2_K:
                    values = sub(values, load(&minima[16 * half]))
                store(out + 16 * (32 * b + 4 * j + k), values)


cdef inline void tiled(int format, const Packed* w, Py_ssize_t first, Py_ssize_t panels,
                       const Columns* x, Py_ssize_t column, Py_ssize_t columns, float* out,
                       Py_ssize_t stride, float* scratch) noexcept nogil:
    """A `Product` through a dequantised panel."""
    cdef Py_ssize_t p, left
    for p in range(first, first + panels):
        left = w.rows - 16 * p
        dequantise_panel(format, w.data + p * w.panel, <int> (left if left < 16 else 16),
                         w.cols, scratch)
        float_rows(F32, 1, <const unsigned char*> scratch, 0, x, column, columns, w.cols,
                   out + 16 * (p - first), stride)
