"""The kernels for neon_dotprod."""

include "words_neon_dotprod.pxi"
include "dot_neon_dotprod.pxi"
include "floats.pxi"
include "products.pxi"
include "export.pxi"
