"""Reads GGUF files, versions 2 and 3, whole or split, and believes nothing that they say.

A file is: magic, version, counts; key-value pairs; one entry a tensor (name, dimensions fastest
first, type, offset); padding; the tensors' bytes. Every count is checked against the bytes that are
left before anything is allocated or repeated, and every tensor's extent against the file, so that a
damaged or hostile file is refused at once by name. Source: ggml's docs/gguf.md.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from golem_core.errors import BadWeights, NotFound
from golem_core.weights._strings import Strings, decode, walk
from golem_core.weights.formats import BY_NUMBER
from golem_core.weights.mapping import MappedFile, bad, not_weights
from golem_core.weights.stored import Stored, Weights

MAGIC = b"GGUF"
STRING, ARRAY, BOOL = 8, 9, 7

# Value type to the letter that struct and numpy have for it.
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    BOOL: "B",
    10: "Q",
    11: "q",
    12: "d",
}
# The fewest bytes that a key with its value, and a tensor's entry, can take.
SMALLEST_PAIR = 8 + 4 + 1
SMALLEST_ENTRY = 8 + 4 + 8 + 4 + 8

SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
WITHDRAWN = {4, 5, 31, 32, 33, 36, 37, 38}  # type numbers that ggml once had


class StringArray(Sequence[str]):
    """The strings of a metadata array, found when the file is opened and decoded when asked for."""

    def __init__(
        self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], what: str
    ) -> None:
        self._data = data
        self._starts = starts
        self._what = what

    @classmethod
    def of(cls, strings: Sequence[str], what: str) -> StringArray:
        """An array of strings that lie in no file; BadWeights for half of a surrogate pair."""
        try:
            stored = [string.encode() for string in strings]
        except UnicodeEncodeError as error:
            raise bad(f"{what} has {error.object!r}, which UTF-8 cannot hold") from None
        starts = np.cumsum([8, *(len(each) + 8 for each in stored)])
        data = b"".join([bytes(8), *(each + bytes(8) for each in stored)])
        return cls(np.frombuffer(data, np.uint8), starts, what)

    def held(self) -> Strings:
        """The strings in memory, where the file need not stay open; raises as `decode_all`."""
        try:
            return Strings(self._data, self._starts)
        except UnicodeDecodeError:
            self.decode_all()  # says which one it is
            raise

    def __len__(self) -> int:
        return len(self._starts) - 1

    def raw(self, index: int) -> bytes:
        """The bytes of one string, as stored."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self._what} has {len(self)} strings, not one at {index}")
        return self._data[self._starts[index] : self._starts[index + 1] - 8].tobytes()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        try:
            return self.raw(at).decode()
        except UnicodeDecodeError as error:
            raise self._bad(at, error) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.decode_all())

    def decode_all(self) -> list[str]:
        """Every string, in one sweep; raises BadWeights naming the first that is not UTF-8."""
        try:
            return decode(self._data, self._starts)
        except UnicodeDecodeError:
            for at in range(len(self)):
                self[at]  # the one that fails says where it is
            raise

    def _bad(self, at: int, error: UnicodeDecodeError) -> BadWeights:
        return bad(f"string {at} of {self._what} is not UTF-8: {error.reason}")

    def __repr__(self) -> str:
        return f"StringArray({len(self)} strings)"


class _Cursor:
    """Reads a file's header front to back and knows how much of it is left."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.view = file.data.data
        self.at = 0

    @property
    def left(self) -> int:
        return self.file.size - self.at

    def bad(self, problem: str) -> BadWeights:
        return bad(f"{problem} (byte {self.at} of {self.file.path})")

    def number(self, layout: str, what: str) -> int:
        return int(self.value(layout, what))

    def value(self, layout: str, what: str) -> int | float:
        size = struct.calcsize(layout)
        if self.left < size:
            raise self.bad(f"the file ends inside {what}")
        (found,) = struct.unpack_from(layout, self.view, self.at)
        self.at += size
        return found  # type: ignore[no-any-return]

    def string(self, what: str) -> str:
        length = self.number("<Q", f"the length of {what}")
        if length > self.left:
            raise self.bad(f"{what} says it has {length} bytes, but {self.left} are left")
        raw = self.view[self.at : self.at + length]
        try:
            found = str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise self.bad(f"{what} is not UTF-8: {error.reason}") from None
        self.at += length
        return found

    def array(self, key: str) -> npt.NDArray[Any] | StringArray:
        kind = self.number("<I", f"the type of the array {key}")
        count = self.number("<Q", f"the length of the array {key}")
        if kind == ARRAY:
            raise self.bad(f"{key} is an array of arrays, which golem does not read")
        if kind != STRING and kind not in SCALARS:
            raise self.bad(f"{key} is an array of type {kind}, which GGUF does not have")
        dtype = np.dtype("<" + SCALARS.get(kind, "Q"))  # a string takes 8 at least
        if count * dtype.itemsize > self.left:
            raise self.bad(
                f"the array {key} says it has {count} elements of at least {dtype.itemsize} "
                f"bytes, but {self.left} bytes are left"
            )
        if kind == STRING:
            return self._strings(key, count)
        found: npt.NDArray[Any] = self.file.data[self.at : self.at + count * dtype.itemsize].view(
            dtype
        )
        self.at += count * dtype.itemsize
        if kind == BOOL:
            if count and found.max() > 1:
                raise self.bad(f"the array {key} has truth values other than 0 and 1")
            found = found.view(np.bool_)
        return found

    def _strings(self, key: str, count: int) -> StringArray:
        starts = np.empty(count + 1, np.int64)
        failed = walk(self.file.data, self.at, starts)
        if failed >= 0:
            raise self.bad(f"string {failed} of the array {key} runs past the end of the file")
        self.at = int(starts[-1]) - 8
        starts.setflags(write=False)
        return StringArray(self.file.data, starts, f"{key} ({self.file.path})")


@dataclass(frozen=True)
class _Part:
    """One file's header: its metadata and the tensors that lie in it."""

    file: MappedFile
    metadata: dict[str, object]
    tensors: dict[str, Stored]


