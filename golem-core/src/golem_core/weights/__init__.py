"""Files of weights: GGUF and safetensors, to metadata and named, mapped tensors."""

from __future__ import annotations

import os
from pathlib import Path

from golem_core.errors import NotFound
from golem_core.weights._strings import Strings, misfit
from golem_core.weights.formats import BY_NUMBER, FORMATS, Format
from golem_core.weights.gguf import StringArray, is_gguf, open_gguf
from golem_core.weights.keys import Keys
from golem_core.weights.mapping import MappedFile, not_weights
from golem_core.weights.safetensors import is_safetensors, open_safetensors
from golem_core.weights.stored import Stored, Weights

__all__ = [
    "BY_NUMBER",
    "FORMATS",
    "Format",
    "Keys",
    "Stored",
    "StringArray",
    "Strings",
    "Weights",
    "misfit",
    "open_weights",
]


def open_weights(path: str | os.PathLike[str]) -> Weights:
    """Opens a GGUF file (any part of a split model), a safetensors file, or a folder of them.

    What a file is shows in its first bytes, never in its name. The whole header is checked, no
    tensor is read. Raises NotFound if there is nothing there, and BadWeights, naming file, key or
    tensor and what is wrong, for a file that is damaged, cut off, hostile, or no weights at all.
    """
    path = Path(path)
    try:
        folder = path.is_dir()
    except ValueError as error:
        raise NotFound(f"{str(path)!r} is no path: {error}") from None
    if folder:
        return open_safetensors(path)
    file = MappedFile(path)
    if is_gguf(file):
        return open_gguf(file)
    if is_safetensors(file):
        return open_safetensors(path)
    raise not_weights(file)
