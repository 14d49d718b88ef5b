"""The kernels for generic."""

include "words_generic.pxi"
include "dot_generic.pxi"
include "floats.pxi"
include "products.pxi"
include "export.pxi"