def is_gguf(file: MappedFile) -> bool:
    """Whether a file begins as GGUF does."""
    return bytes(file.data[:4]) == MAGIC


def open_gguf(file: MappedFile) -> Weights:
    """Opens a GGUF file; of a split model any of its files, whichever way it is linked.

    Raises NotFound for a missing part of a split model, and BadWeights for
    whatever a file says that cannot be true.
    """
    part = _read(file)
    count = _whole(part, "split.count", 0)
    parts = [part] if count < 2 else _read_shards(part, count)
    tensors: dict[str, Stored] = {}
    for each in parts:
        for name, tensor in each.tensors.items():
            if name in tensors:
                raise bad(f"{name} is in two files: {tensors[name].file.path} and {each.file.path}")
            tensors[name] = tensor
    return Weights(
        path=file.path,
        container="gguf",
        metadata=MappingProxyType(parts[0].metadata),
        tensors=MappingProxyType(tensors),
        files=tuple(each.file for each in parts),
    )


def _read(file: MappedFile) -> _Part:
    if not is_gguf(file):
        raise not_weights(file)
    cursor = _Cursor(file)
    cursor.at = len(MAGIC)
    version = cursor.number("<I", "the version")
    if version not in (2, 3):
        if version and version & 0xFFFF == 0:
            raise bad(f"{file.path} is big endian; golem reads little-endian GGUF")
        raise bad(f"{file.path} is GGUF version {version}; golem reads versions 2 and 3")
    tensor_count = cursor.number("<Q", "the number of tensors")
    pair_count = cursor.number("<Q", "the number of keys")
    if pair_count * SMALLEST_PAIR > cursor.left:
        raise cursor.bad(
            f"the file says it has {pair_count} keys, but {cursor.left} bytes are left"
        )
    metadata = _read_metadata(cursor, pair_count)
    if tensor_count * SMALLEST_ENTRY > cursor.left:
        raise cursor.bad(
            f"the file says it has {tensor_count} tensors, but {cursor.left} bytes are left"
        )
    return _Part(file, metadata, _read_tensors(cursor, tensor_count, metadata))


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for i in range(count):
        key = cursor.string(f"the name of key {i}")
        if key in metadata:
            raise cursor.bad(f"the key {key} is there twice")
        kind = cursor.number("<I", f"the type of {key}")
        if kind == STRING:
            metadata[key] = cursor.string(key)
        elif kind == ARRAY:
            metadata[key] = cursor.array(key)
        elif kind == BOOL:
            value = cursor.number("<B", key)
            if value > 1:
                raise cursor.bad(f"{key} is a truth value of {value}, which is neither 0 nor 1")
            metadata[key] = bool(value)
        elif kind in SCALARS:
            metadata[key] = cursor.value("<" + SCALARS[kind], key)
        else:
            raise cursor.bad(f"{key} has type {kind}, which GGUF does not have")
    return metadata


