"""The kernels for neon with the dot product: floats; its products are those of generic."""

include "words_neon_dotprod.pxi"
include "floats.pxi"

cdef void fill_products(Kernels* k) noexcept:
    pass

include "export.pxi"
