# One position's keys and values into its page.


cdef inline void store_position(const View* view, Py_ssize_t position, const float* key,
                                const float* value, bint half) noexcept nogil:
    cdef Py_ssize_t dim = view.dim, heads = view.heads, padded = view.padded
    cdef Py_ssize_t page = view.table[position // PAGE], slot = position % PAGE
    cdef Py_ssize_t keys = page * heads * dim * PAGE + slot
    cdef Py_ssize_t values = (page * heads * PAGE + slot) * padded
    cdef unsigned short word[16]
    cdef Py_ssize_t h, i, j, n
    cdef f32x16 v
    for h in range(heads):
        for i in range(0, dim, 16):
            n = least(dim - i, 16)
            # `padded` has room for the whole word; the lanes past dim become zeros.
            v = load_n(value + h * dim + i, n)
            if half:
                store_half(<unsigned short*> view.values + values + h * PAGE * padded + i, v)
                store_half(word, load_n(key + h * dim + i, n))
                for j in range(n):
                    (<unsigned short*> view.keys)[keys + (h * dim + i + j) * PAGE] = word[j]
            else:
                store(<float*> view.values + values + h * PAGE * padded + i, v)
                for j in range(n):
                    (<float*> view.keys)[keys + (h * dim + i + j) * PAGE] = key[h * dim + i + j]


cdef void store_position_half(const View* view, Py_ssize_t position, const float* key,
                              const float* value) noexcept nogil:
    store_position(view, position, key, value, True)


cdef void store_position_float(const View* view, Py_ssize_t position, const float* key,
                               const float* value) noexcept nogil:
    store_position(view, position, key, value, False)
