"""Measures the product kernels beside the limits of the machine, on the processors named.

    python bench/products.py [--formats Q4_1,Q8_0] [--columns 1,2,4,8,256] [--cpus 0,1]

For one column the weights lie in memory that no cache holds, and the figure is GB/s of packed
weights, beside what plain reading of the same memory reaches. For more columns it is GOP/s
(a multiplication and an addition are two), beside a loop of the processor's widest integer (or,
for formats in float, float) multiply-adds, which a C compiler must be at hand to build. Each
thread is pinned and makes many short calls; its speed is that of the faster ones, since other
work on the machine only ever slows a call.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.cpu import dispatch, probe_products

CODED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")

LIMITS = r"""
#include <immintrin.h>
#include <stddef.h>
#if defined(__AVX512VNNI__)
#define V __m512i
#define F __m512
#define LANES 16
#define DOT(a) _mm512_dpbusd_epi32(a, x, y)
#define FMA(a) _mm512_fmadd_ps(p, q, a)
#define ISET _mm512_set1_epi32
#define FSET _mm512_set1_ps
#define SUM _mm512_reduce_add_epi32
#define FSUM _mm512_reduce_add_ps
#else
#define V __m256i
#define F __m256
#define LANES 8
#define DOT(a) _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), one))
#define FMA(a) _mm256_fmadd_ps(p, q, a)
#define ISET _mm256_set1_epi32
#define FSET _mm256_set1_ps
#define SUM(a) _mm256_extract_epi32(a, 0)
#define FSUM(a) _mm256_cvtss_f32(a)
#endif
#define TWELVE(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11)
double dots(long n) {  /* twelve chains: more than the latency asks for */
    V x = ISET(n & 1), y = ISET(n & 2), one = ISET(65537), s = one;
#define DECLARE(i) V a##i = ISET(i);
#define STEP(i) a##i = DOT(a##i); __asm__ volatile("" : "+v"(a##i));
#define ADD(i) s |= a##i;
    TWELVE(DECLARE)
    for (long k = 0; k < n; k++) { TWELVE(STEP) }
    TWELVE(ADD)
    return SUM(s) == 12345 ? 0 : 96.0 * LANES * n;
}
double fmas(long n) {
    F p = FSET(n & 1), q = FSET(n & 2), s = p;
#define FDECLARE(i) F a##i = FSET(i);
#define FSTEP(i) a##i = FMA(a##i); __asm__ volatile("" : "+v"(a##i));
#define FADD(i) s += a##i;
    TWELVE(FDECLARE)
    for (long k = 0; k < n; k++) { TWELVE(FSTEP) }
    TWELVE(FADD)
    return FSUM(s) == 12345 ? 0 : 24.0 * LANES * n;
}
long read_all(const long* p, size_t bytes) {
    V a = ISET(0), b = a, c = a, d = a;
    for (size_t i = 0; i < bytes / sizeof(V); i += 4) {
        const V* v = (const V*)p + i;
        a |= v[0]; b |= v[1]; c |= v[2]; d |= v[3];
        _mm_prefetch((const char*)(v + 64), _MM_HINT_T0);
    }
    return SUM(a | b | c | d);
}
"""


def limits() -> ctypes.CDLL:
    """The limits, compiled for this machine."""
    folder = Path(tempfile.mkdtemp())
    (folder / "limits.c").write_text(LIMITS)
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(
        [os.environ.get("CC", "gcc"), *flags, "limits.c", "-o", "limits.so"],
        cwd=folder,
        check=True,
    )
    library = ctypes.CDLL(str(folder / "limits.so"))
    for name in ("dots", "fmas"):
        getattr(library, name).restype = ctypes.c_double
        getattr(library, name).argtypes = [ctypes.c_long]
    library.read_all.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def rate(
    work: Callable[[int, int], float], cpus: Sequence[int], seconds: float, quantile: float
) -> float:
    """Work a second of all threads together.

    Thread t calls `work(t, i)` for i = 0, 1, ... for some seconds; it returns what it has done.
    A thread's speed is that of its faster calls: a quantile of their times.
    """
    speeds = []
    barrier = threading.Barrier(len(cpus))

    def run(t: int) -> None:
        os.sched_setaffinity(0, {cpus[t]})
        done = work(t, 0)
        barrier.wait()
        end, i = time.perf_counter() + seconds, 1
        times: list[float] = []
        while len(times) < 5 or time.perf_counter() < end:
            begin = time.perf_counter()
            work(t, i)
            times.append(time.perf_counter() - begin)
            i += 1
        speeds.append(done / float(np.quantile(times, quantile)))

    threads = [threading.Thread(target=run, args=(t,)) for t in range(len(cpus))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(speeds)


def columns(name: str, n: int, cols: int) -> Any:
    """Random columns as the format's kernel reads them."""
    rng = np.random.default_rng(0)
    if name not in CODED:
        return rng.standard_normal((n, cols)).astype(np.float32)
    codes = rng.integers(-127, 128, (n, cols)).astype(np.int8)
    wide = codes.astype(np.int32)
    return (
        codes,
        rng.random((n, cols // 32)).astype(np.float32),
        wide.reshape(n, -1, 32).sum(2, dtype=np.int32),
        wide.reshape(n, -1, 16).sum(2, dtype=np.int32),
    )


def main() -> None:
    """Prints the limits, then a line for each format and number of columns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--formats", default=",".join(dispatch.FORMATS))
    parser.add_argument("--columns", default="1,2,4,8,256")
    parser.add_argument("--cpus", default="0")
    parser.add_argument("--cols", type=int, default=2560)
    parser.add_argument("--memory", type=float, default=0.6, help="GB of weights of a thread")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--quantile", type=float, default=0.1, help="of the times of short calls")
    parser.add_argument("--layer", default=dispatch.layer())
    given = parser.parse_args()
    dispatch.use(given.layer)
    cpus = [int(c) for c in given.cpus.split(",")]
    library = limits()

    def measure(work: Callable[[int, int], float]) -> float:
        return rate(work, cpus, given.seconds, given.quantile) / 1e9

    memory = [np.full(int(given.memory * 1e9), 0x11, np.uint8) for _ in cpus]
    piece = 1 << 21

    def read(t: int, i: int) -> float:
        start = i * piece % (memory[t].nbytes - piece) // 64 * 64
        library.read_all(memory[t].ctypes.data // 64 * 64 + 64 + start, piece - 64)
        return piece

    dots = measure(lambda t, i: library.dots(40_000))
    fmas = measure(lambda t, i: library.fmas(40_000))
    speed = measure(read)
    print(f"layer {dispatch.layer()}, cpus {given.cpus}, {given.cols} columns of weights")
    print(f"limits: {dots:.0f} GOP/s int8, {fmas:.0f} GFLOP/s, {speed:.1f} GB/s")
    for name in given.formats.split(","):
        size = dispatch.panel_bytes(dispatch.FORMATS[name], given.cols)
        for n in map(int, given.columns.split(",")):
            x = columns(name, n, given.cols)
            # Some panels a call, as a program does it; narrow ones are not read again soon.
            panels = max(2, piece // size // 2 * 2) if n <= 8 else 8
            many = memory[0].nbytes // size - panels if n <= 8 else 1
            repeat = 1 if n <= 8 else 2  # columns are rounded to bf16 once for all of them
            out = [np.empty((n, 16 * panels), np.float32) for _ in cpus]

            def multiply(
                t: int, i: int, name: str = name, n: int = n, x: Any = x, size: int = size,
                panels: int = panels, many: int = many, out: list[np.ndarray] = out,
                repeat: int = repeat,
            ) -> float:  # fmt: skip
                start = i * panels % many * size
                data = memory[t][start : start + panels * size]
                rows = 16 * panels
                probe_products.product(name, data, rows, given.cols, x, out=out[t], repeat=repeat)
                return panels * repeat

            per_panel = measure(multiply)
            gigabytes, operations = per_panel * size, per_panel * 32 * given.cols * n
            limit = dots if name in CODED else fmas
            print(
                f"{name:7} {n:4} columns: {gigabytes:6.1f} GB/s ({100 * gigabytes / speed:4.0f} %)"
                f" {operations:7.0f} GOP/s ({100 * operations / limit:3.0f} %)"
            )


if __name__ == "__main__":
    main()
