"""The float kernels of one instruction set over numpy arrays, one call each, for the tests.

Shapes are the callers' business, as they are in the kernels: nothing is checked here.
"""

from importlib import import_module

from cpython.pycapsule cimport PyCapsule_GetPointer

from golem_core.cpu.kernels.table cimport ATTEND_ROWS, ATTEND_SCRATCH, Attend, Binary
from golem_core.cpu.kernels.table cimport DELTA_LANES, Glu, Kernels, Rope, Scalar, Store, View

SCRATCH = ATTEND_SCRATCH
ROWS = ATTEND_ROWS
LANES = DELTA_LANES


cdef class Floats:
    """The float kernels of the layer `name`, which the processor must be able to run."""

    cdef const Kernels* k
    cdef readonly str name

    def __init__(self, str name):
        table = import_module(f"golem_core.cpu.kernels.{name}").table
        self.k = <const Kernels*> PyCapsule_GetPointer(table, "golem_core.cpu.kernels.table")
        self.name = name
        if self.k.rms_norm == NULL:
            raise ValueError(f"the layer {name} has no float kernels of its own")

    def quantise(self, const float[::1] x, signed char[::1] codes, float[::1] scales,
                 int[::1] sums, int[::1] halves):
        """x [cols] float32 to int8 [cols], float32 [cols / 32], int32 [cols / 32], [cols / 16]."""
        self.k.quantise(&x[0], x.shape[0], &codes[0], &scales[0], &sums[0], &halves[0])

    def quantise_runs(self, const float[::1] x, signed char[::1] codes, float[::1] scales,
                      int[::1] sums):
        """x [cols] float32 to int8 [cols], float32 [cols / 128], int32 [cols / 128]."""
        self.k.quantise_runs(&x[0], x.shape[0], &codes[0], &scales[0], &sums[0], NULL)

    def rms_norm(self, const float[::1] x, weight, float eps, float[::1] out):
        """x, weight (or None) and out are [cols] float32."""
        self.k.rms_norm(&x[0], pointer(weight), x.shape[0], eps, &out[0])

    def layer_norm(self, const float[::1] x, weight, bias, float eps, float[::1] out):
        """x, weight and bias (or None) and out are [cols] float32."""
        self.k.layer_norm(&x[0], pointer(weight), pointer(bias), x.shape[0], eps, &out[0])

    def glu(self, str act, const float[::1] gate, up, float[::1] out):
        """act is an activation of `Graph.activate`; gate, up (or None) and out are [n] float32."""
        cdef Glu f = self.k.silu
        if act == "gelu_tanh":
            f = self.k.gelu_tanh
        elif act == "gelu_erf":
            f = self.k.gelu_erf
        elif act == "sigmoid":
            f = self.k.sigmoid
        elif act == "elu":
            f = self.k.elu
        f(&gate[0], pointer(up), gate.shape[0], &out[0])

    def binary(self, str name, const float[::1] a, const float[::1] b, float[::1] out):
        """name is add or mul; a, b and out are [n] float32."""
        cdef Binary f = self.k.add if name == "add" else self.k.mul
        f(&a[0], &b[0], a.shape[0], &out[0])

    def scalar(self, str name, const float[::1] a, float c, float[::1] out):
        """name is scale or softcap; a and out are [n] float32."""
        cdef Scalar f = self.k.scale if name == "scale" else self.k.softcap
        f(&a[0], c, a.shape[0], &out[0])

    def axpy(self, const float[::1] a, float c, float[::1] out):
        """a and out are [n] float32; a * c is added to out."""
        self.k.axpy(&a[0], c, a.shape[0], &out[0])

    def conv(self, const float[:, ::1] x, const float[:, ::1] weight, const float[:, ::1] before,
             float[:, ::1] out):
        """x and out are [rows, channels], weight [taps, channels], before [taps - 1, channels]."""
        self.k.conv(&x[0, 0], x.shape[1], &weight[0, 0], weight.shape[1], weight.shape[0],
                    x.shape[1], &before[0, 0], before.shape[1], x.shape[0], &out[0, 0],
                    out.shape[1])

    def delta(self, float[:, ::1] state, const float[:, ::1] q, const float[:, ::1] k,
              const float[:, ::1] v, const float[::1] decay, const float[::1] beta,
              float[:, ::1] out):
        """state is [dk, LANES], q and k [rows, dk], v and out [rows, lanes], all float32."""
        self.k.delta(&state[0, 0], state.shape[0], v.shape[1], &q[0, 0], q.shape[1], &k[0, 0],
                     k.shape[1], &v[0, 0], v.shape[1], &decay[0], 1, &beta[0], 1, q.shape[0],
                     &out[0, 0], out.shape[1])

    def rope(self, str name, const float[::1] x, const float[::1] cos, const float[::1] sin,
             float[::1] out):
        """name is half or pairs; x and out are [dim], cos and sin [half] float32."""
        cdef Rope f = self.k.rope_half if name == "half" else self.k.rope_pairs
        f(&x[0], &cos[0], &sin[0], cos.shape[0], x.shape[0], &out[0])

    def store(self, keys, values, const int[::1] table, Py_ssize_t position,
              const float[:, ::1] key, const float[:, ::1] value):
        """keys [pages, heads, dim, 32], values [pages, heads, 32, padded], both uint16 or float32.

        key and value are [positions, stride] float32, of which [heads, dim] are read.
        """
        cdef View view = look(keys, values, table)
        cdef Store f = self.k.store_half if keys.dtype.itemsize == 2 else self.k.store_float
        f(&view, position, key.shape[0], &key[0, 0], key.shape[1], &value[0, 0], value.shape[1])

    def attend(self, keys, values, const int[::1] table, Py_ssize_t head, Py_ssize_t first,
               Py_ssize_t count, const float[:, ::1] q, const int[::1] positions, float scale,
               float softcap, Py_ssize_t window, float[:, ::1] out, float[::1] scratch):
        """Pages as in `store`; q and out are [rows, heads * dim], scratch [SCRATCH] float32."""
        cdef View view = look(keys, values, table)
        cdef Py_ssize_t rows = q.shape[0]
        cdef Attend f = self.k.attend_half if keys.dtype.itemsize == 2 else self.k.attend_float
        f(&view, head, first, count, &q[0, 0], q.shape[1], &positions[0], rows, scale, softcap,
          window, &out[0, 0], out.shape[1], &scratch[0])


cdef const float* pointer(array) except? NULL:
    """Where a float32 array begins, NULL for None."""
    cdef const float[::1] a
    if array is None:
        return NULL
    a = array
    return &a[0]


cdef View look(keys, values, const int[::1] table):
    """The kernels' view of numpy pages."""
    cdef View view
    view.keys = <void*> <size_t> keys.ctypes.data
    view.values = <void*> <size_t> values.ctypes.data
    view.table = &table[0]
    view.heads = keys.shape[1]
    view.dim = keys.shape[2]
    view.padded = values.shape[3]
    return view
