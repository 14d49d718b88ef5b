"""The largest of many numbers, in one pass over them.

Behind a model's pass the logits of a large vocabulary lie far from the processor, and so does
whatever room a copy would take: what drawing takes is how often either is touched.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc

cdef enum:
    AT_ONCE = 64  # values that are compared without a branch

cdef struct Entry:
    float value
    int id


cdef inline bint is_worse(const Entry* a, const Entry* b) noexcept nogil:
    """Whether `a` gives way before `b`: it is smaller, or as large and comes later."""
    return a.value < b.value or (a.value == b.value and a.id > b.id)


cdef void sink(Entry* heap, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """Moves the entry `at` down to where it is the worst of those below it."""
    cdef Entry moved = heap[at]
    cdef Py_ssize_t below
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and is_worse(&heap[below + 1], &heap[below]):
            below += 1
        if not is_worse(&heap[below], &moved):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = moved


cdef inline bint has_more(const float* values, float bound) noexcept nogil:
    """Whether one of so many values exceeds `bound`, or is NaN."""
    cdef int i, found = 0
    for i in range(AT_ONCE):
        found |= not values[i] <= bound
    return found


cdef Py_ssize_t select(const float* values, Py_ssize_t size, Entry* heap,
                       Py_ssize_t count) noexcept nogil:
    """`largest`, into a heap that becomes a sorted list."""
    cdef Py_ssize_t i, at
    cdef Entry worst
    for i in range(count):
        if values[i] != values[i]:
            return i
        heap[i].value = values[i]
        heap[i].id = <int>i
    for i in range(count // 2 - 1, -1, -1):
        sink(heap, i, count)
    at = count
    while at < size:
        if at + AT_ONCE > size or has_more(values + at, heap[0].value):
            for i in range(at, min(at + AT_ONCE, size)):
                if values[i] != values[i]:
                    return i
                if values[i] > heap[0].value:
                    heap[0].value = values[i]
                    heap[0].id = <int>i
                    sink(heap, 0, count)
        at += AT_ONCE
    for i in range(count - 1, 0, -1):
        worst = heap[0]
        heap[0] = heap[i]
        heap[i] = worst
        sink(heap, 0, i)
    return -1


def largest(const float[::1] values, long long[::1] ids):
    """Fills `ids` [n] with the indices of the n largest of `values` [v], largest first.

    Of equals the lowest come first; 1 <= n <= v < 2**31. Gives -1, or the index of the first NaN,
    and then leaves `ids` as they were.
    """
    cdef Py_ssize_t i, broken, count = ids.shape[0]
    if not 1 <= count <= values.shape[0] < 2**31:
        raise ValueError(f"{count} of {values.shape[0]} values")
    cdef Entry* heap = <Entry*>PyMem_Malloc(count * sizeof(Entry))
    if heap == NULL:
        raise MemoryError()
    with nogil:
        broken = select(&values[0], values.shape[0], heap, count)
    if broken < 0:
        for i in range(count):
            ids[i] = heap[i].id
    PyMem_Free(heap)
    return broken
