# The kernels over floats, written once over the words of an instruction set.

from golem_core.cpu.kernels.table cimport PAGE, Kernels, View

from libc.math cimport INFINITY, NAN, sqrtf
from libc.string cimport memcpy, memset

cdef float[16] ALTERNATING = [-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1]
cdef float[32] SLOTS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                        16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]


cdef inline Py_ssize_t least(Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    return a if a < b else b


cdef inline Py_ssize_t most(Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    return a if a > b else b


include "math.pxi"
include "norm.pxi"
include "elementwise.pxi"
include "rope.pxi"
include "quantise.pxi"
include "cache.pxi"
include "attend.pxi"
include "recurrent.pxi"


cdef void fill_floats(Kernels* k) noexcept:
    k.quantise = quantise
    k.quantise_runs = quantise_runs
    k.rms_norm = rms_norm
    k.layer_norm = layer_norm
    k.silu = silu
    k.gelu_tanh = gelu_tanh
    k.gelu_erf = gelu_erf
    k.sigmoid = sigmoid
    k.elu = elu
    k.add = add_floats
    k.mul = mul_floats
    k.scale = scale_floats
    k.softcap = softcap_floats
    k.rope_half = rope_half
    k.rope_pairs = rope_pairs
    k.store_half = store_positions_half
    k.store_float = store_positions_float
    k.attend_half = attend_half
    k.attend_float = attend_float
    k.axpy = axpy_floats
    k.conv = conv
    k.delta = delta
