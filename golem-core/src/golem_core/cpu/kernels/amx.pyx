"""The kernels for AMX: integer products with many columns, laid over avx512vnni."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.string cimport memcpy, memset

from golem_core.cpu.kernels import avx512vnni
from golem_core.cpu.kernels.layout cimport (
    block_bytes, block_elements, code_bits, code_bytes, group_bytes, group_shift, grouped, offset,
    panel_bytes, scale_bytes)
from golem_core.cpu.kernels.table cimport (
    Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, W8, W8A8, Columns, Kernels, Packed)

include "words_avx512vnni.pxi"
include "dot_avx512vnni.pxi"
include "words_amx.pxi"
include "integers.pxi"

cdef const Kernels* below = <const Kernels*> PyCapsule_GetPointer(
    avx512vnni.table, "golem_core.cpu.kernels.table")

include "tiles.pxi"


cdef void product_q4_0(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    many(Q4_0, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_q4_1(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    many(Q4_1, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_q5_0(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    many(Q5_0, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_q5_1(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    many(Q5_1, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_q8_0(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    many(Q8_0, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_q4_k(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    many(Q4_K, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_q5_k(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    many(Q5_K, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_q6_k(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    many(Q6_K, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_w8a8(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    many(W8A8, w, first, panels, x, column, columns, out, stride, scratch)


cdef Py_ssize_t limit_tiles(Py_ssize_t rounds, int* sum) noexcept nogil:
    """As `limit_multiply`, by tile products: four, so that none waits for another."""
    cdef signed char[1024] codes
    cdef int[256] sums
    cdef Py_ssize_t r
    memset(codes, sum[0], sizeof(codes))
    configure(MOST, False)
    written(codes)
    _tile_loadd(4, codes, 32)
    _tile_loadd(6, codes, 64)
    _tile_loadd(7, codes + 512, 64)
    _tile_zero(0)
    _tile_zero(1)
    _tile_zero(2)
    _tile_zero(3)
    for r in range(rounds):
        _tile_dpbssd(0, 4, 6)
        _tile_dpbssd(1, 4, 7)
        _tile_dpbssd(2, 4, 6)
        _tile_dpbssd(3, 4, 7)
    _tile_stored(0, sums, 64)
    _tile_release()
    sum[0] = sums[0]
    return rounds * 4 * MOST * 16 * 32


cdef Kernels exported
memset(&exported, 0, sizeof(Kernels))
exported.product[Q4_0] = product_q4_0
exported.product[Q4_1] = product_q4_1
exported.product[Q5_0] = product_q5_0
exported.product[Q5_1] = product_q5_1
exported.product[Q8_0] = product_q8_0
exported.product[Q4_K] = product_q4_k
exported.product[Q5_K] = product_q5_k
exported.product[Q6_K] = product_q6_k
exported.product[W8A8] = product_w8a8
table = PyCapsule_New(&exported, "golem_core.cpu.kernels.table", NULL)

include "limits.pxi"

exported_limits.multiply = limit_tiles
