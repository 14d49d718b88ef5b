"""Prints what every kernel of a layer computes over seeded inputs: a name and a sum a line.

A program without Python, which `tools/arm.py` links with a machine's layers and runs: its argument
says how many of them to lay over each other. The module is never initialised, so nothing here
may be set outside a function.
"""

from libc.math cimport ldexpf
from libc.stdio cimport _IOLBF, printf, setvbuf, stdout
from libc.stdlib cimport atoi
from libc.string cimport memset

from golem_core.cpu.kernels.layout cimport block_bytes, block_elements, even, panel_bytes
from golem_core.cpu.kernels.table cimport (
    ATTEND_ROWS, ATTEND_SCRATCH, BF16, DELTA_LANES, F16, F32, FORMATS, MXFP4, Q2_K, Q3_K, Q4_1, Q4_K,
    Q5_1, Q5_K, Q6_K, W8A8, Columns, Kernels, Packed, View)

cdef extern from *:
    """
    extern void (*const lay[])(void*);  /* a machine's layers, lowest first */
    #define ALIGNED __attribute__((aligned(64)))
    static unsigned char ALIGNED stored[1 << 18], ALIGNED packed[1 << 18];
    """
    void (*lay[5])(void*) noexcept nogil
    unsigned char stored[1 << 18]
    unsigned char packed[1 << 18]

cdef enum:
    SINGLES = 24                # the kernels that are not one a format
    COLUMNS = 14
    COLS = 768
    PLACES = 1 << 18
    PAGED = 100                 # positions that are kept before an attention

cdef unsigned long long state
cdef float[PLACES] a, b, c, out
cdef float[ATTEND_SCRATCH] scratch
cdef float[PLACES] float_keys, float_values
cdef unsigned short[PLACES] half_keys, half_values
cdef signed char[COLUMNS * COLS] codes
cdef float[COLUMNS * COLS] scales
cdef int[COLUMNS * COLS] sums, halves
cdef float[COLUMNS * COLS] rounded


cdef unsigned int word() noexcept nogil:
    global state
    state = state * 6364136223846793005ULL + 1442695040888963407ULL
    return state >> 32


cdef float number() noexcept nogil:
    """About normal, the same everywhere: sums of few bits are exact."""
    cdef int i, total = 0
    for i in range(4):
        total += <int>(word() >> 12) - (1 << 19)
    return <float>total * <float>9.5367431640625e-07


cdef void draw(float* p, Py_ssize_t n, float scale) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        p[i] = number() * scale


cdef void say(const char* kernel, const char* of, Py_ssize_t i, Py_ssize_t j, const void* p,
              Py_ssize_t size) noexcept nogil:
    """The FNV-1a sum of what a kernel wrote, or that it wrote nothing but zeros."""
    cdef const unsigned char* byte = <const unsigned char*> p
    cdef unsigned long long total = 0xcbf29ce484222325ULL
    cdef Py_ssize_t k
    cdef bint something = False
    for k in range(size):
        total = (total ^ byte[k]) * 0x100000001b3ULL
        something |= byte[k] != 0
    if something:
        printf(b"%s%s %zd %zd %016llx\n", kernel, of, i, j, total)
    else:
        printf(b"%s%s %zd %zd zeros\n", kernel, of, i, j)


