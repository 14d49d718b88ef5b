"""A voice: the keys and values that the flow model keeps of a recording.

Its file is the one that the makers' program writes: safetensors with, for each layer, `cache` [2,
1, positions, heads, dim] (keys, then values), `offset` (how many positions count) and `pad`. Older
files have `current_end` for the offset, whose own length is the number, and no pad.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.errors import BadWeights, NotFound
from golem_core.speech import Voice
from golem_pockettts.config import Layers
from golem_pockettts.derived import Array

LARGEST_HEADER = 1 << 20
TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}


class PocketVoice(Voice):
    """kept is for each layer float32 [2, positions, heads, dim]."""

    def __init__(self, kept: list[Array]) -> None:
        self.kept = kept

    @property
    def positions(self) -> int:
        """See `Voice.positions`."""
        return int(self.kept[0].shape[1])

    def save(self, path: Path) -> None:
        """See `Voice.save`."""
        tensors: dict[str, np.ndarray] = {}
        for layer, kept in enumerate(self.kept):
            at = f"transformer.layers.{layer}.self_attn"
            tensors[f"{at}/cache"] = np.ascontiguousarray(kept[:, None], "<f4")
            tensors[f"{at}/offset"] = np.array([kept.shape[1]], "<i8")
            tensors[f"{at}/pad"] = np.zeros(1, "<i8")
        header: dict[str, Any] = {}
        end = 0
        for name, tensor in tensors.items():
            header[name] = {
                "dtype": "F32" if tensor.dtype == np.float32 else "I64",
                "shape": list(tensor.shape),
                "data_offsets": [end, end + tensor.nbytes],
            }
            end += tensor.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in tensors.values():
                file.write(tensor.tobytes())


def read_voice(path: Path, layers: Layers) -> PocketVoice:
    """A voice's file. Raises `NotFound`, and `BadWeights` for one that is none of this model."""
    tensors = _tensors(path)
    kept: list[Array] = []
    for layer in range(layers.layers):
        at = f"transformer.layers.{layer}.self_attn"
        cache = tensors.get(f"{at}/cache")
        if cache is None:
            raise BadWeights(f"{at}/cache is missing: {path} is no voice of this model")
        room = cache.shape[2] if cache.ndim == 5 else 0
        if cache.shape != (2, 1, room, layers.kv_heads, layers.dim):
            raise BadWeights(
                f"{at}/cache has shape {list(cache.shape)}, expected [2, 1, positions, "
                f"{layers.kv_heads}, {layers.dim}]: {path} is a voice of another model"
            )
        count = _count(tensors, at, path)
        if not 0 < count <= room:
            raise BadWeights(f"{at} has {count} positions in room for {room} ({path})")
        values = np.ascontiguousarray(cache[:, 0, :count], np.float32)
        if not np.isfinite(values).all():
            raise BadWeights(f"{at}/cache has what is no number ({path})")
        if kept and kept[0].shape[1] != count:
            raise BadWeights(
                f"{at} has {count} positions, other layers {kept[0].shape[1]} ({path})"
            )
        kept.append(values)
    extra = f"transformer.layers.{layers.layers}.self_attn/cache"
    if extra in tensors:
        raise BadWeights(f"{path} has more layers than this model: a voice of another one")
    return PocketVoice(kept)


def _count(tensors: dict[str, np.ndarray], at: str, path: Path) -> int:
    """Positions that count, by a new or an old file."""
    pad = tensors.get(f"{at}/pad")
    if pad is not None and pad.any():
        raise BadWeights(f"{at}/pad is {pad.reshape(-1)[:4].tolist()}, expected 0 ({path})")
    offset = tensors.get(f"{at}/offset")
    if offset is not None:
        if offset.size != 1:
            raise BadWeights(f"{at}/offset has {offset.size} numbers, expected 1 ({path})")
        return int(offset.reshape(-1)[0])
    end = tensors.get(f"{at}/current_end")
    if end is None or end.ndim == 0:
        raise BadWeights(f"{at}/offset is missing ({path})")
    return int(end.shape[0])


def _tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of a safetensors file, checked against its size."""
    try:
        data = np.memmap(path, np.uint8, "r")
    except FileNotFoundError:
        raise NotFound(f"no such file: {path}") from None
    except (OSError, ValueError) as error:
        raise NotFound(f"{path} cannot be read: {error}") from None
    length = int(data[:8].view("<u8")[0]) if data.size >= 8 else 0
    if not 2 <= length <= min(LARGEST_HEADER, data.size - 8):
        raise BadWeights(f"{path} does not begin as a voice's file does")
    try:
        header = json.loads(data[8 : 8 + length].tobytes().decode())
    except (ValueError, RecursionError) as error:
        raise BadWeights(f"the JSON of {path} cannot be read: {error}") from None
    if not isinstance(header, dict):
        raise BadWeights(f"the JSON of {path} is no object")
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return {name: _tensor(body, name, entry, path) for name, entry in header.items()}


def _tensor(body: np.ndarray, name: str, entry: Any, path: Path) -> np.ndarray:
    entry = entry if isinstance(entry, dict) else {}
    kind, shape, between = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    whole = all(
        isinstance(found, list) and all(type(n) is int and 0 <= n < 1 << 40 for n in found)
        for found in (shape, between)
    )
    if kind not in TYPES or not whole or len(shape) > 5 or len(between) != 2:
        raise BadWeights(f"{name} is described as {str(entry)[:100]} ({path})")
    start, end = between
    size = math.prod(shape) * np.dtype(TYPES[kind]).itemsize
    if end - start != size or end > body.size:
        raise BadWeights(f"{name} does not fit its place in {path}: a file cut short or damaged")
    values: np.ndarray = body[start:end].view(TYPES[kind]).reshape(shape)
    if kind == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values
