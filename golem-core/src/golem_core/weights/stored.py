"""What an opened file of weights is: its metadata and its named, mapped tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from golem_core.closing import Closing
from golem_core.weights.formats import Format
from golem_core.weights.mapping import MappedFile, bad

# Elements dequantised at once, which bounds the memory that the temporaries take.
_PIECE = 1 << 20


@dataclass(frozen=True, eq=False)
class Stored:
    """One tensor as it lies in a file.

    shape is in numpy's order, slowest axis first: a matrix of a linear layer is [out, in], and a
    row is the last axis. Blocks run along the last axis, whose length the reader has checked to be
    a whole number of them. file and offset say where the bytes lie.
    """

    name: str
    format: Format
    shape: tuple[int, ...]
    file: MappedFile
    offset: int

    @property
    def elements(self) -> int:
        """How many values the tensor has."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def nbytes(self) -> int:
        """How many bytes the tensor takes in the file."""
        return self.elements // self.format.block * self.format.nbytes

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The stored bytes, uint8 [nbytes], read-only, mapped."""
        if self.file.data.size == 0:
            raise ValueError(f"{self.file.path} was closed; {self.name} can no longer be read")
        return self.file.data[self.offset : self.offset + self.nbytes]

    def dequantize(self, rows: slice | None = None) -> npt.NDArray[np.float32]:
        """The values, float32 in `shape`; with `rows` only that range of the first axis.

        Raises Unsupported for a format that golem does not compute with, and ValueError for rows of
        a vector or with a step.
        """
        shape, data = self.shape, self.data
        if rows is not None:
            if len(shape) < 2:
                raise ValueError(f"{self.name} has one axis and no rows to choose from")
            start, stop, step = rows.indices(shape[0])
            if step != 1:
                raise ValueError(f"rows of {self.name} are read in order, not with step {step}")
            stop = max(stop, start)
            each = self.nbytes // shape[0]
            data = data[start * each : stop * each]
            shape = (stop - start, *shape[1:])
        blocks = data.reshape(-1, self.format.nbytes)
        out = np.empty((len(blocks), self.format.block), np.float32)
        piece = max(1, _PIECE // self.format.block)
        for at in range(0, max(len(blocks), 1), piece):
            out[at : at + piece] = self.format.dequantize(blocks[at : at + piece])
        return out.reshape(shape)

    def checksum(self) -> str:
        """SHA-256 of the stored bytes, the first 32 hex digits; reads the whole tensor."""
        return hashlib.sha256(self.data.data).hexdigest()[:32]

    def drop_pages(self) -> None:
        """Gives the mapped memory back; the next read brings the bytes from the file again."""
        self.file.drop(self.offset, self.nbytes)

    def __repr__(self) -> str:
        return f"Stored({self.name}, {self.format.name}, {list(self.shape)})"


@dataclass(frozen=True, eq=False)
class Weights(Closing):
    """An opened model: metadata and tensors, in the order of the file.

    path is what was opened; container is ``gguf`` or ``safetensors``; files are the mapped files.
    Metadata values are int, float, bool, str, read-only numpy arrays, and StringArray; those of
    safetensors are the values of config.json. A context manager, which closes.
    """

    path: Path
    container: str
    metadata: Mapping[str, object]
    tensors: Mapping[str, Stored]
    files: tuple[MappedFile, ...] = field(repr=False)

    @property
    def declares(self) -> bool:
        """Whether the file says what it is: whether `architecture` is there."""
        value = self.metadata.get(self._declared_by)
        return isinstance(value, str) and bool(value)

    @property
    def _declared_by(self) -> str:
        return "general.architecture" if self.container == "gguf" else "model_type"

    @property
    def architecture(self) -> str:
        """What the file declares itself to be: general.architecture, or config.json's model_type.

        Raises BadWeights if it declares nothing.
        """
        key = self._declared_by
        value = self.metadata.get(key)
        if not isinstance(value, str) or not value:
            where = self.path.name if self.container == "gguf" else "config.json beside it"
            raise bad(f"{key} is missing, so no plugin can be chosen for it ({where})")
        return value

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def close(self) -> None:
        """Unmaps the files. Arrays taken from tensors keep their mapping until they go."""
        for file in self.files:
            file.close()
