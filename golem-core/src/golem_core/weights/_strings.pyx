"""Walks the strings of a GGUF array: each is a length of eight bytes and then its bytes.

The only part of reading a file that goes string by string; a vocabulary with its merges is
three quarters of a million of them.
"""

from cpython.unicode cimport PyUnicode_DecodeUTF8


def walk(const unsigned char[::1] data, Py_ssize_t at, long long[::1] starts):
    """Fills `starts` with where each string's bytes begin, one entry more than there are strings.

    The last entry is where a following string's bytes would begin, so that string i is
    ``data[starts[i] : starts[i + 1] - 8]``. Returns -1, or the index of the first string whose
    length does not fit in the rest of `data`.
    """
    cdef Py_ssize_t count = starts.shape[0] - 1
    cdef Py_ssize_t size = data.shape[0]
    cdef Py_ssize_t i, k
    cdef unsigned long long length
    for i in range(count):
        if size - at < 8:
            return i
        length = 0
        for k in range(8):
            length |= <unsigned long long>data[at + k] << (8 * k)
        at += 8
        if length > <unsigned long long>(size - at):
            return i
        starts[i] = at
        at += <Py_ssize_t>length
    starts[count] = at + 8
    return -1


def decode(const unsigned char[::1] data, const long long[::1] starts):
    """Every string of the array as a list of str; raises UnicodeDecodeError at the first bad one."""
    cdef Py_ssize_t i, size
    cdef list out = [None] * (starts.shape[0] - 1)
    for i in range(starts.shape[0] - 1):
        size = <Py_ssize_t>(starts[i + 1] - 8 - starts[i])
        if size:
            out[i] = PyUnicode_DecodeUTF8(<const char*>&data[starts[i]], size, NULL)
        else:
            out[i] = ""
    return out
