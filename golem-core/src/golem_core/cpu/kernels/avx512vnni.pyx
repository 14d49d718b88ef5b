"""The kernels for avx512vnni."""

include "words_avx512vnni.pxi"
include "dot_avx512vnni.pxi"
include "floats.pxi"
include "products.pxi"
include "export.pxi"
include "limits.pxi"
