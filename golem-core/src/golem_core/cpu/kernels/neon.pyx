"""The kernels for AArch64."""

include "words_neon.pxi"
include "dot_neon.pxi"
include "floats.pxi"
include "products.pxi"
include "export.pxi"
include "limits.pxi"
