"""The pool of workers that walks a program."""

# What every worker runs: `worker` counts from 0 (the caller) to workers - 1.
ctypedef void (*Walk)(void* argument, int worker, int workers) noexcept nogil

cdef struct Shared

cdef class Pool:
    cdef object __weakref__
    cdef Shared* shared
    cdef readonly int workers
    cdef void run(self, Walk walk, void* argument) noexcept nogil

# Returns when every worker of the pool has come here.
cdef void barrier(Shared* shared) noexcept nogil

# The same in two steps: `arrive` is true for the last worker that comes, who does what one worker
# alone should do and then lets the others go with `proceed`.
cdef bint arrive(Shared* shared) noexcept nogil
cdef void proceed(Shared* shared) noexcept nogil
