"""Every kernel that the processor backend has: one struct of pointers, filled by layers.

A module of an instruction set fills the entries that it improves and leaves the rest NULL;
`dispatch` lays the modules over each other. All kernels take plain pointers, check nothing and
allocate nothing: shapes are checked once, when a program is compiled.

Sums are kept in one order for every instruction set and every number of columns (16 lanes,
fused multiply-add), so a value does not depend on the processor or on the company it keeps.
"""

# The formats that a matrix of weights may have; the index of `Kernels.product`.
cdef enum:
    F32, F16, BF16, W8,
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, W8A8,
    Q2_K, Q3_K, IQ4_NL, IQ4_XS, MXFP4,
    FORMATS


# A matrix [rows, cols] in panels of 16 rows. The last panel is filled up with rows of zeros.
cdef struct Packed:
    const unsigned char* data
    Py_ssize_t rows
    Py_ssize_t cols
    Py_ssize_t panel            # bytes from one panel to the next


# The columns of a pass as a product reads them: floats, codes or `rounded` are set, by format.
cdef struct Columns:
    const float* floats         # [n, stride] float32
    Py_ssize_t stride           # elements from one column to the next, of `floats`
    const signed char* codes    # [n, cols], -127..127: value = code * scale of its 32
    const float* scales         # [n, cols / 32]
    const int* sums             # [n, cols / 32], the sum of each 32 codes
    const int* halves           # [n, cols / 16], the sum of each 16 codes; of W8A8, which has 128
                                # where the others have 32, nothing
    const float* rounded        # [n, even(cols)], as the layer's `round_bf16` writes them


# One sequence's pages of one layer, 32 positions a page, in half precision (or in float32 where
# a recording is compared: the kernels of a type end in its name).
# Keys lie [page, head, dim, 32] (a dimension's 32 positions side by side), values
# [page, head, 32, padded] with `padded` = dim rounded up to 16.
cdef struct View:
    void* keys
    void* values
    const int* table            # page of position p is table[p / 32]
    Py_ssize_t heads            # key and value heads
    Py_ssize_t dim
    Py_ssize_t padded


# out[c * stride + r] = sum_k w[16 * first + r, k] * x[column + c, k], r < 16 * panels, c < columns.
# `scratch` holds 16 * cols floats for the formats that are multiplied as dequantised tiles.
ctypedef void (*Product)(const Packed* w, Py_ssize_t first, Py_ssize_t panels,
                         const Columns* x, Py_ssize_t column, Py_ssize_t columns,
                         float* out, Py_ssize_t stride, float* scratch) noexcept nogil

# Packs panels first..first+panels of a matrix in file layout at `source` to `out` (whole matrix).
ctypedef void (*Pack)(const unsigned char* source, Py_ssize_t rows, Py_ssize_t cols,
                      Py_ssize_t first, Py_ssize_t panels, unsigned char* out) noexcept nogil

# `elements` values in file layout at `source` to float32.
ctypedef void (*Dequantise)(const unsigned char* source, Py_ssize_t elements,
                            float* out) noexcept nogil

# One row of `cols` (a multiple of 32) floats to codes, scales, sums and halves as in Columns.
ctypedef void (*Quantise)(const float* x, Py_ssize_t cols, signed char* codes, float* scales,
                          int* sums, int* halves) noexcept nogil

# `quantise_runs` does the same for W8A8: a scale and a sum for each 128, and no halves.

# One row of `cols` floats as the layer's own product of BF16 reads it, in room for even(cols)
# floats: rounded to bf16, to nearest even; magnitudes below 2^-56 count as zeros.
ctypedef void (*Round)(const float* x, Py_ssize_t cols, float* out) noexcept nogil

# out = x / sqrt(mean(x^2) + eps) * weight; weight may be NULL; out may be x.
ctypedef void (*RmsNorm)(const float* x, const float* weight, Py_ssize_t cols, float eps,
                         float* out) noexcept nogil

# out = (x - mean) / sqrt(variance + eps) * weight + bias; weight and bias may be NULL; out may be x.
ctypedef void (*LayerNorm)(const float* x, const float* weight, const float* bias, Py_ssize_t cols,
                           float eps, float* out) noexcept nogil

# out[i] = act(gate[i]) * up[i]; up may be NULL (then act alone); out may be gate or up.
ctypedef void (*Glu)(const float* gate, const float* up, Py_ssize_t n, float* out) noexcept nogil

# Element by element; out may be a or b.
ctypedef void (*Binary)(const float* a, const float* b, Py_ssize_t n, float* out) noexcept nogil
ctypedef void (*Scalar)(const float* a, float c, Py_ssize_t n, float* out) noexcept nogil

# Rotates one head x[dim] by the angles of its position: pairs (i, i + half) or (2i, 2i + 1),
# i < half; what lies past 2 * half is copied. cos and sin are [half]. out may be x.
ctypedef void (*Rope)(const float* x, const float* cos, const float* sin, Py_ssize_t half,
                      Py_ssize_t dim, float* out) noexcept nogil

