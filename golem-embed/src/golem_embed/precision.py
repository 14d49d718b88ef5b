"""How matrices are kept, and so multiplied.

    f32           in float32: as the file has them, F32 or F16; BF16 is widened, which changes no
                  number
    bf16          rounded to bfloat16
    int8-weights  8-bit weights in blocks of 32 with a scale each; what they are multiplied with
                  stays float32
    int8          8-bit weights, and what they are multiplied with in 8 bits too: rows and columns
                  have a scale for each 128 of their values, or for each 32 where rows are no
                  multiple of 128

What is looked up (tables), added or normed stays as it is in the file. A matrix that is quantised
in the file is never taken for another: it is multiplied as it is, and `keep` says so.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from golem_core.errors import BadRequest, Unsupported
from golem_core.graph import Graph
from golem_core.weights import FORMATS, Format, Stored, Weights

FORMAT = {"f32": "F32", "bf16": "BF16", "int8-weights": "W8", "int8": "W8A8"}
PRECISIONS = tuple(FORMAT)
FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, eq=False)
class Rounded(Stored):
    """A matrix of the file in another format, made when its bytes are asked for."""

    source: Stored
    _made: list[npt.NDArray[np.uint8]] = field(default_factory=list)

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes, which `drop_pages` lets go of."""
        if not self._made:
            quantize = self.format.quantize
            assert quantize is not None
            self._made.append(
                quantize(_blocks(self.source.dequantize(), self.format.block)).reshape(-1)
            )
        return self._made[0]

    def dequantize(self, rows: slice | None = None) -> npt.NDArray[np.float32]:
        """See `Stored.dequantize`."""
        values = self.format.dequantize(self.data.reshape(-1, self.format.nbytes))
        values = values.reshape(self.shape)
        return values if rows is None else values[rows]

    def drop_pages(self) -> None:
        """Lets the bytes go, and the file's pages that they were made from."""
        self._made.clear()
        self.source.drop_pages()


def _blocks(values: npt.NDArray[np.float32], block: int) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(values).reshape(-1, block)


def _wanted(precision: str, cols: int) -> Format:
    """The format that a matrix with rows of `cols` is kept in."""
    wanted = FORMATS[FORMAT[precision]]
    return FORMATS["Q8_0"] if precision == "int8" and cols % wanted.block else wanted


def matrices(graph: Graph) -> set[str]:
    """The names of what a graph multiplies with."""
    return {op.weights[0].name for op in graph.ops if op.kind == "linear"}


def keep(weights: Weights, precision: str, names: Collection[str]) -> tuple[Weights, str]:
    """The weights with their matrices `names` as they are to be kept, and what that is called.

    Raises `BadRequest` for no precision, and `Unsupported` for a matrix that cannot be kept so.
    """
    if precision not in FORMAT:
        raise BadRequest(
            f"precision is {precision!r}, expected {', '.join(PRECISIONS)}", "precision"
        )
    tensors = dict(weights.tensors)
    quantised = set()
    for name in names:
        stored = tensors[name]
        wanted = _wanted(precision, stored.shape[-1])
        if stored.format.name not in FLOATS:
            if precision != "f32":
                raise Unsupported(
                    f"{name} is {stored.format.name} already and is not made {precision}; leave "
                    f"the precision out ({weights.path})"
                )
            quantised.add(stored.format.name)
        elif stored.format is not wanted and not (
            precision == "f32" and stored.format.name == "F16"
        ):
            if stored.shape[-1] % wanted.block:
                raise Unsupported(
                    f"{name} has rows of {stored.shape[-1]}, no multiple of {wanted.block}, and "
                    f"cannot be made {precision} ({weights.path})"
                )
            tensors[name] = Rounded(name, wanted, stored.shape, stored.file, stored.offset, stored)
    said = precision if not quantised else ", ".join(sorted(quantised))
    return replace(weights, tensors=MappingProxyType(tensors)), said
