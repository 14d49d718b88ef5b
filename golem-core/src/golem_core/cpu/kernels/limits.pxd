"""Loops that do nothing but meet a limit of the machine; not kernels, for `golem bench` only."""

# Reads `bytes` (a multiple of 512) at `data`; the value is there so that the reading is.
ctypedef int (*Read)(const unsigned char* data, Py_ssize_t bytes) noexcept nogil

# Does `rounds` times the `dots` of a product's largest tile; gives how many products of two bytes
# that were.
ctypedef Py_ssize_t (*Multiply)(Py_ssize_t rounds, int* sum) noexcept nogil


cdef struct Limits:
    Read read
    Multiply multiply
