"""Walks the strings of a GGUF array: each is a length of eight bytes and then its bytes.

The only part of reading a file that goes string by string; a vocabulary with its merges is
three quarters of a million of them. `Strings` are those of an array in memory.
"""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp, memcpy

import os

import numpy as np

cdef uint64_t NUMBER = 0xFFFFFFFF  # the part of an entry that is a string's number, from 1
cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")  # so that no file can choose its hashes


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


cdef Py_ssize_t space(const unsigned char* text, Py_ssize_t size) noexcept nogil:
    """Where the first space is that is not the first byte, or -1."""
    cdef const unsigned char* found
    if size < 2:
        return -1
    found = <const unsigned char*>memchr(text + 1, 32, size - 1)
    return -1 if found == NULL else found - text


cdef Py_ssize_t gather(const unsigned char* data, const long long* starts, Py_ssize_t count,
                       unsigned char* out, long long* ends) noexcept nogil:
    """Copies strings, one behind the other. Gives one that begins within a character, or -1.

    Where none does, each of them is UTF-8 if all together are.
    """
    cdef Py_ssize_t i, size, split = -1
    cdef unsigned char* at = out
    for i in range(count):
        size = <Py_ssize_t>(starts[i + 1] - 8 - starts[i])
        memcpy(at, data + starts[i], size)
        if size and at[0] & 0xC0 == 0x80:
            split = i
        at += size
        ends[i + 1] = at - out
    return split


cdef uint64_t hashed(const unsigned char* text, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word, state = SEED ^ <uint64_t>size
    while size > 0:
        word = 0
        memcpy(&word, text, min(size, 8))
        state = (state ^ word) * <uint64_t>0x9E3779B97F4A7C15
        state ^= state >> 32
        text += 8
        size -= 8
    state = state * <uint64_t>0xD6E8FEB86659FD93
    return state ^ state >> 32


cdef class Strings:
    """The strings of an array in memory: by their number, and by their text through a hash table.

    Of strings that are the same the last one is found. `repeated` is the first string that is the
    same as one before it, or -1. `data` are the bytes of all, and string i is
    ``data[starts[i] : starts[i + 1]]``.
    """

    cdef readonly object data
    cdef readonly object starts
    cdef readonly Py_ssize_t repeated
    cdef object slots
    cdef unsigned char* bytes
    cdef long long* ends  # and where the first begins
    cdef uint64_t* table  # the upper half of a hash, and the string's number from 1; 0: empty
    cdef uint64_t mask
    cdef Py_ssize_t count

    def __init__(self, const unsigned char[::1] data not None,
                 const long long[::1] starts not None):
        """From an array as `walk` finds it; raises UnicodeDecodeError for what is not UTF-8."""
        cdef Py_ssize_t split, slots = 16
        self.count = starts.shape[0] - 1
        if self.count >= <Py_ssize_t>NUMBER:
            raise ValueError(f"{self.count} strings, which are too many to be numbered")
        while slots < self.count + self.count // 2:
            slots *= 2
        cdef unsigned char[::1] text = np.empty(starts[self.count] - starts[0] + 8, np.uint8)
        cdef long long[::1] ends = np.zeros(self.count + 1, np.int64)
        cdef uint64_t[::1] table = np.zeros(slots, np.uint64)
        self.bytes, self.ends, self.table = &text[0], &ends[0], &table[0]
        self.mask = slots - 1
        cdef const unsigned char* stored = &data[0]
        cdef const long long* places = &starts[0]
        with nogil:
            split = gather(stored, places, self.count, self.bytes, self.ends)
        if split >= 0:
            PyUnicode_DecodeUTF8(<const char*>self.bytes + self.ends[split],
                                 self.ends[split + 1] - self.ends[split], NULL)
        PyUnicode_DecodeUTF8(<const char*>self.bytes, self.ends[self.count], NULL)
        self.data, self.starts = np.asarray(text)[: self.ends[self.count]], np.asarray(ends)
        self.data.flags.writeable = self.starts.flags.writeable = False
        self.slots = table
        with nogil:
            self.repeated = self.enter()

    cdef Py_ssize_t enter(self) noexcept nogil:
        """Puts all into the table; gives the first that is there already, or -1."""
        cdef Py_ssize_t i, size, repeated = -1
        cdef uint64_t hash, at
        cdef const unsigned char* text
        for i in range(self.count):
            text = self.string(i, &size)
            hash = hashed(text, size)
            at = self.slot(text, size, hash)
            if self.table[at] and repeated < 0:
                repeated = i
            self.table[at] = hash >> 32 << 32 | <uint64_t>(i + 1)
        return repeated

    def find(self, str text not None):
        """The number of the string with this text, or None."""
        cdef Py_ssize_t size
        cdef const unsigned char* raw
        cdef uint64_t at
        try:
            raw = <const unsigned char*>PyUnicode_AsUTF8AndSize(text, &size)
        except UnicodeEncodeError:
            return None  # half of a surrogate pair, which no string has
        at = self.slot(raw, size, hashed(raw, size))
        return (self.table[at] & NUMBER) - 1 if self.table[at] else None

    def halves(self):
        """Every string as the two texts beside its first space that is not its first byte.

        Raises ValueError for a string without one.
        """
        cdef Py_ssize_t i, size, cut
        cdef const unsigned char* text
        cdef list out = [None] * self.count
        for i in range(self.count):
            text = self.string(i, &size)
            cut = space(text, size)
            if cut < 0:
                raise ValueError(f"string {i} has no space")
            out[i] = (PyUnicode_DecodeUTF8(<const char*>text, cut, NULL),
                      PyUnicode_DecodeUTF8(<const char*>text + cut + 1, size - cut - 1, NULL))
        return out

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t i):
        cdef Py_ssize_t size
        cdef const unsigned char* text
        if not 0 <= i < self.count:
            raise IndexError(f"there are {self.count} strings, and none at {i}")
        text = self.string(i, &size)
        return PyUnicode_DecodeUTF8(<const char*>text, size, NULL)

    cdef const unsigned char* string(self, Py_ssize_t i, Py_ssize_t* size) noexcept nogil:
        size[0] = <Py_ssize_t>(self.ends[i + 1] - self.ends[i])
        return self.bytes + self.ends[i]

    cdef uint64_t slot(self, const unsigned char* text, Py_ssize_t size,
                       uint64_t hash) noexcept nogil:
        """The slot of the string with these bytes, or the empty one where it would be."""
        cdef uint64_t at = hash & self.mask, entry
        cdef const unsigned char* other
        cdef Py_ssize_t length
        while True:
            entry = self.table[at]
            if entry == 0:
                return at
            if entry >> 32 == hash >> 32:
                other = self.string(<Py_ssize_t>(entry & NUMBER) - 1, &length)
                if length == size and memcmp(text, other, size) == 0:
                    return at
            at = (at + 1) & self.mask


