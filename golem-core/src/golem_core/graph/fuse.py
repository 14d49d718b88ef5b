"""From a record to stages: what a pool of workers can walk with one barrier after each.

Three kinds of stage carry every program. A `RowStage` is a list of operations that read and write
one row only, so a worker takes a row through all of them while it is in the nearest cache. A
`ProductStage` multiplies one input with several matrices (the shared quantisation, the q-k-v
group) and finishes each result where it stands (bias, residual, the gate of a GLU). An
`AttendStage` is one layer's attention. Fusing changes no value: the same sums in the same order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from golem_core.graph.graph import Graph, Op, Tensor, Weight


@dataclass(eq=False)
class RowStage:
    """Operations on single rows; `quantise` lists the tensors whose codes are wanted too."""

    rows: str
    ops: list[Op] = field(default_factory=list)
    quantise: list[Tensor] = field(default_factory=list)


@dataclass(eq=False)
class Product:
    """One matrix of a product stage: out = x * weight + bias + residual.

    With `gate` set: out = act(x * gate + gate_bias) * (x * weight + bias).
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
class AttendStage:
    """The attention of one layer."""

    op: Op

    @property
    def rows(self) -> str:
        """The symbol of the row count."""
        return self.op.inputs[0].rows


Stage = RowStage | ProductStage | AttendStage


def storage(graph: Graph) -> dict[Tensor, Tensor]:
    """For every tensor the one whose memory it shares: a reshape is another view."""
    roots: dict[Tensor, Tensor] = {}
    for op in graph.ops:
        if op.output is not None:
            same = op.kind == "reshape"
            roots[op.output] = roots[op.inputs[0]] if same else op.output
    return roots


def fuse(graph: Graph, coded: Collection[str], keep: Collection[str]) -> list[Stage]:
    """The stages of `graph`.

    coded  the formats whose products read codes (quantised columns) instead of floats
    keep   names of waypoints that must exist by themselves
    """
    return _Scheduler(graph, frozenset(coded), frozenset(keep)).stages()


class _Scheduler:
    """Takes operations as they become ready: rows first, then products, then attention."""

    def __init__(self, graph: Graph, coded: frozenset[str], keep: frozenset[str]) -> None:
        self.graph, self.coded, self.keep = graph, coded, keep
        self.roots = storage(graph)
        self.waiting = list(graph.ops)
        self.done: set[Tensor] = set()
        self.stored: set[Op] = set()
        self.quantised: set[Tensor] = set()
        self.made: list[Stage] = []
        self.readers: dict[Tensor, list[Op]] = {}
        for op in graph.ops:
            for tensor in op.inputs:
                self.readers.setdefault(tensor, []).append(op)
        # An attention reads what the stores before it, of the same cache, have written.
        last: dict[int, Op] = {}
        self.needs_store: dict[Op, Op] = {}
        for op in graph.ops:
            if op.kind == "store":
                last[op.attributes["cache"].index] = op
            elif op.kind == "attend" and op.attributes["cache"].index in last:
                self.needs_store[op] = last[op.attributes["cache"].index]

    def stages(self) -> list[Stage]:
        while self.waiting:
            if not (self.take_rows() or self.take_products() or self.take_attend()):
                raise ValueError(f"{self.waiting[0].name} waits for what nothing computes")
        return self.made

    def ready(self, op: Op) -> bool:
        store = self.needs_store.get(op)
        return all(t in self.done for t in op.inputs) and (store is None or store in self.stored)

    def finish(self, op: Op) -> None:
        self.waiting.remove(op)
        if op.output is not None:
            self.done.add(op.output)
        elif op.kind == "store":
            self.stored.add(op)

    def row_stage(self, rows: str, fresh: bool = False) -> RowStage:
        """The last stage if it is one of such rows, else a new one."""
        last = self.made[-1] if self.made else None
        if isinstance(last, RowStage) and last.rows == rows and not fresh:
            return last
        self.made.append(RowStage(rows))
        return self.made[-1]  # type: ignore[return-value]

    def take_rows(self) -> bool:
        took = False
        again = True
        while again:
            again = False
            for op in [o for o in self.waiting if o.kind not in ("linear", "attend")]:
                if not self.ready(op):
                    continue
                if op.kind != "reshape":
                    symbol = (op.output or op.inputs[0]).rows
                    # A pick reads rows that other workers wrote: it begins a stage.
                    self.row_stage(symbol, fresh=op.kind == "pick").ops.append(op)
                self.finish(op)
                took = again = True
                if op.kind == "pick":
                    break
        return took

    def take_products(self) -> bool:
        first = next((o for o in self.waiting if o.kind == "linear" and self.ready(o)), None)
        if first is None:
            return False
        x = first.inputs[0]
        linears = [o for o in self.waiting if o.kind == "linear" and o.inputs[0] is x]
        if any(o.weights[0].stored.format.name in self.coded for o in linears):
            root = self.roots[x]
            if root not in self.quantised:
                self.row_stage(x.rows).quantise.append(x)
                self.quantised.add(root)
        products: list[Product] = []
        taken: set[Op] = set()
        for op in linears:
            if op not in taken:
                products.append(self.product(op, linears, taken))
        self.made.append(ProductStage(x, products))
        return True

    def product(self, op: Op, linears: list[Op], taken: set[Op]) -> Product:
        """One linear with what can be finished where its result stands."""
        assert op.output is not None
        bias = op.weights[1] if len(op.weights) > 1 else None
        made = Product(op.output, op.weights[0], bias)
        after = self.only_reader(op.output)
        taken.add(op)
        self.finish(op)
        if after is None:
            return made
        if after.kind == "glu":
            gate, up = (self.linear_of(t, linears) for t in after.inputs)
            if gate and up and gate is not up and self.only_reader(after.inputs[0]) is after:
                other = up if op is gate else gate
                alike = up.weights[0].stored.format is gate.weights[0].stored.format
                if alike and self.only_reader(after.inputs[1]) is after and other not in taken:
                    taken.add(other)
                    self.finish(other)
                    made.weight, made.gate = up.weights[0], gate.weights[0]
                    made.bias = up.weights[1] if len(up.weights) > 1 else None
                    made.gate_bias = gate.weights[1] if len(gate.weights) > 1 else None
                    made.act = after.attributes["act"]
                    assert after.output is not None
                    made.out = after.output
                    self.finish(after)
        elif after.kind == "add":
            a, b = after.inputs
            other_term = b if a is op.output else a
            if other_term is not op.output and other_term in self.done and after.output is not None:
                made.residual, made.out = other_term, after.output
                self.finish(after)
        return made

    def only_reader(self, tensor: Tensor) -> Op | None:
        """The one operation that reads `tensor`, if nobody else wants its value."""
        readers = self.readers.get(tensor, [])
        if len(readers) != 1 or tensor.name in self.keep or tensor is self.graph.result:
            return None
        return readers[0]

    @staticmethod
    def linear_of(tensor: Tensor, linears: list[Op]) -> Op | None:
        return next((o for o in linears if o.output is tensor), None)

    def take_attend(self) -> bool:
        op = next((o for o in self.waiting if o.kind == "attend" and self.ready(o)), None)
        if op is None:
            return False
        self.made.append(AttendStage(op))
        self.finish(op)
        return True
