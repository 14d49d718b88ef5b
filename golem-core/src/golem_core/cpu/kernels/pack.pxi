# A matrix in file layout to panels of 16 rows.


cdef inline void set_bits(unsigned char* at, unsigned int bits) noexcept nogil:
    """Adds bits to the four bytes at `at`."""
    cdef unsigned int word
    memcpy(&word, at, 4)
    word |= bits
    memcpy(at, &word, 4)


cdef inline void pack_codes(int format, const signed char* code, int row,
                            unsigned char* block) noexcept nogil:
    """One row's 32 codes into a block of zeros, four bytes at a time; see layout.pxd."""
    cdef unsigned int zero_code = <unsigned int>offset(format) * <unsigned int>0x01010101
    cdef unsigned int word
    cdef int j
    for j in range(8):
        memcpy(&word, code + 4 * j, 4)
        # Byte by byte: code + offset, without a carry into the next byte.
        word = ((word & <unsigned int>0x7F7F7F7F) + (zero_code & <unsigned int>0x7F7F7F7F)) ^ (
            (word ^ zero_code) & <unsigned int>0x80808080)
        if code_bits(format) == 8:
            set_bits(block + 64 * j + 4 * row, word)
            continue
        set_bits(block + 64 * (j & 3) + 4 * row, (word & <unsigned int>0x0F0F0F0F) << (j & 4))
        if code_bits(format) == 5:
            set_bits(block + 256 + 4 * row, (word >> 4 & <unsigned int>0x01010101) << j)
        elif code_bits(format) == 6:
            set_bits(block + 256 + 64 * (j >> 2) + 4 * row,
                     (word >> 4 & <unsigned int>0x03030303) << 2 * (j & 3))


cdef inline void pack_scales(int format, const unsigned char* p, int row, int index,
                             unsigned char* scales) noexcept nogil:
    """One row's scales of the block at p, of its index-th 32, into a group's scales."""
    cdef unsigned char* mine = scales + scale_bytes(format) * index
    cdef unsigned short m
    cdef int s, n
    if format == Q6_K:
        mine[row] = p[192 + 2 * index]
        mine[16 + row] = p[193 + 2 * index]
        memcpy(scales + 256 + 2 * row, p + 208, 2)
    elif format == W8A8:
        memcpy(scales + 2 * row, p, 2)
    elif grouped(format):
        k_scale(p + 4, index, &s, &n)
        mine[row] = <unsigned char>s
        mine[16 + row] = <unsigned char>n
        memcpy(scales + 256 + 2 * row, p, 2)
        m = word16(p + 2) ^ 0x8000
        memcpy(scales + 288 + 2 * row, &m, 2)
    else:
        memcpy(mine + 2 * row, p, 2)
        if scale_bytes(format) == 64:
            memcpy(mine + 32 + 2 * row, p + 2, 2)


