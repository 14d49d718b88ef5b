"""Packed weights that outlive a process: files that the next start maps instead of packing again.

A file lies in ``packed`` below golem's cache folder. Its name is a hash of what was packed: the
weights' own files by size, date and their first and last bytes, the place and format of every
matrix, and the version of the layout. Several processes share the pages of one.

Weights are packed straight into the file's pages, and the kernel writes them to the disk when it
likes. Until that is known to be done, a file is good only as long as the machine runs: it names the
boot that it was made in, and another boot packs anew. The files used longest ago make room for new
ones, and a disk that is nearly full gets none, which is said.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from golem_core.errors import BadRequest
from golem_core.settings import SETTINGS, cache_folder
from golem_core.weights import Stored, Weights

HEADER = 4096  # bytes before the matrices, which begin at a page
LEAST = 128 << 20  # bytes below which packing takes no time worth a file
FREE, MOST_FREE = 0.1, 8 << 30  # of the disk, and bytes, the less of which stays free
VERSION = 2  # of the layout of panels; another one's files are not found

_MAGIC = b"golem packed\0\0\0\0"
_FIELDS = struct.Struct("<16s32sQ36s1s")  # magic, key, bytes, boot, whether it is on the disk
_ENDS = 1 << 16


class PackedFiles:
    """The folder of packed weights.

    folder  where they lie
    most    bytes of all files together; 0: none are kept
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.most = folder, most

    @classmethod
    def usual(cls) -> PackedFiles:
        """In golem's cache, with the room that ``GOLEM_PACKED`` says in GiB."""
        setting = SETTINGS["packed"]
        text = os.environ.get(setting.variable) or None
        try:
            kept: int = setting.default if text is None else setting.parse(text)
        except ValueError as expected:
            raise BadRequest(
                f"{setting.variable} is {text!r}, expected {expected}", setting.name
            ) from None
        return cls(cache_folder() / "packed", kept << 30)

    def find(self, key: bytes, nbytes: int) -> int | None:
        """A descriptor of the file of `key`, to be closed by the caller; None if there is none."""
        if not self._wanted(nbytes):
            return None
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        header = os.pread(descriptor, _FIELDS.size, 0)
        whole = os.fstat(descriptor).st_size == HEADER + nbytes
        if whole and len(header) == _FIELDS.size:
            magic, named, size, boot, done = _FIELDS.unpack(header)
            ours = (magic, named, size) == (_MAGIC, key, nbytes)
            if ours and (done == b"1" or boot == _boot()):
                with suppress(OSError):
                    os.utime(descriptor)
                if done != b"1":
                    _settle(descriptor)
                return descriptor
        os.close(descriptor)
        return None

    def create(self, nbytes: int) -> Packing | None:
        """A file to pack so many bytes into; None where none is wanted or the disk is too full."""
        if not self._wanted(nbytes):
            return None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room(nbytes)
            total, _, free = shutil.disk_usage(self.folder)
            stays = min(FREE * total, MOST_FREE)
            if free < nbytes + stays:
                _say_full(self.folder, nbytes, free, stays)
                return None
            descriptor, name = tempfile.mkstemp(prefix="new-", dir=self.folder)
        except OSError:
            return None  # a read-only home or a lost disk is no reason not to run
        try:
            os.ftruncate(descriptor, HEADER + nbytes)
        except OSError:
            os.close(descriptor)
            os.unlink(name)
            return None
        return Packing(self, descriptor, Path(name), nbytes)

    def _wanted(self, nbytes: int) -> bool:
        return LEAST <= nbytes <= self.most

    def _path(self, key: bytes) -> Path:
        return self.folder / key.hex()

    def _make_room(self, nbytes: int) -> None:
        """Removes the files used longest ago, and what a lost process has left half done."""
        found = []
        for path in self.folder.iterdir():
            with suppress(OSError):
                found.append((path.stat().st_mtime_ns, path.stat().st_size, path))
        held = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if held + nbytes <= self.most:
                break
            with suppress(OSError):
                path.unlink()  # who has it mapped keeps it
                held -= size


class Packing:
    """A file that is being packed into. `finish` or `discard` it."""

    def __init__(self, files: PackedFiles, descriptor: int, path: Path, nbytes: int) -> None:
        self.descriptor = descriptor
        self._files, self._path, self._nbytes = files, path, nbytes

    def finish(self, key: bytes) -> None:
        """Everything is packed: from now on others find it."""
        header = _FIELDS.pack(_MAGIC, key, self._nbytes, _boot(), b"0")
        try:
            os.pwrite(self.descriptor, header, 0)
            os.replace(self._path, self._files._path(key))
        except OSError:
            self.discard()
            return
        _settle(self.descriptor)
        os.close(self.descriptor)

    def discard(self) -> None:
        """It is not wanted after all."""
        with suppress(OSError):
            self._path.unlink()
        os.close(self.descriptor)


def key(weights: Weights, packed: Iterable[tuple[Stored, int]]) -> bytes:
    """The name of what is packed: 32 bytes, from matrices and where each is packed to."""
    said = hashlib.sha256(f"golem {VERSION}".encode())
    for file in weights.files:
        said.update(f"|{file.size} {file.modified}|".encode())
        said.update(file.data[:_ENDS].data)
        said.update(file.data[-_ENDS:].data)
    for stored, place in packed:
        said.update(f"{stored.name} {stored.format.name} {stored.shape} ".encode())
        said.update(f"{stored.offset} {place}|".encode())
    return said.digest()


def _say_full(folder: Path, nbytes: int, free: int, stays: float) -> None:
    """A warning in the log, which a program that sets up none has on standard error."""
    import logging  # here, because few starts need it

    logging.getLogger("golem.packed").warning(
        "packed weights are not kept for the next start: they take %.2f GB, and of the %.2f GB "
        "that are free in %s %.2f GB stay free",
        *(nbytes / 1e9, free / 1e9, folder, stays / 1e9),
    )


def _boot() -> bytes:
    """Which run of the machine this is: 36 bytes; where nothing says, no run but this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36].ljust(36, b"\0")
    except OSError:
        return os.urandom(18).hex().encode()


def _settle(descriptor: int) -> None:
    """Waits beside all else until the file is on the disk, then says so in it."""
    held = os.dup(descriptor)

    def settle() -> None:
        with suppress(OSError):
            os.fsync(held)
            os.pwrite(held, b"1", _FIELDS.size - 1)
            os.fsync(held)
        os.close(held)

    Thread(target=settle, name="golem-packed", daemon=True).start()
