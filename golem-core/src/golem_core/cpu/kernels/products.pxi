# Products of matrices with columns, for every format.

from libc.string cimport memcpy, memset

from golem_core.cpu.kernels.layout cimport (
    block_bytes, block_elements, code_bits, code_bytes, even, group_bytes, group_shift, grouped,
    offset, panel_bytes, scale_bytes)
from golem_core.cpu.kernels.table cimport (
    BF16, F16, F32, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K,
    Q8_0, W8, W8A8, WITHIN, Columns, Kernels, Packed)

include "formats.pxi"
include "integers.pxi"
include "float_products.pxi"
include "tiled.pxi"
include "kept_bytes.pxi"
include "within.pxi"


cdef void product_f32(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    floats(F32, w, first, panels, x, column, columns, out, stride)


cdef void product_f16(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    floats(F16, w, first, panels, x, column, columns, out, stride)


cdef void product_bf16(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    floats(BF16, w, first, panels, x, column, columns, out, stride)


cdef void product_q4_0(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    integers(Q4_0, w, first, panels, x, column, columns, out, stride)


cdef void product_q4_1(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    integers(Q4_1, w, first, panels, x, column, columns, out, stride)


cdef void product_q5_0(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    integers(Q5_0, w, first, panels, x, column, columns, out, stride)


cdef void product_q5_1(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    integers(Q5_1, w, first, panels, x, column, columns, out, stride)


cdef void product_q8_0(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    integers(Q8_0, w, first, panels, x, column, columns, out, stride)


cdef void product_q4_k(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    integers(Q4_K, w, first, panels, x, column, columns, out, stride)


cdef void product_q5_k(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    integers(Q5_K, w, first, panels, x, column, columns, out, stride)


cdef void product_q6_k(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    integers(Q6_K, w, first, panels, x, column, columns, out, stride)


cdef void product_q2_k(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    tiled(Q2_K, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_q3_k(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    tiled(Q3_K, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_iq4_nl(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    tiled(IQ4_NL, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_iq4_xs(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    tiled(IQ4_XS, w, first, panels, x, column, columns, out, stride, scratch)


cdef void product_mxfp4(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                  Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                  float* scratch) noexcept nogil:
    tiled(MXFP4, w, first, panels, x, column, columns, out, stride, scratch)


cdef void fill_products(Kernels* k) noexcept:
    k.attend_within = attend_within
    k.round_bf16 = round_bf16
    k.product[F32] = product_f32
    k.product[F16] = product_f16
    k.product[BF16] = product_bf16
    k.product[W8] = product_w8
    k.product[W8A8] = product_w8a8
    k.product[Q4_0] = product_q4_0
    k.product[Q4_1] = product_q4_1
    k.product[Q5_0] = product_q5_0
    k.product[Q5_1] = product_q5_1
    k.product[Q8_0] = product_q8_0
    k.product[Q4_K] = product_q4_k
    k.product[Q5_K] = product_q5_k
    k.product[Q6_K] = product_q6_k
    k.product[Q2_K] = product_q2_k
    k.product[Q3_K] = product_q3_k
    k.product[IQ4_NL] = product_iq4_nl
    k.product[IQ4_XS] = product_iq4_xs
    k.product[MXFP4] = product_mxfp4
