# What an instruction set can do at most, by its own words: read memory, and issue integer dots.

from golem_core.cpu.kernels.limits cimport Limits

# As many sums as a product's largest tile keeps in registers, so that no dot waits for another.
cdef enum:
    SUMS = TALLEST * WIDEST


cdef int limit_read(const unsigned char* data, Py_ssize_t bytes) noexcept nogil:
    cdef i32x16 sums[8]
    cdef Py_ssize_t at
    cdef int i
    for i in range(8):
        sums[i] = izero()
    for at in range(0, bytes, 512):
        for i in range(8):
            sums[i] = iadd(sums[i], iload(<const int*> (data + at + 64 * i)))
    for i in range(1, 8):
        sums[0] = iadd(sums[0], sums[i])
    return ihsum(sums[0])


cdef Py_ssize_t limit_multiply(Py_ssize_t rounds, int* sum) noexcept nogil:
    # The shape of a product's largest tile, over values that stay in the nearest cache. Nothing in
    # it may be known when this is compiled, or be the same twice, or it would be computed once.
    cdef int starts[16 * SUMS]
    cdef unsigned char codes[256 * TALLEST]
    cdef signed char columns[4 * WIDEST]
    cdef i32x16 sums[SUMS]
    cdef bytes64 left
    cdef Py_ssize_t r
    cdef int i, j
    for i in range(16 * SUMS):
        starts[i] = i + sum[0]
    for i in range(256 * TALLEST):
        codes[i] = (i + sum[0]) % 16
    for i in range(4 * WIDEST):
        columns[i] = i + sum[0]
    for i in range(SUMS):
        sums[i] = iload(starts + 16 * i)
    for r in range(rounds):
        for j in range(TALLEST):
            left = load_bytes(codes + 64 * (TALLEST * (r & 3) + j))
            for i in range(WIDEST):
                sums[WIDEST * j + i] = dots(sums[WIDEST * j + i], left, splat4(columns + 4 * i))
    for i in range(1, SUMS):
        sums[0] = iadd(sums[0], sums[i])
    sum[0] = ihsum(sums[0])
    return rounds * SUMS * 64


cdef Limits exported_limits
exported_limits.read = limit_read
exported_limits.multiply = limit_multiply
limits = PyCapsule_New(&exported_limits, "golem_core.cpu.kernels.limits", NULL)