# Writes keys and values of `count` successive positions, from `position`, into the page that they
# all lie in, rounded to its type. Each is [count, stride] float32, of which [heads, dim] are read.
ctypedef void (*Store)(const View* view, Py_ssize_t position, Py_ssize_t count, const float* key,
                       Py_ssize_t key_stride, const float* value,
                       Py_ssize_t value_stride) noexcept nogil

# Attention of `rows` successive columns of one sequence, for query heads first..first+count
# that all read key head `head`. q and out are [rows, stride] float32, head h at h * dim.
# Row i stands at positions[i] and sees the positions p with p <= positions[i] and, where
# window > 0, p > positions[i] - window. softcap > 0: scores are cap * tanh(score / cap).
# A row's sums run over its pages in ascending order, whatever rows stand beside it.
ctypedef void (*Attend)(const View* view, Py_ssize_t head, Py_ssize_t first, Py_ssize_t count,
                        const float* q, Py_ssize_t q_stride, const int* positions,
                        Py_ssize_t rows, float scale, float softcap, Py_ssize_t window,
                        float* out, Py_ssize_t out_stride, float* scratch) noexcept nogil

# Attention of rows first..first+rows of a text of `length` rows to that text, for one head: row i
# sees the rows from i - before to i + after. q, k, v and out are [length, stride], the head's `dim`
# at the start of a row. bias, or NULL: bias[j - i] is added to a score. `first` is a multiple of
# WITHIN. `scratch` holds `within_floats` (tape.pyx) of the length.
ctypedef void (*Within)(const float* q, Py_ssize_t q_stride, const float* k, Py_ssize_t k_stride,
                        const float* v, Py_ssize_t v_stride, Py_ssize_t length, Py_ssize_t dim,
                        Py_ssize_t first, Py_ssize_t rows, float scale, Py_ssize_t before,
                        Py_ssize_t after, const float* bias, float* out, Py_ssize_t out_stride,
                        float* scratch) noexcept nogil

# out[i] = a[i] * c + out[i], one rounding.
ctypedef void (*Axpy)(const float* a, float c, Py_ssize_t n, float* out) noexcept nogil

# A causal convolution of `channels` channels by themselves over successive rows of one sequence:
# out[i] = sum over t, ascending, of weight[t] * x[i - taps + 1 + t], where rows before x are those
# of `before` [taps - 1], oldest first. Rows of x, weight, before and out are so many floats apart.
ctypedef void (*Conv)(const float* x, Py_ssize_t x_stride, const float* weight,
                      Py_ssize_t weight_stride, Py_ssize_t taps, Py_ssize_t channels,
                      const float* before, Py_ssize_t before_stride, Py_ssize_t rows,
                      float* out, Py_ssize_t out_stride) noexcept nogil

# The gated delta rule of DELTA_LANES values of one head (`lanes` of them real) over successive
# rows of one sequence: state [dk, DELTA_LANES], zeros where no lane is; row i of q, k, v, decay,
# beta and out at i * its stride. state *= decay; state += k (beta * (v - k'state)); out = q'state.
# Sums over dk run in four interleaved chains.
ctypedef void (*Delta)(float* state, Py_ssize_t dk, Py_ssize_t lanes,
                       const float* q, Py_ssize_t q_stride, const float* k, Py_ssize_t k_stride,
                       const float* v, Py_ssize_t v_stride,
                       const float* decay, Py_ssize_t decay_stride,
                       const float* beta, Py_ssize_t beta_stride, Py_ssize_t rows,
                       float* out, Py_ssize_t out_stride) noexcept nogil


cdef struct Kernels:
    Product product[FORMATS]
    Pack pack[FORMATS]
    Dequantise dequantise[FORMATS]
    Quantise quantise
    Quantise quantise_runs
    Round round_bf16
    RmsNorm rms_norm
    LayerNorm layer_norm
    Glu silu
    Glu gelu_tanh
    Glu gelu_erf
    Glu sigmoid
    Glu elu
    Binary add
    Binary mul
    Scalar scale
    Scalar softcap
    Rope rope_half              # pairs (i, i + half)
    Rope rope_pairs             # pairs (2i, 2i + 1)
    Store store_half
    Store store_float
    Attend attend_half
    Attend attend_float
    Within attend_within
    Axpy axpy
    Conv conv
    Delta delta


# The page length that keys are laid out for, and the floats of scratch that `attend` may use.
cdef enum:
    PAGE = 32
    ATTEND_ROWS = 32            # most rows that a call of `attend` may have
    ATTEND_SCRATCH = 131072     # for heads of at most 512
    WITHIN = 24                 # rows of a text whose scores are worked out together
    DELTA_LANES = 32
