# Keys and values of successive positions into their page.
#
# A page has a line of the cache for each dimension of each key head. One position touches them all,
# so positions go together: a line is written once for all of them.

cdef inline void store_positions(const View* view, Py_ssize_t position, Py_ssize_t count,
                                 const float* key, Py_ssize_t key_stride, const float* value,
                                 Py_ssize_t value_stride, bint half) noexcept nogil:
    cdef Py_ssize_t dim = view.dim, heads = view.heads, padded = view.padded
    cdef Py_ssize_t page = view.table[position // PAGE], slot = position % PAGE
    cdef Py_ssize_t keys = page * heads * dim * PAGE + slot
    cdef Py_ssize_t values = (page * heads * PAGE + slot) * padded
    cdef unsigned short words[16 * PAGE]
    cdef Py_ssize_t h, i, j, r, n, line
    cdef f32x16 v
    for h in range(heads):
        for i in range(0, dim, 16):
            n = least(dim - i, 16)
            line = keys + (h * dim + i) * PAGE
            for r in range(count):
                # `padded` has room for the whole word; the lanes past dim become zeros.
                v = load_n(value + r * value_stride + h * dim + i, n)
                if half:
                    store_half(<unsigned short*> view.values + values
                               + (h * PAGE + r) * padded + i, v)
                    store_half(words + 16 * r, load_n(key + r * key_stride + h * dim + i, n))
                else:
                    store(<float*> view.values + values + (h * PAGE + r) * padded + i, v)
            for j in range(n):
                for r in range(count):
                    if half:
                        (<unsigned short*> view.keys)[line + j * PAGE + r] = words[16 * r + j]
                    else:
                        (<float*> view.keys)[line + j * PAGE + r] = key[
                            r * key_stride + h * dim + i + j]


cdef void store_positions_half(const View* view, Py_ssize_t position, Py_ssize_t count,
                               const float* key, Py_ssize_t key_stride, const float* value,
                               Py_ssize_t value_stride) noexcept nogil:
    store_positions(view, position, count, key, key_stride, value, value_stride, True)


cdef void store_positions_float(const View* view, Py_ssize_t position, Py_ssize_t count,
                                const float* key, Py_ssize_t key_stride, const float* value,
                                Py_ssize_t value_stride) noexcept nogil:
    store_positions(view, position, count, key, key_stride, value, value_stride, False)
