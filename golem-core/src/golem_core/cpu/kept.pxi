# Keys and values that are brought and taken outside a pass: included by tape.pyx.


cdef void put_kept(Kept* kept, const int* table, Py_ssize_t first, Py_ssize_t count,
                   const float* keys, const float* values) noexcept nogil:
    cdef View view
    cdef Py_ssize_t i, size = kept.heads * kept.dim
    view.keys = kept.keys
    view.values = kept.values
    view.table = table
    view.heads = kept.heads
    view.dim = kept.dim
    view.padded = kept.padded
    while count > 0:
        i = min(count, PAGE - first % PAGE)
        kept.store(&view, first, i, keys, size, values, size)
        first += i
        count -= i
        keys += i * size
        values += i * size


cdef inline float kept_value(Kept* kept, const char* page, Py_ssize_t i) noexcept nogil:
    if kept.half:
        return half_value((<const unsigned short*>page)[i])
    return (<const float*>page)[i]


cdef inline float half_value(unsigned short half) noexcept nogil:
    """A number of half precision; keys and values are finite."""
    cdef int exponent = half >> 10 & 31, fraction = half & 1023
    cdef double value = ldexp(fraction, -24) if exponent == 0 else ldexp(fraction + 1024, exponent - 25)
    return <float>(-value if half & 0x8000 else value)


cdef void get_kept(Kept* kept, Py_ssize_t page, float* keys, float* values) noexcept nogil:
    """Keys lie [head, dim, 32], values [head, 32, padded]."""
    cdef Py_ssize_t p, h, d
    cdef const char* k = kept.keys + page * kept.key_page
    cdef const char* v = kept.values + page * kept.value_page
    for p in range(PAGE):
        for h in range(kept.heads):
            for d in range(kept.dim):
                keys[(p * kept.heads + h) * kept.dim + d] = kept_value(
                    kept, k, (h * kept.dim + d) * PAGE + p)
                values[(p * kept.heads + h) * kept.dim + d] = kept_value(
                    kept, v, (h * PAGE + p) * kept.padded + d)
