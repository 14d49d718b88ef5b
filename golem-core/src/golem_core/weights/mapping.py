"""Maps a file into memory, and says what a file is that holds no weights."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from golem_core.errors import BadWeights, NotFound

# First bytes of what people save, or are sent, in the place of weights.
_SIGNATURES = [
    (b"version https://git-lfs", "a Git LFS pointer, not the weights; run: git lfs pull"),
    (b"<!doctype html", "an HTML page, not weights; the download was answered with a web page"),
    (b"<html", "an HTML page, not weights; the download was answered with a web page"),
    (b"<?xml", "an XML document, not weights; the download was answered with an error"),
    (b"fugg", "a byte-swapped GGUF file (big endian); convert it to little endian"),
    (b"lmgg", "a GGML file from before GGUF; convert it to GGUF"),
    (b"fmgg", "a GGML file from before GGUF; convert it to GGUF"),
    (b"tjgg", "a GGML file from before GGUF; convert it to GGUF"),
    (b"algg", "a GGML adapter from before GGUF; convert it to GGUF"),
    (b"pk\x03\x04", "a zip archive (or a PyTorch checkpoint); golem reads GGUF and safetensors"),
    (b"\x80\x02", "a Python pickle; golem reads GGUF and safetensors"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive; unpack it first"),
    (b"{", "a JSON text, not weights"),
    (b"\x00\x00\x00\x00\x00\x00\x00\x00", "zeros where a header should be: a download cut short"),
]


def bad(problem: str) -> BadWeights:
    """The error for weights that cannot be true.

    What a file says may be quoted in it, so whatever could move a terminal's cursor is escaped and
    a text without end is cut.
    """
    shown = problem if len(problem) <= 1000 else f"{problem[:500]} [...] {problem[-300:]}"
    return BadWeights("".join(c if c.isprintable() else repr(c)[1:-1] for c in shown))


class MappedFile:
    """A regular file mapped read-only; pages come from the disk as they are touched.

    `data` is uint8 [size], read-only. A file that another program shortens while it is mapped
    kills the process when its missing pages are read, as with every mapped file; golem checks
    sizes when it opens and expects files to stay.

    Raises NotFound for a path that cannot be read, BadWeights for an empty file or for what is no
    regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Asked before opening: opening a pipe would wait for its writer.
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise bad(f"{path} is not a regular file")
            handle = open(path, "rb")  # noqa: SIM115 - it is closed below, mapped
        except FileNotFoundError:
            raise NotFound(f"no such file: {path}") from None
        except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
            reason = getattr(error, "strerror", None) or error
            raise NotFound(f"{path} cannot be read: {reason}") from None
        with handle:
            found = os.fstat(handle.fileno())
            self.size, self.modified = found.st_size, found.st_mtime_ns
            if self.size == 0:
                raise bad(f"{path} is an empty file; fetch it again")
            self._map = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = min(self.size, len(self._map))
        self.data: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def drop(self, start: int, nbytes: int) -> None:
        """Gives back the memory of the whole pages inside [start, start + nbytes).

        The bytes stay readable; the next read brings them from the file again. Does nothing where
        the system has no such call.
        """
        if not hasattr(self._map, "madvise") or not hasattr(mmap, "MADV_DONTNEED"):
            return
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (start + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def close(self) -> None:
        """Unmaps the file, or leaves that to the last array that still views it."""
        self.data = self.data[:0].copy()
        with contextlib.suppress(BufferError):  # Views are alive: it goes with the last of them.
            self._map.close()


def not_weights(file: MappedFile) -> BadWeights:
    """The error for a file that is neither GGUF nor safetensors; says what it is if that shows."""
    head = bytes(file.data[:64])
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for signature, meaning in _SIGNATURES:
        if text.startswith(signature):
            return bad(f"{file.path} is {meaning}")
    if b"GGUF".startswith(head):
        return bad(f"{file.path} is cut off: it has {file.size} bytes in all")
    return bad(f"{file.path} is neither GGUF nor safetensors: it begins with {head[:8].hex(' ')}")
