# Products of BF16 by vdpbf16ps: of every lane's pair, the second product is added to the sum, then
# the first, each rounded once, as float_products.pxi does it.

from libc.string cimport memcpy, memset

from golem_core.cpu.kernels.layout cimport even
from golem_core.cpu.kernels.table cimport BF16, Columns, Kernels, Packed

include "round.pxi"

cdef extern from *:
    """
    #define ADD_PAIRS(sums, a, b) _mm512_dpbf16_ps(sums, (__m512bh)(a), (__m512bh)(b))
    """
    __m512 ADD_PAIRS(__m512, __m512i, __m512i) nogil
    void __builtin_prefetch(const void*, int, int) nogil

# Tiles: two panels times up to twelve columns leave 24 of 32 registers to sums. NEAR: bytes of
# weights that many columns are multiplied with before the next are looked at.
cdef enum:
    PAIRS_WIDEST = 12
    NEAR = 16384


cdef void round_pairs(const float* x, Py_ssize_t cols, float* out) noexcept nogil:
    """A `Round`: bf16 beside bf16, in the first half of the room."""
    cdef unsigned short* halves = <unsigned short*>out
    cdef unsigned int word
    cdef Py_ssize_t i
    for i in range(cols):
        memcpy(&word, x + i, 4)
        halves[i] = <unsigned short>(rounded_bf16(word) >> 16)
    if cols & 1:
        halves[cols] = 0


cdef inline void pair_tile(int R, int N, const unsigned char* w, Py_ssize_t panel, Py_ssize_t steps,
                           bint begins, const int* x, Py_ssize_t x_stride, float* out,
                           Py_ssize_t stride) noexcept nogil:
    """R panels at w times N columns at x, or what so many pairs add to what is in `out`.

    Addresses of three columns each come from one pointer, as in float_products.pxi.
    """
    cdef f32x16[2 * PAIRS_WIDEST] values
    cdef const int* at[4]  # of columns 0, 3, 6 and 9
    cdef __m512i w0, w1, s
    cdef const unsigned char* other = w + panel if R == 2 else w
    cdef Py_ssize_t k
    cdef int n
    for n in range((N + 2) // 3):
        at[n] = x + 3 * n * x_stride
    for n in range(N):
        values[n] = zero() if begins else load(out + n * stride)
        if R == 2:
            values[n + PAIRS_WIDEST] = zero() if begins else load(out + n * stride + 16)
    for k in range(steps):
        if N <= 4:
            __builtin_prefetch(w + AHEAD, 0, 3)
            if R == 2:
                __builtin_prefetch(other + AHEAD, 0, 3)
        w0 = _mm512_loadu_si512(w)
        if R == 2:
            w1 = _mm512_loadu_si512(other)
        for n in range(N):
            s = _mm512_set1_epi32(at[n // 3][n % 3 * x_stride])
            values[n] = ADD_PAIRS(values[n], w0, s)
            if R == 2:
                values[n + PAIRS_WIDEST] = ADD_PAIRS(values[n + PAIRS_WIDEST], w1, s)
        for n in range((N + 2) // 3):
            at[n] += 1
        w += 64
        other += 64
    for n in range(N):
        store(out + n * stride, values[n])
        if R == 2:
            store(out + n * stride + 16, values[n + PAIRS_WIDEST])


cdef inline void pair_columns(int R, const unsigned char* w, Py_ssize_t panel, Py_ssize_t steps,
                              bint begins, const int* x, Py_ssize_t x_stride, Py_ssize_t columns,
                              float* out, Py_ssize_t stride) noexcept nogil:
    """R panels times all columns, in tiles as wide as they come."""
    while columns >= PAIRS_WIDEST:
        pair_tile(R, PAIRS_WIDEST, w, panel, steps, begins, x, x_stride, out, stride)
        columns -= PAIRS_WIDEST
        x += PAIRS_WIDEST * x_stride
        out += PAIRS_WIDEST * stride
    while columns >= 4:
        pair_tile(R, 4, w, panel, steps, begins, x, x_stride, out, stride)
        columns -= 4
        x += 4 * x_stride
        out += 4 * stride
    if columns == 3:
        pair_tile(R, 3, w, panel, steps, begins, x, x_stride, out, stride)
    elif columns == 2:
        pair_tile(R, 2, w, panel, steps, begins, x, x_stride, out, stride)
    elif columns == 1:
        pair_tile(R, 1, w, panel, steps, begins, x, x_stride, out, stride)


cdef inline void pair_rows(int R, const unsigned char* w, Py_ssize_t panel, Py_ssize_t pairs,
                           const int* x, Py_ssize_t x_stride, Py_ssize_t columns, float* out,
                           Py_ssize_t stride) noexcept nogil:
    """R panels times all columns; of many, as many pairs at a time as the nearest cache holds."""
    cdef Py_ssize_t done = 0, some = pairs
    if columns > PAIRS_WIDEST:
        some = NEAR // (R * 64)
    while done < pairs:
        some = some if some < pairs - done else pairs - done
        pair_columns(R, w + 64 * done, panel, some, done == 0, x + done, x_stride, columns, out,
                     stride)
        done += some


cdef void product_pairs(const Packed* w, Py_ssize_t first, Py_ssize_t panels, const Columns* x,
                        Py_ssize_t column, Py_ssize_t columns, float* out, Py_ssize_t stride,
                        float* scratch) noexcept nogil:
    cdef const unsigned char* data = w.data + first * w.panel
    cdef Py_ssize_t p = 0, cols = even(w.cols)
    cdef const int* at = <const int*>(x.rounded + column * cols)
    while p + 2 <= panels:
        pair_rows(2, data + p * w.panel, w.panel, cols >> 1, at, cols, columns, out + 16 * p,
                  stride)
        p += 2
    if p < panels:
        pair_rows(1, data + p * w.panel, w.panel, cols >> 1, at, cols, columns, out + 16 * p,
                  stride)


cdef void fill_pairs(Kernels* k) noexcept:
    k.round_bf16 = round_pairs
    k.product[BF16] = product_pairs
