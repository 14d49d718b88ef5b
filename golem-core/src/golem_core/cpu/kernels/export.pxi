# The module's table of kernels, as a capsule that `dispatch` lays over the layers below.

from cpython.pycapsule cimport PyCapsule_New
from libc.string cimport memset

cdef Kernels exported
memset(&exported, 0, sizeof(Kernels))
fill_floats(&exported)
fill_products(&exported)
table = PyCapsule_New(&exported, "golem_core.cpu.kernels.table", NULL)
