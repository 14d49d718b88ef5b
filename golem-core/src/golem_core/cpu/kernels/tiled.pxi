# Products of the formats that are multiplied as floats: a panel, stored as in the file, is
# dequantised to [cols, 16] floats once for all columns of a call.

cdef inline void dequantise_panel(int format, const unsigned char* source, int rows,
                                  Py_ssize_t cols, float* out) noexcept nogil:
    """`rows` rows of the file, up to 16, to [cols, 16]; the other rows are zeros."""
    cdef Py_ssize_t parts = block_elements(format) // 32
    cdef Py_ssize_t row = cols // block_elements(format) * block_bytes(format), b
    cdef Part part
    cdef int r, k
    if rows < 16:
        memset(out, 0, 64 * cols)
    for b in range(cols // 32):
        for r in range(rows):
            read_part(format, source + r * row + b // parts * block_bytes(format),
                      <int> (b % parts), &part)
            for k in range(32):
                out[(32 * b + k) * 16 + r] = (part.scale[k >> 4] * <float> part.code[k]
                                              - part.minus[k >> 4])


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
