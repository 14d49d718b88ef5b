"""The kernels for any processor, in plain C, and what no instruction set improves."""

include "words_generic.pxi"
include "dot_generic.pxi"
include "floats.pxi"
include "products.pxi"
include "storage.pxi"
include "export.pxi"
include "limits.pxi"

fill_storage(&exported)
