"""The products of BF16 for AVX512-BF16: two columns of 16 rows in an instruction."""

include "words_avx512vnni.pxi"
include "dot_avx512vnni.pxi"
include "pair_products.pxi"
include "limits.pxi"

from cpython.pycapsule cimport PyCapsule_New

cdef Kernels exported
memset(&exported, 0, sizeof(Kernels))
fill_pairs(&exported)
table = PyCapsule_New(&exported, "golem_core.cpu.kernels.table", NULL)
