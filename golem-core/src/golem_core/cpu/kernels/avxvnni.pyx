"""The kernels for AVX-VNNI: those of AVX2 with other dot products."""

include "words_avx2.pxi"
include "dot_avxvnni.pxi"
include "floats.pxi"
include "products.pxi"
include "export.pxi"
include "limits.pxi"
