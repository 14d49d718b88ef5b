"""The product kernels over numpy arrays, for tests and benches.

Everything here calls the table that `dispatch` has in use, and checks what the kernels do not.
"""

import numpy as np

from cpython.buffer cimport PyBUF_WRITABLE, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from golem_core.cpu.dispatch cimport kernels
from golem_core.cpu.kernels.table cimport BF16, Columns, Packed, Q2_K, Q4_0, W8A8

from golem_core.cpu import dispatch


cdef class _View:
    """The memory of an array, held while this lives."""

    cdef Py_buffer buffer
    cdef bint held

    def __init__(self, array, dtype, bint writable=False):
        if array.dtype != dtype or not array.flags.c_contiguous:
            raise ValueError(f"wanted a contiguous array of {dtype}, found {array.dtype}")
        flags = PyBUF_WRITABLE if writable else PyBUF_SIMPLE
        PyObject_GetBuffer(array, &self.buffer, flags)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


def dequantise(str format, source, Py_ssize_t elements):
    """`elements` values of a format, stored in the uint8 array `source`, as float32."""
    cdef int number = dispatch.FORMATS[format]
    per, size = dispatch.block(number)
    if elements % per or source.size != elements // per * size:
        raise ValueError(f"{source.size} bytes are not {elements} values of {format}")
    out = np.empty(elements, np.float32)
    cdef _View s = _View(source, np.uint8), o = _View(out, np.float32, True)
    kernels().dequantise[number](<const unsigned char*> s.buffer.buf, elements,
                                 <float*> o.buffer.buf)
    return out


def pack(str format, source, Py_ssize_t rows, Py_ssize_t cols, first=0, panels=None):
    """A matrix [rows, cols] of uint8 `source` in panels, uint8 [panels, bytes of one].

    Only panels first..first+panels are written, the others are left as 0xFF.
    """
    cdef int number = dispatch.FORMATS[format]
    per, size = dispatch.block(number)
    if cols % per or source.size != rows * cols // per * size:
        raise ValueError(f"{source.size} bytes are not [{rows}, {cols}] values of {format}")
    cdef Py_ssize_t count = (rows + 15) // 16
    cdef Py_ssize_t begin = first, many = count - begin if panels is None else panels
    out = np.full((count, dispatch.panel_bytes(number, cols)), 0xFF, np.uint8)
    if not 0 <= begin <= begin + many <= count:
        raise ValueError(f"panels {begin}..{begin + many} of {count}")
    cdef _View s = _View(source, np.uint8), o = _View(out, np.uint8, True)
    kernels().pack[number](<const unsigned char*> s.buffer.buf, rows, cols, begin, many,
                           <unsigned char*> o.buffer.buf)
    return out


def product(str format, packed, Py_ssize_t rows, Py_ssize_t cols, x, Py_ssize_t first=0,
            panels=None, Py_ssize_t column=0, columns=None, out=None, Py_ssize_t repeat=1):
    """Packed rows times columns, float32 [columns, 16 * panels]; computed `repeat` times.

    `packed` is uint8, as `pack` returns it, or the stored rows of a format that is not packed.
    `x` is float32 [n, cols] for the formats that multiply floats (rounded here for BF16); else
    (codes int8 [n, cols], scales float32 [n, cols / 32], sums int32 [n, cols / 32], halves int32
    [n, cols / 16]), for W8A8 with 128 instead of 32 and 64 instead of 16.
    """
    cdef int number = dispatch.FORMATS[format]
    cdef bint coded = Q4_0 <= number < Q2_K
    cdef Packed w
    cdef Columns c
    cdef Py_ssize_t i
    cdef _View floats, rounded, codes, scales, sums, halves, values, space
    cdef Py_ssize_t size = dispatch.panel_bytes(number, cols), all_panels = (rows + 15) // 16
    needed = all_panels * size if dispatch.is_packed(number) else rows * size // 16
    if packed.size < needed:
        raise ValueError(f"{packed.size} bytes of {format}, wanted {needed}")
    if coded:
        n = len(x[0])
        run = 128 if number == W8A8 else 32
        shapes = [(n, cols), (n, cols // run), (n, cols // run), (n, 2 * (cols // run))]
        if [a.shape for a in x] != shapes:
            raise ValueError(f"columns are {[a.shape for a in x]}, wanted {shapes}")
        codes, scales = _View(x[0], np.int8), _View(x[1], np.float32)
        sums, halves = _View(x[2], np.int32), _View(x[3], np.int32)
        c.floats, c.stride = NULL, 0
        c.codes, c.scales = <const signed char*> codes.buffer.buf, <const float*> scales.buffer.buf
        c.sums, c.halves = <const int*> sums.buffer.buf, <const int*> halves.buffer.buf
    else:
        n = len(x)
        if x.shape != (n, cols):
            raise ValueError(f"columns are {x.shape}, wanted {(n, cols)}")
        floats = _View(x, np.float32)
        c.floats, c.stride = <const float*> floats.buffer.buf, cols
        c.codes, c.scales, c.sums, c.halves, c.rounded = NULL, NULL, NULL, NULL, NULL
    if number == BF16:
        rounded = _View(np.empty((n, cols + cols % 2), np.float32), np.float32, True)
        c.rounded = <const float*> rounded.buffer.buf
        for i in range(n):
            kernels().round_bf16(c.floats + i * cols, cols,
                                 <float*> c.rounded + i * (cols + cols % 2))
    cdef Py_ssize_t many = all_panels - first if panels is None else panels
    cdef Py_ssize_t wide = n - column if columns is None else columns
    if not (0 <= first <= first + many <= all_panels and 0 <= column <= column + wide <= n):
        raise ValueError("rows or columns past the end")
    if out is None:
        out = np.empty((wide, 16 * many), np.float32)
    if out.shape != (wide, 16 * many):
        raise ValueError(f"out is {out.shape}, wanted {(wide, 16 * many)}")
    values = _View(out, np.float32, True)
    scratch = np.empty(16 * cols, np.float32)
    space = _View(scratch, np.float32, True)
    cdef _View data = _View(packed, np.uint8)
    w.data, w.rows, w.cols, w.panel = <const unsigned char*> data.buffer.buf, rows, cols, size
    with nogil:
        for i in range(repeat):
            kernels().product[number](&w, first, many, &c, column, wide,
                                      <float*> values.buffer.buf, 16 * many,
                                      <float*> space.buffer.buf)
    return out
