"""The kernels for neon: floats; its products are those of generic."""

include "words_neon.pxi"
include "floats.pxi"

cdef void fill_products(Kernels* k) noexcept:
    pass

include "export.pxi"
