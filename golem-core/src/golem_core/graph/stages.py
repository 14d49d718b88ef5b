"""What a program of the processor is made of: seven kinds of stage, with one barrier after each.

A `RowStage` is a list of operations that read and write one row only, so a worker takes a row
through all of them while it is in the nearest cache. A `ProductStage` multiplies one input with
several matrices (the shared quantisation, the q-k-v group) and finishes each result where it stands
(bias, residual, the gate of a GLU). An `ExpertStage` does so with the matrices of the experts that
each row has chosen. An `AttendStage` is one layer's attention over pages, a `WithinStage` one
within the texts of a pass, a `ScanStage` takes a sequence's rows one after the other, and a
`ConvolveStage` is a product over windows of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from golem_core.graph.record import Op, Tensor, Weight


@dataclass(eq=False)
class RowStage:
    """Operations on single rows, and the tensors of which products want another form.

    quantise  as codes; rounding: rounded to bf16
    """

    rows: str
    ops: list[Op] = field(default_factory=list)
    quantise: list[Tensor] = field(default_factory=list)
    rounding: list[Tensor] = field(default_factory=list)


@dataclass(eq=False)
class Product:
    """One matrix of a product stage: out = x * weight + bias + residual.

    With `gate` set: out = act(x * gate + gate_bias) * (x * weight + bias); with `act` alone: out =
    act(x * weight + bias).
    """

    out: Tensor
    weight: Weight
    bias: Weight | None = None
    residual: Tensor | None = None
    gate: Weight | None = None
    gate_bias: Weight | None = None
    act: str = ""


@dataclass(eq=False)
class ProductStage:
    """Matrices that are multiplied with one input."""

    x: Tensor
    products: list[Product]

    @property
    def rows(self) -> str:
        """The symbol of the row count."""
        return self.x.rows


@dataclass(eq=False)
class ExpertStage:
    """Experts' matrices [experts, outputs, inputs] that are multiplied with one input.

    The input has one row for all of a row's experts, or `each` of them has its own. `sorts`: the
    rows have not been sorted by this routing yet.
    """

    x: Tensor
    routing: Tensor
    products: list[Product]
    sorts: bool

    @property
    def rows(self) -> str:
        """The symbol of the row count."""
        return self.x.rows

    @property
    def each(self) -> bool:
        """Whether every chosen expert reads a row of its own."""
        return len(self.x.shape) == 2


@dataclass(eq=False)
class ScanStage:
    """An operation that carries a state from row to row."""

    op: Op

    @property
    def rows(self) -> str:
        """The symbol of the row count."""
        return self.op.inputs[0].rows


@dataclass(eq=False)
class AttendStage:
    """The attention of one layer."""

    op: Op

    @property
    def rows(self) -> str:
        """The symbol of the row count."""
        return self.op.inputs[0].rows


@dataclass(eq=False)
class WithinStage:
    """The attention of one layer within texts."""

    op: Op

    @property
    def rows(self) -> str:
        """The symbol of the row count."""
        return self.op.inputs[0].rows


@dataclass(eq=False)
class ConvolveStage:
    """A convolution over rows: act(x), where there is an `act`, in windows, times a matrix."""

    op: Op
    x: Tensor
    act: str
    product: Product

    @property
    def rows(self) -> str:
        """The symbol of the row count."""
        return self.x.rows

    @property
    def past(self) -> int:
        """Rows before the newest in a window."""
        past: int = self.op.attributes["state"].shape[0]
        return past


Stage = (
    RowStage | ProductStage | ExpertStage | ScanStage | AttendStage | WithinStage | ConvolveStage
)
