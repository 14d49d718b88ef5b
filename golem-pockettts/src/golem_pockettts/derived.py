"""Matrices as the programs want them: made of the file's tensors when they are packed.

A convolution is a product over windows of rows, so its taps become a matrix [outputs, taps *
inputs]; one that goes up by r has a row for each of its r results. BF16 is kept as F16, which the
processor multiplies with float32 columns: a weight of BF16 has 8 digits, F16 has 11, and what F16
cannot hold exactly is below 2^-17 and off by 2^-25 at most. Whatever is no longer a number of the
file (a scale put into a matrix) is float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from golem_core.errors import BadWeights
from golem_core.weights import FORMATS, Format, Stored, Weights

Array = npt.NDArray[np.float32]

Q8_BLOCK = 32
PIECE = 1 << 18  # elements that are brought into another format at a time


@dataclass(frozen=True, eq=False)
class Made(Stored):
    """A tensor that is computed from those of the file whenever its bytes are asked for."""

    make: Callable[[], Array]

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes, made anew."""
        values = self.make()
        if values.shape != self.shape:
            raise ValueError(f"{self.name} was made as {values.shape}, not {self.shape}")
        return encoded(values, self.format, self.name)

    def dequantize(self, rows: slice | None = None) -> Array:
        """See `Stored.dequantize`."""
        values = self.make()
        return values if rows is None else values[rows]

    def drop_pages(self) -> None:
        """Lets the file's pages go, which the values were made from."""
        self.file.drop(self.offset, self.nbytes)


@dataclass(frozen=True, eq=False)
class Same(Made):
    """A matrix of the file in another format; its bytes are made of some rows at a time.

    The file's own values in float32 would be the largest thing that loading ever holds.
    """

    source: Stored

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes, made anew."""
        count, cols = self.shape
        each = self.format.nbytes * cols // self.format.block
        out = np.empty(count * each, np.uint8)
        some = max(1, PIECE // cols)
        for at in range(0, count, some):
            end = min(count, at + some)
            values = self.source.dequantize(slice(at, end))
            out[at * each : end * each] = encoded(values, self.format, self.name)
        return out


def encoded(values: Array, format: Format, name: str) -> npt.NDArray[np.uint8]:
    """Float32 values as bytes of F32, F16 or Q8_0."""
    if format.name == "F32":
        return np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8)
    if format.name == "F16":
        if not np.abs(values).max(initial=0) < 65504:
            raise BadWeights(f"{name} has a weight beyond 65504, or one that is no number")
        return np.ascontiguousarray(values).astype(np.float16).reshape(-1).view(np.uint8)
    blocks = values.reshape(-1, Q8_BLOCK)
    scale = (np.abs(blocks).max(axis=1) / 127).astype(np.float16)
    inverse = np.divide(1, scale, out=np.zeros(len(scale), np.float32), where=scale != 0)
    out = np.empty((len(blocks), 2 + Q8_BLOCK), np.uint8)
    out[:, :2] = scale.view(np.uint8).reshape(-1, 2)
    codes = np.clip(np.rint(blocks * inverse[:, None]), -127, 127).astype(np.int8)
    out[:, 2:] = codes.view(np.uint8)
    return out.reshape(-1)


class Tensors:
    """The file's tensors, and what is made of them under new names.

    kept is the format of the large matrices: None as published, or ``Q8_0``.
    """

    def __init__(self, weights: Weights, kept: str | None = None) -> None:
        self.weights, self.kept = weights, kept
        self.made: dict[str, Stored] = {}

    def source(self, name: str, shape: tuple[int, ...]) -> Stored:
        """A tensor of the file; `BadWeights` where it is absent or of another shape."""
        stored = self.weights.tensors.get(name)
        if stored is None:
            raise BadWeights(f"{name} is missing ({self.weights.path})")
        if stored.shape != shape:
            raise BadWeights(
                f"{name} has shape {list(stored.shape)}, expected {list(shape)} "
                f"({self.weights.path})"
            )
        if stored.format.name not in ("F32", "F16", "BF16"):
            raise BadWeights(f"{name} is {stored.format.name}, expected F32, F16 or BF16")
        return stored

    def values(self, name: str, shape: tuple[int, ...]) -> Array:
        """The numbers of a tensor of the file, float32 in `shape`; the file's pages are let go."""
        stored = self.source(name, shape)
        found = stored.dequantize()
        stored.drop_pages()
        return found

    def matrix(self, name: str, shape: tuple[int, ...], heavy: bool = False) -> str:
        """A matrix of the file as it is multiplied; `heavy` may be kept in less. Its name."""
        stored = self.source(name, shape)
        less = heavy and self.kept == "Q8_0" and shape[1] % Q8_BLOCK == 0
        format = FORMATS["Q8_0" if less else wide(stored)]
        return self._add(
            Same(name, format, shape, stored.file, stored.offset, stored.dequantize, stored)
        )

    def remade(
        self,
        name: str,
        source: Stored,
        shape: tuple[int, ...],
        change: Callable[[Array], Array],
        exact: bool = True,
        block: int = 0,
    ) -> str:
        """A matrix made of a tensor's values; `exact` where they only change places. Its name.

        block  elements of a row of it that stand together; where they are whole blocks of 8-bit
               codes, the matrix may be kept in less, as a `heavy` one
        """
        format = wide(source) if exact else "F32"
        if block and self.kept == "Q8_0" and block % Q8_BLOCK == 0:
            format = "Q8_0"
        return self.put(name, source, shape, format, lambda: change(source.dequantize()))

    def vector(self, name: str, source: Stored, make: Callable[[], Array]) -> str:
        """A float32 vector that is made now. Its name."""
        values = make()
        return self.put(name, source, values.shape, "F32", lambda: values)

    def put(
        self,
        name: str,
        source: Stored,
        shape: tuple[int, ...],
        format: str,
        make: Callable[[], Array],
    ) -> str:
        """What is made under a name."""
        return self._add(Made(name, FORMATS[format], shape, source.file, source.offset, make))

    def _add(self, made: Made) -> str:
        if self.made.setdefault(made.name, made) is not made:
            raise ValueError(f"two tensors are named {made.name}")
        return made.name

    def opened(self) -> Weights:
        """All of these as the weights of a graph; those of the file that are only read too."""
        return Weights(
            self.weights.path,
            self.weights.container,
            self.weights.metadata,
            MappingProxyType({**self.weights.tensors, **self.made}),
            self.weights.files,
        )


def wide(stored: Stored) -> str:
    """The format of floats that a tensor is multiplied in."""
    return "F32" if stored.format.name == "F32" else "F16"


def taps(weight: Array) -> Array:
    """Taps [outputs, inputs, taps] as a matrix [outputs, taps * inputs]."""
    return np.ascontiguousarray(weight.transpose(0, 2, 1)).reshape(len(weight), -1)


def rising(weight: Array) -> Array:
    """Taps [inputs, outputs, 2 * r] of a step up by r as [r * outputs, 2 * inputs].

    The first half of the inputs are those of the row before, whose last r taps reach into this.
    """
    inputs, outputs, count = weight.shape
    r = count // 2
    now, before = weight[:, :, :r], weight[:, :, r:]
    both = np.stack([before, now])  # [2, inputs, outputs, r]
    return np.ascontiguousarray(both.transpose(3, 2, 0, 1)).reshape(r * outputs, 2 * inputs)