cdef inline void pack(int format, const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
                      Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    """A `Pack` of a format with integer products."""
    cdef int elements = block_elements(format), per = elements // 32, shift = group_shift(format)
    cdef Py_ssize_t row_bytes = cols // elements * block_bytes(format)
    cdef Py_ssize_t size = panel_bytes(format, cols)
    cdef Py_ssize_t p, b, row
    cdef const unsigned char* block
    cdef unsigned char* panel
    cdef unsigned char* group
    cdef Part part
    cdef int index, r
    for p in range(first, first + panels):
        panel = out + p * size
        memset(panel, 0, size)
        for b in range(cols // 32):
            group = panel + (b >> shift) * group_bytes(format)
            index = <int>(b & ((1 << shift) - 1))
            for r in range(16):
                row = 16 * p + r
                if row >= rows:
                    break
                block = source + row * row_bytes + b // per * block_bytes(format)
                read_part(format, block, <int>(b % per), &part)
                pack_codes(format, part.code, r, group + index * code_bytes(format))
                pack_scales(format, block, r, index,
                            group + (code_bytes(format) << shift))


cdef inline void pack_floats(int size, const unsigned char* source, Py_ssize_t rows,
                             Py_ssize_t cols, Py_ssize_t first, Py_ssize_t panels,
                             unsigned char* out) noexcept nogil:
    """Values of `size` bytes: a panel is [cols, 16]."""
    cdef Py_ssize_t p, k, row
    cdef unsigned char* panel
    cdef int r
    for p in range(first, first + panels):
        panel = out + p * 16 * cols * size
        for r in range(16):
            row = 16 * p + r
            for k in range(cols):
                if row < rows:
                    memcpy(panel + (16 * k + r) * size, source + (row * cols + k) * size, size)
                else:
                    memset(panel + (16 * k + r) * size, 0, size)


cdef inline void pack_pairs(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
                            Py_ssize_t first, Py_ssize_t panels,
                            unsigned char* out) noexcept nogil:
    """Values of BF16: a panel is [even(cols) / 2, 16, 2]. Below 2^-56 they become 0."""
    cdef Py_ssize_t p, k, row
    cdef unsigned short* panel
    cdef const unsigned char* value
    cdef unsigned short word
    cdef int r
    for p in range(first, first + panels):
        panel = <unsigned short*>(out + p * 32 * even(cols))
        memset(panel, 0, 32 * even(cols))
        for r in range(16):
            row = 16 * p + r
            if row >= rows:
                break
            value = source + 2 * row * cols
            for k in range(cols):
                word = word16(value + 2 * k)
                if word & 0x7FFF >= 0x2380:
                    panel[16 * (k & ~1) + 2 * r + (k & 1)] = word


cdef inline void pack_stored(int format, const unsigned char* source, Py_ssize_t rows,
                             Py_ssize_t cols, Py_ssize_t first, Py_ssize_t panels,
                             unsigned char* out) noexcept nogil:
    """Rows as they lie in the file, then rows of zeros."""
    cdef Py_ssize_t size = cols // block_elements(format) * block_bytes(format)
    cdef Py_ssize_t begin = 16 * first, end = 16 * (first + panels)
    cdef Py_ssize_t stored = end if end < rows else rows
    memcpy(out + begin * size, source + begin * size, (stored - begin) * size)
    memset(out + stored * size, 0, (end - stored) * size)


cdef void pack_f32(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack_floats(4, source, rows, cols, first, panels, out)


cdef void pack_f16(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack_floats(2, source, rows, cols, first, panels, out)


cdef void pack_bf16(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack_pairs(source, rows, cols, first, panels, out)


cdef void pack_w8(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack(W8, source, rows, cols, first, panels, out)


cdef void pack_w8a8(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack(W8A8, source, rows, cols, first, panels, out)


cdef void pack_q4_0(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack(Q4_0, source, rows, cols, first, panels, out)


cdef void pack_q4_1(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack(Q4_1, source, rows, cols, first, panels, out)


cdef void pack_q5_0(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack(Q5_0, source, rows, cols, first, panels, out)


cdef void pack_q5_1(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack(Q5_1, source, rows, cols, first, panels, out)


cdef void pack_q8_0(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack(Q8_0, source, rows, cols, first, panels, out)


cdef void pack_q4_k(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack(Q4_K, source, rows, cols, first, panels, out)


cdef void pack_q5_k(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack(Q5_K, source, rows, cols, first, panels, out)


cdef void pack_q6_k(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack(Q6_K, source, rows, cols, first, panels, out)


cdef void pack_q2_k(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack_stored(Q2_K, source, rows, cols, first, panels, out)


cdef void pack_q3_k(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack_stored(Q3_K, source, rows, cols, first, panels, out)


cdef void pack_iq4_nl(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack_stored(IQ4_NL, source, rows, cols, first, panels, out)


cdef void pack_iq4_xs(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack_stored(IQ4_XS, source, rows, cols, first, panels, out)


cdef void pack_mxfp4(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
               Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil:
    pack_stored(MXFP4, source, rows, cols, first, panels, out)
