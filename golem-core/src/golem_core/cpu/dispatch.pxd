"""The table of kernels that this process runs."""

from golem_core.cpu.kernels.table cimport Kernels

cdef const Kernels* kernels() noexcept nogil
cdef Py_ssize_t columns_at_once(Py_ssize_t cols) noexcept nogil

cdef enum:
    TILE_COLUMNS = 128      # most columns of a tile of a product