def misfit(Strings merges not None, Strings tokens not None,
           const unsigned char[::1] absent not None):
    """The first merge whose two tokens, or the one that they make, are not there; or -1.

    absent  of each token whether it counts as not there

    Texts are compared by 32 bits of their hashes only, which takes half of the time. What is held
    for another one, once in four billion, shows when the merges are used.
    """
    cdef Py_ssize_t i, size, cut, longest = 1, failed = -1
    cdef const unsigned char* text
    cdef const unsigned char* missing
    cdef unsigned char[::1] room
    cdef unsigned char* both
    if absent.shape[0] != tokens.count:
        raise ValueError(f"{absent.shape[0]} marks for {tokens.count} tokens")
    missing = &absent[0] if tokens.count else NULL
    for i in range(merges.count):
        merges.string(i, &size)
        longest = max(longest, size)
    room = np.empty(longest, np.uint8)
    both = &room[0]
    with nogil:
        for i in range(merges.count):
            text = merges.string(i, &size)
            cut = space(text, size)
            if cut >= 0:
                memcpy(both, text, cut)
                memcpy(both + cut, text + cut + 1, size - cut - 1)
                if (there(tokens, missing, text, cut)
                        and there(tokens, missing, text + cut + 1, size - cut - 1)
                        and there(tokens, missing, both, size - 1)):
                    continue
            failed = i
            break
    return failed


cdef bint there(Strings tokens, const unsigned char* missing, const unsigned char* text,
                Py_ssize_t size) noexcept nogil:
    cdef uint64_t hash = hashed(text, size), at = hash & tokens.mask
    while tokens.table[at]:
        if tokens.table[at] >> 32 == hash >> 32:
            return not missing[(tokens.table[at] & NUMBER) - 1]
        at = (at + 1) & tokens.mask
    return False
