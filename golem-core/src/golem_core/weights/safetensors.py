"""Reads safetensors: one file, or a folder with one or with an index of several.

A file is the length of a header (8 bytes), the header as JSON (name to dtype, shape and the
range of its bytes), and the bytes. The metadata of a model is the config.json beside its files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType

from golem_core.errors import NotFound
from golem_core.weights.formats import FORMATS, Format
from golem_core.weights.mapping import MappedFile, bad
from golem_core.weights.stored import Stored, Weights

# The largest JSON read. A hundred thousand tensors take about this much; parsed, hostile JSON
# of this size still takes well under a gigabyte.
LARGEST_HEADER = 10_000_000

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def is_safetensors(file: MappedFile) -> bool:
    """Whether a file begins as safetensors does: a length, then the brace of a JSON object."""
    return file.size > 8 and file.data[8] == ord("{") and file.data[:8].view("<u8")[0] < 1 << 40


def open_safetensors(path: Path) -> Weights:
    """Opens a safetensors file, or a folder that holds a model of one or several.

    A folder is read through its index where it has one. Raises NotFound for what is missing and
    BadWeights for whatever cannot be true; files are named in the message.
    """
    folder = path if path.is_dir() else path.parent
    wanted: dict[str, str] = {}
    if not path.is_dir():
        names = [path.name]
    elif (folder / INDEX).exists():
        wanted = _index(folder / INDEX)
        names = list(dict.fromkeys(wanted.values()))
    elif (folder / SINGLE).exists():
        names = [SINGLE]
    else:
        raise NotFound(_nothing_in(folder))
    tensors: dict[str, Stored] = {}
    files = []
    for name in names:
        file = MappedFile(folder / name)
        files.append(file)
        for tensor in _read(file):
            if tensor.name in tensors:
                raise bad(
                    f"{tensor.name} is in two files: {tensors[tensor.name].file.path} and "
                    f"{file.path}"
                )
            if wanted and wanted.get(tensor.name) != name:
                raise bad(f"{tensor.name} is in {file.path}, but {INDEX} does not put it there")
            tensors[tensor.name] = tensor
    if lost := [name for name in wanted if name not in tensors]:
        raise bad(f"{lost[0]} is in no file, but {folder / INDEX} says it is in {wanted[lost[0]]}")
    config = folder / "config.json"
    return Weights(
        path=path,
        container="safetensors",
        metadata=MappingProxyType(_object(config) if config.exists() else {}),
        tensors=MappingProxyType(tensors),
        files=tuple(files),
    )


def _nothing_in(folder: Path) -> str:
    others = sorted(entry.name for entry in folder.glob("*.gguf"))
    others += sorted(entry.name for entry in folder.glob("*.safetensors"))
    if others:
        return f"{folder} has neither {SINGLE} nor {INDEX}; name one of its files: {others[0]}"
    return f"{folder} holds no model: neither {SINGLE} nor {INDEX} nor a .gguf file"


def _index(path: Path) -> dict[str, str]:
    """Tensor name to the name of the file that has it."""
    wanted = _object(path).get("weight_map")
    if not isinstance(wanted, dict) or not wanted:
        raise bad(f"weight_map is missing or empty ({path})")
    for name, file in wanted.items():
        # A file beside the index, never a path that leaves the folder.
        if not isinstance(file, str) or Path(file).name != file or file in ("", ".", ".."):
            raise bad(f"weight_map puts {name} in {file!r}, not in a file beside it ({path})")
    return wanted


def _object(path: Path) -> dict[str, object]:
    """A small JSON file that holds an object."""
    try:
        size = path.stat().st_size
        if size > LARGEST_HEADER:
            raise bad(f"{path} has {size} bytes, more than the {LARGEST_HEADER} read")
        raw = path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from None
    return _parse(raw, str(path))


def _parse(raw: bytes, where: str) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
            raise bad(f"{name} is there twice ({where})")
        return found

    try:
        found = json.loads(raw.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise bad(f"the JSON cannot be read: {error} ({where})") from None
    if not isinstance(found, dict):
        raise bad(f"the JSON is {type(found).__name__}, not an object ({where})")
    return found


def _read(file: MappedFile) -> Iterable[Stored]:
    """The tensors of one file in the order of their bytes, each checked against the file."""
    if not is_safetensors(file):
        raise bad(f"{file.path} does not begin as a safetensors file does")
    length = int(file.data[:8].view("<u8")[0])
    if length > file.size - 8:
        raise bad(
            f"the header says it has {length} bytes, but {file.size - 8} are left ({file.path})"
        )
    if length > LARGEST_HEADER:
        raise bad(
            f"the header has {length} bytes, more than the {LARGEST_HEADER} read ({file.path})"
        )
    header = _parse(file.data[8 : 8 + length].tobytes(), str(file.path))
    header.pop("__metadata__", None)
    base = 8 + length
    tensors = [_entry(file, base, name, entry) for name, entry in header.items()]
    tensors.sort(key=lambda tensor: tensor.offset)
    end = base
    for tensor in tensors:
        if tensor.offset < end:
            raise bad(f"{tensor.name} overlaps the tensor before it ({file.path})")
        end = tensor.offset + tensor.nbytes
    return tensors


def _entry(file: MappedFile, base: int, name: str, entry: object) -> Stored:
    if not isinstance(entry, dict):
        raise bad(f"the entry of {name} is not an object ({file.path})")
    kind = _format(entry.get("dtype"))
    if kind is None:
        raise bad(f"{name} has dtype {entry.get('dtype')!r}, which is unknown ({file.path})")
    shape = _sizes(entry.get("shape"))
    if shape is None or 0 in shape:
        raise bad(
            f"{name} has shape {entry.get('shape')!r}, not a list of sizes of 1 or more "
            f"({file.path})"
        )
    between = _sizes(entry.get("data_offsets"))
    if between is None or len(between) != 2:
        raise bad(
            f"{name} has data_offsets {entry.get('data_offsets')!r}, not a start and an end "
            f"({file.path})"
        )
    start, end = between
    tensor = Stored(name, kind, shape, file, base + start)
    if end - start != tensor.nbytes:
        raise bad(
            f"{name} needs {tensor.nbytes} bytes, but its data_offsets {start} to {end} hold "
            f"{end - start} ({file.path})"
        )
    if base + end > file.size:
        raise bad(
            f"{name} needs {tensor.nbytes} bytes at offset {start} and so a file of {base + end}, "
            f"but the file has {file.size}: a download cut short or a damaged file ({file.path})"
        )
    return tensor


def _format(dtype: object) -> Format | None:
    kind = FORMATS.get(dtype) if isinstance(dtype, str) else None
    return kind if kind is not None and kind.block == 1 else None


def _sizes(value: object) -> tuple[int, ...] | None:
    """A list of at most eight whole numbers of 0 or more, or None if it is not one."""
    if not isinstance(value, list) or len(value) > 8:
        return None
    if not all(type(size) is int and 0 <= size < 1 << 63 for size in value):
        return None
    return tuple(value)
