"""Chooses kernels: the modules of instruction sets, laid over each other up to a layer.

The table begins as `generic` has it; each further layer that the processor runs replaces the
entries that it fills. A layer is imported only after the processor was asked, since the whole of
a module is compiled for its instruction set. `GOLEM_ISA` names the highest layer to use. Each
layer keeps its table, so what was compiled under one goes on running it after `use`.
"""

import os
from importlib import import_module
from importlib.util import find_spec

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.string cimport memcpy

from golem_core.cpu.kernels.layout cimport block_bytes, block_elements, panel_bytes as size_of
from golem_core.cpu.kernels.table cimport FORMATS as FORMAT_COUNT
from golem_core.cpu.kernels.table cimport Kernels, Q2_K

from golem_core.errors import Unsupported

cdef extern from *:
    """
    #if defined(__x86_64__)
    #define RUNS(feature) __builtin_cpu_supports(feature)
    static int runs_avx2(void) {
        __builtin_cpu_init();
        return RUNS("avx2") && RUNS("fma") && RUNS("f16c");
    }
    static int runs_avxvnni(void) { return runs_avx2() && RUNS("avxvnni"); }
    static int runs_avx512vnni(void) {
        __builtin_cpu_init();
        return runs_avx2() && RUNS("avx512f") && RUNS("avx512bw") && RUNS("avx512vl")
            && RUNS("avx512dq") && RUNS("avx512vnni");
    }
    static int runs_avx512bf16(void) { return runs_avx512vnni() && RUNS("avx512bf16"); }
    static int pairs_are_fast(void) { return __builtin_cpu_is("amd"); }
    #else
    static int runs_avx2(void) { return 0; }
    static int runs_avxvnni(void) { return 0; }
    static int runs_avx512vnni(void) { return 0; }
    static int runs_avx512bf16(void) { return 0; }
    static int pairs_are_fast(void) { return 0; }
    #endif
    #if defined(__x86_64__) && defined(__linux__)
    #include <cpuid.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static int runs_amx(void) {  /* and the kernel lets this process, and its threads, use tiles */
        unsigned a, b, c, d, low, high;
        if (!runs_avx512vnni() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)
                || !(d >> 24 & 1) || !(d >> 25 & 1))  /* amx-tile, amx-int8 */
            return 0;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if ((low >> 17 & 3) != 3)  /* states of tiles are saved: 17 XTILECFG, 18 XTILEDATA */
            return 0;
        return syscall(SYS_arch_prctl, 0x1023, 18) == 0;  /* ARCH_REQ_XCOMP_PERM */
    }
    #else
    static int runs_amx(void) { return 0; }
    #endif
    #if defined(__aarch64__)
    static int runs_neon(void) { return 1; }
    #if defined(__linux__)
    #include <sys/auxv.h>
    static int runs_neon_dotprod(void) {  /* HWCAP_ASIMDDP, HWCAP_ASIMDHP */
        unsigned long caps = getauxval(AT_HWCAP);
        return (caps >> 20 & 1) && (caps >> 10 & 1);
    }
    #elif defined(__APPLE__)
    static int runs_neon_dotprod(void) { return 1; }  /* every Apple silicon Mac */
    #else
    static int runs_neon_dotprod(void) { return 0; }
    #endif
    #else
    static int runs_neon(void) { return 0; }
    static int runs_neon_dotprod(void) { return 0; }
    #endif
    """
    bint runs_avx2()
    bint runs_avxvnni()
    bint runs_avx512vnni()
    bint runs_avx512bf16()
    bint pairs_are_fast()
    bint runs_amx()
    bint runs_neon()
    bint runs_neon_dotprod()

cdef enum:
    MOST_LAYERS = 6
    CODES = 384 * 1024      # bytes of columns' codes that stay in the second cache

cdef int SLOTS = sizeof(Kernels) // sizeof(void*)

