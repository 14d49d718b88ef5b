"""The kernels for AVX2."""

include "words_avx2.pxi"
include "dot_avx2.pxi"
include "floats.pxi"
include "products.pxi"
include "export.pxi"
include "limits.pxi"
