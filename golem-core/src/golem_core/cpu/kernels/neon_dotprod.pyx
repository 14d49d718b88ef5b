"""The kernels for AArch64 with dot products."""

include "words_neon_dotprod.pxi"
include "dot_neon_dotprod.pxi"
include "floats.pxi"
include "products.pxi"
include "export.pxi"
include "limits.pxi"