def _read_tensors(cursor: _Cursor, count: int, metadata: dict[str, object]) -> dict[str, Stored]:
    file = cursor.file
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise bad(f"general.alignment is {alignment}, not a power of two ({file.path})")
    entries: list[tuple[int, Stored]] = []
    seen: set[str] = set()
    for i in range(count):
        name = cursor.string(f"the name of tensor {i}")
        if name in seen:
            raise cursor.bad(f"the tensor {name} is there twice")
        seen.add(name)
        shape = _read_shape(cursor, name)
        number = cursor.number("<I", f"the type of {name}")
        offset = cursor.number("<Q", f"the offset of {name}")
        if number not in BY_NUMBER:
            once = "a type that ggml has withdrawn" if number in WITHDRAWN else "unknown"
            raise cursor.bad(f"{name} has type number {number}, which is {once}")
        kind = BY_NUMBER[number]
        if shape[-1] % kind.block:
            raise cursor.bad(
                f"{name} has rows of {shape[-1]} elements, which is not a multiple of "
                f"{kind.name}'s block of {kind.block}"
            )
        if offset % alignment:
            raise cursor.bad(
                f"{name} lies at offset {offset}, which is not a multiple of the alignment "
                f"{alignment}"
            )
        entries.append((offset, Stored(name, kind, shape, file, offset)))
    base = -(-cursor.at // alignment) * alignment
    return _place(entries, base)


def _read_shape(cursor: _Cursor, name: str) -> tuple[int, ...]:
    axes = cursor.number("<I", f"the number of dimensions of {name}")
    if not 1 <= axes <= 4:
        raise cursor.bad(f"{name} has {axes} dimensions; a tensor has 1 to 4")
    shape = tuple(cursor.number("<Q", f"dimension {i} of {name}") for i in range(axes))
    if 0 in shape:
        raise cursor.bad(f"dimension {shape.index(0)} of {name} is 0")
    return shape[::-1]


def _place(entries: list[tuple[int, Stored]], base: int) -> dict[str, Stored]:
    """The tensors with offsets counted from the file's start; refuses those outside or shared."""
    placed: dict[str, Stored] = {}
    for offset, entry in entries:
        size = entry.file.size
        if base + offset + entry.nbytes > size:
            raise bad(
                f"{entry.name} needs {entry.nbytes} bytes at offset {offset} of the data, which "
                f"ends at byte {base + offset + entry.nbytes}, but the file has {size} bytes: a "
                f"download cut short or a damaged file ({entry.file.path})"
            )
        placed[entry.name] = Stored(
            entry.name, entry.format, entry.shape, entry.file, base + offset
        )
    in_order = sorted(placed.values(), key=lambda tensor: tensor.offset)
    for before, after in itertools.pairwise(in_order):
        if before.offset + before.nbytes > after.offset:
            raise bad(
                f"{after.name} at byte {after.offset} overlaps {before.name}, which ends at byte "
                f"{before.offset + before.nbytes} ({after.file.path})"
            )
    return placed


# ---- split models


def _whole(part: _Part, key: str, default: int | None = None) -> int:
    value = part.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad(f"{key} is {value}, not a whole number ({part.file.path})")
    return value


def _read_shards(part: _Part, count: int) -> list[_Part]:
    """Every part of a split model in order, of which one is read already."""
    paths = _shard_paths(part, count)
    mine = _whole(part, "split.no")
    parts = []
    for number, path in enumerate(paths):
        read = number == mine and path.samefile(part.file.path)
        each = part if read else _read(MappedFile(path))
        if (found := _whole(each, "split.no")) != number:
            raise bad(
                f"{path} says that it is part {found + 1} (split.no {found}), but its name says "
                f"part {number + 1}: the files were renamed or swapped"
            )
        if (found := _whole(each, "split.count")) != count:
            raise bad(f"split.count is {found} in {path} and {count} in {part.file.path}")
        parts.append(each)
    total = _whole(parts[0], "split.tensors.count")
    if (found := sum(len(each.tensors) for each in parts)) != total:
        raise bad(
            f"split.tensors.count is {total}, but the {count} files hold {found} tensors "
            f"({parts[0].file.path})"
        )
    return parts


def _shard_paths(part: _Part, count: int) -> list[Path]:
    """Where the parts lie: beside the path as it was given, or beside what it links to."""
    given = part.file.path
    missing: list[Path] = []
    for path in dict.fromkeys((given, given.resolve())):
        name = SHARD.fullmatch(path.name)
        if name is None:
            continue
        if int(name["count"]) != count:
            raise bad(f"{path} is named one of {name['count']}, but split.count is {count}")
        # Looked for one by one, since a hostile count may name any number of files.
        paths = []
        for number in range(1, count + 1):
            paths.append(path.with_name(f"{name['stem']}-{number:05d}-of-{count:05d}.gguf"))
            if not paths[-1].exists():
                missing = missing or [paths[-1]]
                break
        else:
            return paths
    if missing:
        raise NotFound(f"{given} is one of {count} parts, of which {missing[0]} is missing")
    raise bad(
        f"{given} is one of {count} parts of a model, but it is not named as a part is: "
        f"NAME-00001-of-{count:05d}.gguf"
    )