cdef void say_out(const char* kernel, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    say(kernel, b"", i, j, out, sizeof(out) >> 3)
    memset(out, 0, sizeof(out))


# --- products, packing, dequantising ----------------------------------------------------------

ctypedef const char* Label


cdef Label label(int format) noexcept nogil:
    cdef Label[FORMATS] labels
    labels[:] = [
        b"[F32]", b"[F16]", b"[BF16]", b"[W8]", b"[Q4_0]", b"[Q4_1]", b"[Q5_0]", b"[Q5_1]",
        b"[Q8_0]", b"[Q4_K]", b"[Q5_K]", b"[Q6_K]", b"[W8A8]", b"[Q2_K]", b"[Q3_K]", b"[IQ4_NL]",
        b"[IQ4_XS]", b"[MXFP4]",
    ]
    return labels[format]


cdef void put_half(unsigned char* p) noexcept nogil:
    """A finite half below 1, of either sign."""
    cdef unsigned int h = word() & 0x83ff | (6 + (word() & 7)) << 10
    p[0] = h & 255
    p[1] = h >> 8


cdef void draw_matrix(int format, Py_ssize_t elements) noexcept nogil:
    """Random blocks as a file has them, with finite scales."""
    cdef Py_ssize_t size = block_bytes(format), i, at
    cdef Py_ssize_t count = elements // block_elements(format)
    cdef unsigned char* block
    cdef int scale = 208 if format == Q6_K else 80 if format == Q2_K else 0
    if format == Q3_K:
        scale = 108
    for i in range(count):
        block = stored + i * size
        for at in range(size):
            block[at] = word() & 255
        if format == F32:
            (<float*> block)[0] = number()
        elif format == BF16:
            block[1] = block[1] & 0x80 | 0x3f  # of either sign, 0.5 to 2 or less
        elif format == MXFP4:
            block[0] = 110 + word() % 20
        else:
            put_half(block + scale)
        if format == Q4_1 or format == Q5_1 or format == Q4_K or format == Q5_K or format == Q2_K:
            put_half(block + scale + 2)


cdef void draw_columns(Columns* x, Py_ssize_t cols, int run) noexcept nogil:
    cdef Py_ssize_t i
    memset(sums, 0, sizeof(sums))
    memset(halves, 0, sizeof(halves))
    draw(a, COLUMNS * cols, 1)
    for i in range(COLUMNS * cols):
        codes[i] = <int>(word() % 255) - 127
        sums[i // run] += codes[i]
        halves[i // (run >> 1)] += codes[i]
        scales[i // run] = number()
    x.floats, x.stride = a, cols
    x.codes, x.scales, x.sums, x.halves, x.rounded = codes, scales, sums, halves, rounded


cdef void run_format(const Kernels* k, int format, Py_ssize_t rows, Py_ssize_t cols) noexcept nogil:
    cdef Packed w
    cdef Columns x
    cdef Py_ssize_t panels = (rows + 15) // 16, size = panel_bytes(format, cols), n
    draw_matrix(format, rows * cols)
    draw_columns(&x, cols, 128 if format == W8A8 else 32)
    for n in range(COLUMNS):
        k.round_bf16(a + n * cols, cols, rounded + n * even(cols))
    k.dequantise[format](stored, rows * cols, out)
    say(b"dequantise", label(format), rows, cols, out, 4 * rows * cols)
    memset(packed, 0, sizeof(packed))
    k.pack[format](stored, rows, cols, 0, panels, packed)
    say(b"pack", label(format), rows, cols, packed, panels * size)
    w.data, w.rows, w.cols, w.panel = packed, rows, cols, size
    for n in range(1, COLUMNS + 1):
        memset(out, 0, sizeof(out))
        k.product[format](&w, 0, panels, &x, COLUMNS - n, n, out, 16 * panels, scratch)
        say(b"product", label(format), cols, n, out, 4 * n * 16 * panels)


cdef void run_products(const Kernels* k) noexcept nogil:
    cdef int format
    for format in range(FORMATS):
        run_format(k, format, 40, 256)
        run_format(k, format, 16, COLS)
        if block_elements(format) <= 32:
            run_format(k, format, 24, 96)  # an odd number of blocks
        if block_elements(format) == 1:
            run_format(k, format, 24, 77)  # and of columns


# --- floats -----------------------------------------------------------------------------------

cdef void run_element(const Kernels* k, Py_ssize_t n, Py_ssize_t case) noexcept nogil:
    k.silu(a, b, n, out)
    say_out(b"silu", n, case)
    k.silu(a, NULL, n, out)
    say_out(b"silu", n, case + 1)
    k.gelu_tanh(a, b, n, out)
    say_out(b"gelu_tanh", n, case)
    k.gelu_erf(a, b, n, out)
    say_out(b"gelu_erf", n, case)
    k.sigmoid(a, b, n, out)
    say_out(b"sigmoid", n, case)
    k.elu(a, b, n, out)
    say_out(b"elu", n, case)
    k.elu(a, NULL, n, out)
    say_out(b"elu", n, case + 1)
    draw(out, n, 1)
    k.axpy(a, <float>1.3, n, out)
    say_out(b"axpy", n, case)
    k.add(a, b, n, out)
    say_out(b"add", n, case)
    k.mul(a, b, n, out)
    say_out(b"mul", n, case)
    k.scale(a, <float>1.3, n, out)
    say_out(b"scale", n, case)
    k.softcap(a, <float>1.5, n, out)
    say_out(b"softcap", n, case)
    k.rms_norm(a, b, n, <float>1e-5, out)
    say_out(b"rms_norm", n, case)
    k.rms_norm(a, NULL, n, <float>1e-5, out)
    say_out(b"rms_norm", n, case + 1)
    k.layer_norm(a, b, a, n, <float>1e-5, out)
    say_out(b"layer_norm", n, case)
    if n > 1:  # of one number the norm is 0, as is what no kernel wrote
        k.layer_norm(a, NULL, NULL, n, <float>1e-5, out)
        say_out(b"layer_norm", n, case + 1)


cdef void run_elements(const Kernels* k) noexcept nogil:
    cdef Py_ssize_t[10] lengths
    cdef Py_ssize_t n, i
    lengths[:] = [1, 7, 16, 17, 33, 50, 64, 100, 577, 1024]
    for n in lengths:
        draw(a, n, 4)
        draw(b, n, 2)
        run_element(k, n, 0)
    draw(b, 4096, 2)
    for i in range(4096):  # where exp and tanh begin and end
        a[i] = <float>(i - 2048) * <float>0.048828125
    run_element(k, 4096, 2)


cdef void run_ropes(const Kernels* k) noexcept nogil:
    cdef Py_ssize_t half
    for half in range(1, 40, 3):
        draw(a, 2 * half + 3, 2)
        draw(b, half, 1)
        draw(c, half, 1)
        k.rope_half(a, b, c, half, 2 * half + 3, out)
        say_out(b"rope_half", half, 0)
        k.rope_pairs(a, b, c, half, 2 * half + 3, out)
        say_out(b"rope_pairs", half, 0)


cdef void run_quantise(const Kernels* k) noexcept nogil:
    cdef int exponent, i
    for exponent in range(-110, 60, 13):
        for i in range(512):
            a[i] = ldexpf(number(), exponent)
        k.quantise(a, 512, codes, scales, sums, halves)
        say(b"quantise", b"", exponent, 0, codes, 512)
        say(b"quantise", b"", exponent, 1, scales, 4 * 16)
        say(b"quantise", b"", exponent, 2, sums, 4 * 16)
        say(b"quantise", b"", exponent, 3, halves, 4 * 32)
        k.quantise_runs(a, 512, codes, scales, sums, NULL)
        say(b"quantise_runs", b"", exponent, 0, codes, 512)
        say(b"quantise_runs", b"", exponent, 1, scales, 4 * 4)
        say(b"quantise_runs", b"", exponent, 2, sums, 4 * 4)


cdef void keep(const Kernels* k, const View* half, const View* wide) noexcept nogil:
    """Stores positions, into pages that hold NaN wherever nothing was stored."""
    cdef Py_ssize_t p, some, dim = half.dim
    memset(half_keys, 0xff, sizeof(half_keys))
    memset(half_values, 0xff, sizeof(half_values))
    memset(float_keys, 0xff, sizeof(float_keys))
    memset(float_values, 0xff, sizeof(float_values))
    for p in range(PAGED):
        draw(a, 2 * dim, 1 + p % 5)
        draw(b, 2 * dim, 1)
        b[3] = ldexpf(b[3], p - 60)  # from what no half holds, over those without a leading one
        k.store_half(half, p, 1, a, 0, b, 0)
        k.store_float(wide, p, 1, a, 0, b, 0)
    draw(a, 8 * dim, 1)
    for p in range(2, PAGED - 2, 5):
        some = 3 if p % 32 < 30 else 1
        k.store_half(half, p, some, a, dim, a + dim, 2 * dim)
        k.store_float(wide, p, some, a, dim, a + dim, 2 * dim)
    say(b"store_half", b"", dim, 0, half_keys, sizeof(half_keys))
    say(b"store_half", b"", dim, 1, half_values, sizeof(half_values))
    say(b"store_float", b"", dim, 0, float_keys, sizeof(float_keys))
    say(b"store_float", b"", dim, 1, float_values, sizeof(float_values))


cdef void run_attention(const Kernels* k, Py_ssize_t dim, Py_ssize_t count) noexcept nogil:
    cdef int[4] table
    cdef int[ATTEND_ROWS] positions
    cdef Py_ssize_t[3] windows, heights
    cdef Py_ssize_t window, rows, stride = 2 * count * dim, case = 0
    cdef float cap
    cdef int i, capped
    cdef View half, wide
    table[:] = [3, 2, 0, 1]
    windows[:] = [0, 7, 50]
    heights[:] = [1, 5, ATTEND_ROWS]
    half.keys, half.values, half.table = half_keys, half_values, table
    half.heads, half.dim, half.padded = 2, dim, (dim + 15) // 16 * 16
    wide = half
    wide.keys, wide.values = float_keys, float_values
    keep(k, &half, &wide)
    for window in windows:
        for rows in heights:
            for capped in range(2):
                cap = 5 * capped
                for i in range(rows):
                    positions[i] = PAGED - rows + i - (60 if window == 50 else 0)
                draw(a, rows * stride, 1)
                k.attend_half(&half, 1, count, count, a, stride, positions, rows, <float>0.1, cap,
                              window, out, stride, scratch)
                say_out(b"attend_half", dim, case)
                k.attend_float(&wide, 1, count, count, a, stride, positions, rows, <float>0.1, cap,
                               window, out, stride, scratch)
                say_out(b"attend_float", dim, case)
                case += 1


cdef void run_within(const Kernels* k, Py_ssize_t dim) noexcept nogil:
    """Rows 3 to 33 of a text of 45, that see all of it, or some positions around them."""
    cdef Py_ssize_t reach
    draw(a, 45 * dim, 1)
    draw(b, 45 * dim, 1)
    draw(c, 45 * dim, 1)
    draw(rounded, 128, 1)
    for reach in range(5, 60, 20):
        k.attend_within(a, dim, b, dim, c, dim, 45, dim, 3, 30, <float>0.2, reach, reach // 2, NULL,
                        out, dim, scratch)
        say_out(b"attend_within", dim, reach)
        k.attend_within(a, dim, b, dim, c, dim, 45, dim, 3, 30, <float>0.2, reach, reach,
                        rounded + 64, out, dim, scratch)
        say_out(b"attend_within", dim, reach + 1)


cdef void run_convs(const Kernels* k) noexcept nogil:
    cdef Py_ssize_t channels, rows
    for channels in range(1, 70, 11):
        for rows in range(1, 7, 2):
            draw(a, rows * (channels + 3), 2)
            draw(b, 4 * channels, 1)
            draw(c, 3 * channels, 1)
            k.conv(a, channels + 3, b, channels, 4, channels, c, channels, rows, out, channels + 1)
            say_out(b"conv", channels, rows)


cdef void run_deltas(const Kernels* k) noexcept nogil:
    """Rows of q, k, v, decay and beta lie in `a`, one after the other; the state is `b`."""
    cdef Py_ssize_t dk, lanes, rows = 5, i, stride
    for dk in range(1, 40, 9):
        for lanes in range(1, DELTA_LANES + 1):
            stride = 2 * dk + lanes + 2
            draw(a, rows * stride, <float>0.5)
            draw(b, dk * DELTA_LANES, 1)
            for i in range(dk * DELTA_LANES):
                if i % DELTA_LANES >= lanes:
                    b[i] = 0
            k.delta(b, dk, lanes, a, stride, a + dk, stride, a + 2 * dk, stride,
                    a + 2 * dk + lanes, stride, a + 2 * dk + lanes + 1, stride, rows, out, lanes)
            say(b"delta", b"", dk, lanes, b, 4 * dk * DELTA_LANES)
            say_out(b"delta", dk, lanes)


cdef void run_floats(const Kernels* k) noexcept nogil:
    run_elements(k)
    run_ropes(k)
    run_convs(k)
    run_deltas(k)
    run_quantise(k)
    run_within(k, 20)
    run_within(k, 64)
    run_attention(k, 16, 3)
    run_attention(k, 20, 4)
    run_attention(k, 64, 1)
    run_attention(k, 80, 6)
    run_attention(k, 128, 7)


cdef public int main(int argc, char** argv) noexcept nogil:
    global state
    cdef Kernels k
    cdef int i
    if sizeof(Kernels) != (3 * FORMATS + SINGLES) * sizeof(void*):
        printf(b"tests/arm/driver.pyx does not run every kernel of table.pxd\n")
        return 1
    setvbuf(stdout, NULL, _IOLBF, 0)  # the last line tells what came before a crash
    memset(&k, 0, sizeof(k))
    for i in range(atoi(argv[1])):
        lay[i](&k)
    state = 1
    run_products(&k)
    run_floats(&k)
    return 0
