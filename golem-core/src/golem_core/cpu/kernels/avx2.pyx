"""The kernels for avx2: floats; its products are those of generic."""

include "words_avx2.pxi"
include "floats.pxi"

cdef void fill_products(Kernels* k) noexcept:
    pass

include "export.pxi"