RUNS = {
    "generic": True,
    "avx2": runs_avx2(),
    "avxvnni": runs_avxvnni(),
    "avx512vnni": runs_avx512vnni(),
    "avx512bf16": runs_avx512bf16(),
    "amx": runs_amx(),
    "neon": runs_neon(),
    "neon_dotprod": runs_neon_dotprod(),
}
# Intel's vdpbf16ps takes as long as four fused multiply-adds and does two: there the layer lies
# hidden below the next one.
WIDE = ("avx512vnni", "avx512bf16") if pairs_are_fast() else ("avx512bf16", "avx512vnni")
KNOWN = ("generic", "avx2", "avxvnni", *WIDE, "amx", "neon", "neon_dotprod")
LAYERS = tuple(
    name
    for name in KNOWN
    if RUNS[name] and find_spec(f"golem_core.cpu.kernels.{name}")  # what the compiler knew
)
FORMATS = {
    name: number
    for number, name in enumerate((
        "F32", "F16", "BF16", "W8", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K",
        "W8A8", "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4",
    ))
}
SINGLES = (
    "quantise", "quantise_runs", "round_bf16", "rms_norm", "layer_norm", "silu", "gelu_tanh",
    "gelu_erf", "sigmoid", "elu", "add", "mul", "scale", "softcap", "rope_half", "rope_pairs",
    "store_half", "store_float",
    "attend_half", "attend_float", "attend_within", "axpy", "conv", "delta",
)
NAMES = (
    *(f"{kind}[{name}]" for kind in ("product", "pack", "dequantise") for name in FORMATS),
    *SINGLES,
)
if len(FORMATS) != FORMAT_COUNT or len(NAMES) != SLOTS:
    raise ImportError("golem_core.cpu.dispatch does not name the kernels of table.pxd")

cdef Kernels[MOST_LAYERS] tables
cdef const Kernels* current = NULL
cdef bint tiled = False
cdef list providers = []  # for each layer, the layer that provides each kernel


cdef const Kernels* kernels() noexcept nogil:
    """The table in use."""
    return current


cdef Py_ssize_t columns_at_once(Py_ssize_t cols) noexcept nogil:
    """How many columns, of `cols` elements each, a wide product had best take at a time.

    As many as stay in the second cache, since each pair of panels reads them all; of tiles, which
    go through a part of the columns' length at a time, as many as rows are unpacked for.
    """
    if tiled:
        return TILE_COLUMNS
    return max(<Py_ssize_t>32, min(<Py_ssize_t>TILE_COLUMNS, CODES // cols & ~7))


def use(str highest):
    """Lays the table up to a layer; `Unsupported` where the processor does not run it."""
    global current, tiled
    if highest not in LAYERS:
        raise Unsupported(
            f"no kernels for {highest!r} on this processor, which runs {', '.join(LAYERS)}"
        )
    cdef void** mine
    cdef void** layer
    cdef int i, index = LAYERS.index(highest)
    while len(providers) <= index:
        name = LAYERS[len(providers)]
        module = import_module(f"golem_core.cpu.kernels.{name}")
        layer = <void**> PyCapsule_GetPointer(module.table, "golem_core.cpu.kernels.table")
        mine = <void**> &tables[len(providers)]
        if providers:
            memcpy(mine, &tables[len(providers) - 1], sizeof(Kernels))
            provided = list(providers[len(providers) - 1])
        else:
            provided = [None] * SLOTS
        for i in range(SLOTS):
            if layer[i] != NULL:
                mine[i] = layer[i]
                provided[i] = name
        providers.append(provided)
    current = &tables[index]
    tiled = "amx" in LAYERS[:index + 1]


def layer():
    """The highest layer of the table in use."""
    return LAYERS[current - &tables[0]]


def origins():
    """Which layer provides each kernel of the table in use; None where none does."""
    return dict(zip(NAMES, providers[current - &tables[0]], strict=True))


def panel_bytes(int format, Py_ssize_t cols):
    """Bytes of a packed panel of 16 rows of a format (a value of `FORMATS`)."""
    return size_of(format, cols)


def is_packed(int format):
    """Whether products read panels that `pack` wrote, and not rows as a file stores them."""
    return format < Q2_K


def block(int format):
    """Values and bytes of a block of a format."""
    return block_elements(format), block_bytes(format)


def _chosen():
    highest = os.environ.get("GOLEM_ISA") or LAYERS[len(LAYERS) - 1]
    if highest not in LAYERS:
        raise Unsupported(
            f"GOLEM_ISA is {highest!r}; this processor runs {', '.join(LAYERS)}"
        )
    return highest


use(_chosen())
