"""What is known of a model by its file alone, without loading it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golem_core import hub
from golem_core.api import open_generator
from golem_core.errors import NotFound
from golem_core.sampling.parameters import RECOMMENDED
from golem_core.weights import Weights, open_weights
from golem_server.models import Offer

__all__ = ["Description", "File", "describe", "file_of"]

# What `general.file_type` says of how most tensors are stored.
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 25: "IQ4_NL", 30: "IQ4_XS", 32: "BF16", 38: "MXFP4",
}  # fmt: skip
LONGEST = 64  # elements of an array that is shown whole


@dataclass(frozen=True)
class File:
    """A file of weights: `size` in bytes, `modified` in seconds since 1970.

    `digest` is a stable id of this file in this state, not the sum of its content, which would take
    seconds to compute.
    """

    path: Path
    size: int
    modified: float

    @property
    def digest(self) -> str:
        """64 hexadecimal digits."""
        state = f"{self.path}\0{self.size}\0{self.modified}"
        return hashlib.sha256(state.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True)
class Description:
    """What the header of a file says."""

    architecture: str
    container: str
    parameters: int
    quantization: str
    context: int | None
    template: str
    license: str
    recommended: dict[str, Any]
    metadata: dict[str, Any]
    calls: bool  # whether it can call tools
    thinks: bool


def file_of(offer: Offer) -> File | None:
    """The file of a model that is on this machine; None for one that would have to be fetched."""
    reference = hub.parse(offer.reference)
    if reference.kind not in ("path", "name"):
        known = [model for model in hub.known() if model.reference == offer.reference]
        if not known:
            return None
    try:
        path = hub.resolve(offer.reference)
    except NotFound:
        return None
    state = path.stat()
    size = state.st_size
    if path.is_dir():
        size = sum(one.stat().st_size for one in path.iterdir() if one.is_file())
    return File(path, size, state.st_mtime)


def describe(file: File, *, everything: bool = False) -> Description:
    """Reads the header; with `everything` long arrays as well. Raises as `open_weights`."""
    with open_weights(file.path) as weights:
        model = open_generator(weights)
        form = model.format(weights)
        metadata = weights.metadata
        template = metadata.get("tokenizer.chat_template")
        return Description(
            architecture=weights.architecture,
            container=weights.container,
            parameters=sum(tensor.elements for tensor in weights.tensors.values()),
            quantization=_quantization(weights),
            context=model.context,
            template=template if isinstance(template, str) else "",
            license=str(metadata.get("general.license", "")),
            recommended={
                name: _plain(metadata[f"general.sampling.{key}"], True)
                for key, name in RECOMMENDED.items()
                if f"general.sampling.{key}" in metadata
            },
            metadata={key: _plain(metadata[key], everything) for key in metadata},
            calls=form is not None and form.call is not None,
            thinks=form is not None and form.thought is not None,
        )


def _quantization(weights: Weights) -> str:
    kind = weights.metadata.get("general.file_type")
    if isinstance(kind, (int, np.integer)) and int(kind) in FILE_TYPES:
        return FILE_TYPES[int(kind)]
    sizes: dict[str, int] = {}
    for tensor in weights.tensors.values():
        sizes[tensor.format.name] = sizes.get(tensor.format.name, 0) + tensor.nbytes
    return max(sizes, key=lambda name: sizes[name], default="")


def _plain(value: Any, everything: bool) -> Any:
    """A value as JSON has it: long arrays empty unless `everything`, what is no number null."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (Sequence, np.ndarray)):
        if len(value) > LONGEST and not everything:
            return []
        return [_plain(one, everything) for one in value]
    return str(value)
