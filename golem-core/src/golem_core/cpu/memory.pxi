# Memory of whole pages from the kernel, and the matrices on their way into it: included by tape.pyx.

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void*, size_t, int, int, int, long)
    int munmap(void*, size_t)
    int madvise(void*, size_t, int)
    const int PROT_READ
    const int PROT_WRITE
    const int MAP_PRIVATE
    const int MAP_SHARED
    const int MAP_FIXED
    const int MAP_ANONYMOUS
    const int MADV_HUGEPAGE
    const int MADV_WILLNEED
    void* const MAP_FAILED

cdef enum:
    HUGE = 2 * 1024 * 1024
    ENTERED = 64 * 1024         # bytes of a file that are entered at once
    MADV_POPULATE_READ = 22     # since Linux 5.14; the headers of older systems lack it


cdef void* reserve(size_t nbytes) except NULL:
    """Zeroed memory of whole huge pages, which the kernel gives when they are touched."""
    cdef size_t size = (nbytes + HUGE - 1) // HUGE * HUGE
    cdef void* memory = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    cdef size_t start, front
    if memory == MAP_FAILED:
        raise MemoryError(f"no {nbytes} bytes of memory")
    start = <size_t>memory
    front = (HUGE - start % HUGE) % HUGE
    if front:
        munmap(memory, front)
    if HUGE - front:
        munmap(<void*>(start + front + size), HUGE - front)
    return <void*>(start + front)


cdef int lay_file(void* memory, int descriptor, long offset, size_t nbytes,
                  bint writable) except -1:
    """Puts a file's pages from `offset` on where reserved memory was."""
    cdef int rights = PROT_READ | PROT_WRITE if writable else PROT_READ
    if mmap(memory, nbytes, rights, MAP_SHARED | MAP_FIXED, descriptor, offset) == MAP_FAILED:
        raise MemoryError(f"{nbytes} bytes of packed weights cannot be mapped")
    return 0


cdef void release(void* memory, size_t nbytes) noexcept:
    if memory != NULL:
        munmap(memory, (nbytes + HUGE - 1) // HUGE * HUGE)


cdef struct Packing:
    # One matrix on its way into panels.
    Pack pack
    const unsigned char* source
    Py_ssize_t rows
    Py_ssize_t cols
    unsigned char* out
    Py_ssize_t panels
    atomic_int next


cdef void pack_some(void* argument, int worker, int workers) noexcept nogil:
    cdef Packing* job = <Packing*>argument
    cdef Py_ssize_t first, count
    while True:
        first = 8 * atomic_fetch_add_explicit(&job.next, 1, memory_order_relaxed)
        if first >= job.panels:
            return
        count = min(8, job.panels - first)
        job.pack(job.source, job.rows, job.cols, first, count, job.out)
