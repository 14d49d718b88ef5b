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
    cdef int starts[16 * SUMS]
    cdef unsigned char codes[64]
    cdef signed char four[4]
    cdef i32x16 sums[SUMS]
    cdef bytes64 left
    cdef bytes4 right
    cdef Py_ssize_t r
    cdef int i
    for i in range(16 * SUMS):
        starts[i] = i + sum[0]  # not known when this is compiled, so no two sums are one
    for i in range(64):
        codes[i] = i % 16
    for i in range(4):
        four[i] = i - 1
    left = load_bytes(codes)
    right = splat4(four)
    for i in range(SUMS):
        sums[i] = iload(starts + 16 * i)
    for r in range(rounds):
        for i in range(SUMS):
            sums[i] = dots(sums[i], left, right)
    for i in range(1, SUMS):
        sums[0] = iadd(sums[0], sums[i])
    sum[0] = ihsum(sums[0])
    return rounds * SUMS * 64


cdef Limits exported_limits
exported_limits.read = limit_read
exported_limits.multiply = limit_multiply
limits = PyCapsule_New(&exported_limits, "golem_core.cpu.kernels.limits", NULL)
