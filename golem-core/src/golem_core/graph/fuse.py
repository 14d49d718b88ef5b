"""From a record to stages (`stages.py`): what can be done together, in which order.

Fusing changes no value: the same sums in the same order.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heappop, heappush

from golem_core.graph.graph import Graph
from golem_core.graph.record import READING, Op, Tensor
from golem_core.graph.stages import (
    AttendStage,
    ConvolveStage,
    ExpertStage,
    Product,
    ProductStage,
    RowStage,
    ScanStage,
    Stage,
    WithinStage,
)
from golem_core.graph.storage import View, is_view, storage

ROWS = "rows"  # the kind of all that is done row by row
SCANS = ("conv", "delta", "previous")
ALONE = (
    "linear",
    "linear_experts",
    "attend",
    "attend_within",
    "convolve",
    *SCANS,
)  # what is no operation on single rows


def fuse(
    graph: Graph,
    coded: Collection[str],
    keep: Collection[str],
    part: str = READING,
    rounded: Collection[str] = (),
) -> list[Stage]:
    """The stages of one part of `graph`.

    coded    the formats whose products read codes (quantised columns) instead of floats
    keep     names of waypoints that must exist by themselves
    rounded  the formats whose products read columns rounded to bf16
    """
    return _Scheduler(graph, frozenset(coded), frozenset(keep), part, frozenset(rounded)).stages()


class _Scheduler:
    """Takes operations as they become ready: rows first, then products, then all others.

    An operation waits for its inputs, and an attention for the stores before it, of the same
    cache, whose keys it reads.
    """

    def __init__(
        self,
        graph: Graph,
        coded: frozenset[str],
        keep: frozenset[str],
        part: str,
        rounded: frozenset[str],
    ) -> None:
        self.graph, self.coded, self.keep, self.rounded = graph, coded, keep, rounded
        self.views = storage(graph)
        ops = graph.part(part)
        self.place = {op: i for i, op in enumerate(ops)}  # of those that are still to be taken
        self.quantised: set[View] = set()
        self.rounds: set[View] = set()
        self.sorted: Tensor | None = None  # the routing that rows were last sorted by
        self.made: list[Stage] = []
        self.readers: dict[Tensor, list[Op]] = {}
        self.made_by = {op.output: op for op in ops if op.output is not None}
        self.done: set[Tensor] = set()
        self.missing: dict[Op, int] = {}
        self.after_store: dict[Op, list[Op]] = {}
        self.ready: dict[str, list[tuple[int, Op]]] = {kind: [] for kind in (ROWS, *ALONE)}
        last: dict[int, Op] = {}
        for op in ops:
            for tensor in op.inputs:
                self.readers.setdefault(tensor, []).append(op)
            self.missing[op] = len(op.inputs)
            if op.kind == "store":
                last[op.attributes["cache"].index] = op
            elif op.kind == "attend" and op.attributes["cache"].index in last:
                store = last[op.attributes["cache"].index]
                self.after_store.setdefault(store, []).append(op)
                self.missing[op] += 1
            if not self.missing[op]:
                self.is_ready(op)

    def stages(self) -> list[Stage]:
        while self.place:
            took = self.take_rows() or self.take_products() or self.take_experts()
            if not (took or self.take_scan() or self.take_attend() or self.take_other()):
                raise ValueError(f"{next(iter(self.place)).name} waits for what nothing computes")
        return self.made

    def is_ready(self, op: Op) -> None:
        kind = op.kind if op.kind in ALONE else ROWS
        heappush(self.ready[kind], (self.place[op], op))

    def first(self, kind: str) -> Op | None:
        """The first operation of the record, of those of a kind, that can be taken now."""
        heap = self.ready[kind]
        while heap:
            op = heap[0][1]
            if op in self.place:
                return op
            heappop(heap)
        return None

    def finish(self, op: Op) -> None:
        del self.place[op]
        waiting = self.after_store.get(op, [])
        if op.output is not None:
            self.done.add(op.output)
            waiting = [*waiting, *self.readers.get(op.output, [])]
        for other in waiting:
            self.missing[other] -= 1
            if not self.missing[other] and other in self.place:
                self.is_ready(other)

    def row_stage(self, rows: str, fresh: bool = False) -> RowStage:
        """The last stage if it is one of such rows, else a new one."""
        last = self.made[-1] if self.made else None
        if isinstance(last, RowStage) and last.rows == rows and not fresh:
            return last
        self.made.append(RowStage(rows))
        return self.made[-1]  # type: ignore[return-value]

    def take_rows(self) -> bool:
        took = False
        while (op := self.first(ROWS)) is not None:
            if not is_view(op) and not self.taken_along(op):
                symbol = (op.output or op.inputs[0]).rows
                # These read rows that other workers wrote: they begin a stage.
                self.row_stage(symbol, fresh=op.kind in ("pick", "pool")).ops.append(op)
            self.finish(op)
            took = True
        return took

    def taken_along(self, op: Op) -> bool:
        """Whether an activation is done where the one convolution that reads it brings its rows."""
        if op.kind != "activate" or op.output is None:
            return False
        reader = self.only_reader(op.output)
        return reader is not None and reader.kind == "convolve"

    def alike(self, op: Op) -> list[Op]:
        """The operations of its kind, still to be taken, that read what `op` reads."""
        readers = dict.fromkeys(self.readers[op.inputs[0]])
        same = op.inputs if op.kind == "linear_experts" else op.inputs[:1]
        return [
            other
            for other in readers
            if other in self.place and other.kind == op.kind and other.inputs[: len(same)] == same
        ]

    def take_products(self) -> bool:
        op = self.first("linear")
        if op is None:
            return False
        x, linears = op.inputs[0], self.alike(op)
        self.want_codes(x, linears)
        self.made.append(ProductStage(x, self.products(linears)))
        return True

    def take_experts(self) -> bool:
        op = self.first("linear_experts")
        if op is None:
            return False
        x, routing = op.inputs
        linears = self.alike(op)
        # What is of each expert by itself is quantised where it is put beside others.
        if len(x.shape) == 1:
            self.want_codes(x, linears)
        sorts, self.sorted = routing is not self.sorted, routing
        self.made.append(ExpertStage(x, routing, self.products(linears), sorts))
        return True

    def want_codes(self, x: Tensor, linears: list[Op]) -> None:
        """Has x quantised once, if one of its products reads codes; likewise rounded."""
        formats = {o.weights[0].stored.format.name for o in linears}
        if formats & self.coded and self.views[x] not in self.quantised:
            self.row_stage(x.rows).quantise.append(x)
            self.quantised.add(self.views[x])
        if formats & self.rounded and self.views[x] not in self.rounds:
            self.row_stage(x.rows).rounding.append(x)
            self.rounds.add(self.views[x])

    def products(self, linears: list[Op]) -> list[Product]:
        products: list[Product] = []
        taken: set[Op] = set()
        for op in linears:
            if op not in taken:
                products.append(self.product(op, linears, taken))
        return products

    def product(self, op: Op, linears: list[Op], taken: set[Op]) -> Product:
        """One linear with what can be finished where its result stands."""
        assert op.output is not None
        bias = op.weights[1] if len(op.weights) > 1 else None
        experts = op.kind == "linear_experts"
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
                alike = alike and up.weights[0].shape == gate.weights[0].shape
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
        elif after.kind == "add" and not experts:
            a, b = after.inputs
            other_term = b if a is op.output else a
            if other_term is not op.output and other_term in self.done and after.output is not None:
                made.residual, made.out = other_term, after.output
                self.finish(after)
        elif after.kind == "activate" and not experts and not self.taken_along(after):
            assert after.output is not None
            made.act, made.out = after.attributes["act"], after.output
            self.finish(after)
        return made

    def only_reader(self, tensor: Tensor) -> Op | None:
        """The one operation that reads `tensor`, if nobody else wants its value."""
        readers = self.readers.get(tensor, [])
        if len(readers) != 1 or tensor.name in self.keep:
            return None
        if tensor is self.graph.result or tensor is self.graph.draft:
            return None
        return readers[0]

    @staticmethod
    def linear_of(tensor: Tensor, linears: list[Op]) -> Op | None:
        return next((o for o in linears if o.output is tensor), None)

    def take_scan(self) -> bool:
        ready = [op for op in map(self.first, SCANS) if op is not None]
        if not ready:
            return False
        op = min(ready, key=self.place.__getitem__)
        self.made.append(ScanStage(op))
        self.finish(op)
        return True

    def take_attend(self) -> bool:
        op = self.first("attend")
        if op is None:
            return False
        self.made.append(AttendStage(op))
        self.finish(op)
        return True

    def take_other(self) -> bool:
        return self.take_within() or self.take_convolution()

    def take_within(self) -> bool:
        op = self.first("attend_within")
        if op is None:
            return False
        self.made.append(WithinStage(op))
        self.finish(op)
        return True

    def take_convolution(self) -> bool:
        op = self.first("convolve")
        if op is None:
            return False
        x, act = op.inputs[0], ""
        before = self.made_by.get(x)
        if before is not None and before.kind == "activate" and self.taken_along(before):
            x, act = before.inputs[0], before.attributes["act"]
        self.made.append(ConvolveStage(op, x, act, self.product(op, [], set())))
        return True
