"""What this machine can do at most with one instruction set, for `golem bench` to compare with.

The loops release the GIL, so that several threads can meet the limit together.
"""

from importlib import import_module

from cpython.pycapsule cimport PyCapsule_GetPointer

from golem_core.cpu.kernels.limits cimport Limits as Loops


cdef class Limits:
    """The loops of the layer `name`, which the processor must be able to run."""

    cdef const Loops* loops

    def __init__(self, str name):
        capsule = import_module(f"golem_core.cpu.kernels.{name}").limits
        self.loops = <const Loops*> PyCapsule_GetPointer(capsule, "golem_core.cpu.kernels.limits")

    def read(self, const unsigned char[::1] data):
        """Reads all of `data` but a last piece of less than 512 bytes; gives how many bytes."""
        cdef Py_ssize_t size = data.shape[0] // 512 * 512
        if size:
            with nogil:
                self.loops.read(&data[0], size)
        return size

    def multiply(self, Py_ssize_t rounds):
        """Multiplies and adds bytes without touching memory; gives how many products."""
        cdef int sum = 1
        cdef Py_ssize_t done
        with nogil:
            done = self.loops.multiply(rounds, &sum)
        return done
