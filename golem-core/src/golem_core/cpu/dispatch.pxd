"""The table of kernels that this process runs."""

from golem_core.cpu.kernels.table cimport Kernels

cdef const Kernels* kernels() noexcept nogil
