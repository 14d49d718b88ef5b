# Packing and dequantising, in plain C: the generic module has them for every processor.

include "pack.pxi"
include "dequantise.pxi"


cdef void fill_storage(Kernels* k) noexcept:
    k.pack[F32] = pack_f32
    k.dequantise[F32] = dequantise_f32
    k.pack[F16] = pack_f16
    k.dequantise[F16] = dequantise_f16
    k.pack[BF16] = pack_bf16
    k.dequantise[BF16] = dequantise_bf16
    k.pack[W8] = pack_w8
    k.dequantise[W8] = dequantise_w8
    k.pack[W8A8] = pack_w8a8
    k.dequantise[W8A8] = dequantise_w8a8
    k.pack[Q4_0] = pack_q4_0
    k.dequantise[Q4_0] = dequantise_q4_0
    k.pack[Q4_1] = pack_q4_1
    k.dequantise[Q4_1] = dequantise_q4_1
    k.pack[Q5_0] = pack_q5_0
    k.dequantise[Q5_0] = dequantise_q5_0
    k.pack[Q5_1] = pack_q5_1
    k.dequantise[Q5_1] = dequantise_q5_1
    k.pack[Q8_0] = pack_q8_0
    k.dequantise[Q8_0] = dequantise_q8_0
    k.pack[Q4_K] = pack_q4_k
    k.dequantise[Q4_K] = dequantise_q4_k
    k.pack[Q5_K] = pack_q5_k
    k.dequantise[Q5_K] = dequantise_q5_k
    k.pack[Q6_K] = pack_q6_k
    k.dequantise[Q6_K] = dequantise_q6_k
    k.pack[Q2_K] = pack_q2_k
    k.dequantise[Q2_K] = dequantise_q2_k
    k.pack[Q3_K] = pack_q3_k
    k.dequantise[Q3_K] = dequantise_q3_k
    k.pack[IQ4_NL] = pack_iq4_nl
    k.dequantise[IQ4_NL] = dequantise_iq4_nl
    k.pack[IQ4_XS] = pack_iq4_xs
    k.dequantise[IQ4_XS] = dequantise_iq4_xs
    k.pack[MXFP4] = pack_mxfp4
    k.dequantise[MXFP4] = dequantise_mxfp4
