"""Where the values of a program lie on the processor.

The arena holds every value that outlives a stage, each at the place that `plan.place` found; a
value that only one row stage reads lies in the worker's scratch memory. Values of the reading and
of the drafting pass share the arena, since only one of them is under way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from golem_core.graph.graph import Graph
from golem_core.graph.plan import Block, place
from golem_core.graph.record import DRAFTING, PICKED, Tensor, rate
from golem_core.graph.rope import Rope
from golem_core.graph.stages import (
    AttendStage,
    ConvolveStage,
    ExpertStage,
    ProductStage,
    RowStage,
    ScanStage,
    Stage,
    WithinStage,
)
from golem_core.graph.storage import View

Where = tuple[bool, int, int]  # in the arena, offset, bytes from a row to the next
Room = tuple[int, int, int]  # of codes in the arena: offset, elements of a row, rows


class Arena:
    """The places of all values, codes and angles, and of what experts read.

    nbytes   of the arena
    rounded  where columns rounded to bf16 lie
    scratch  bytes of a worker's own memory, for the row stage that needs most
    shown    the values that may be asked for after a pass, by name
    """

    def __init__(
        self,
        graph: Graph,
        stages: Sequence[Stage],
        views: Mapping[Tensor, View],
        width: int,
        outputs: int,
        kept: Sequence[str],
        coded: Collection[str],
        rounding: Collection[str],
    ) -> None:
        self.views = views
        self._width, self._outputs = width, outputs
        self._rows = max(width, outputs)
        self._coded, self._rounding = {*coded, *rounding}, {*rounding}
        named = {op.output.name: op.output for op in graph.ops if op.output is not None}
        ends = [t.name for t in (graph.result, graph.draft) if t is not None]
        self.shown = {name: named[name] for name in (*kept, *ends)}
        self._first: dict[Tensor, int] = {}
        self._last: dict[Tensor, int] = {}
        self._inside: set[Tensor] = set()  # read by another stage than the one that wrote it
        for op in graph.ops:
            if op.kind == "input" and op.output is not None:  # written before the first stage
                self._first[op.output] = self._last[op.output] = -1
                self._inside.add(op.output)
        for index, stage in enumerate(stages):
            self._follow(index, stage)
        for tensor in self.shown.values():
            self._inside.add(self._root(tensor))
            self._last[self._root(tensor)] = len(stages)

        values = {root: self._value(root) for root in self._inside}
        self.code_rows: dict[View, int] = {}
        codes, rounded = self._codes(stages), self._roundings(stages)
        spreads = {
            stage: Block(self._spread(stage), index, index)
            for index, stage in enumerate(stages)
            if isinstance(stage, ExpertStage)
        }
        leads = {
            stage: Block(self._lead(stage), index, index)
            for index, stage in enumerate(stages)
            if isinstance(stage, ConvolveStage)
        }
        windows = {
            stage: Block(code_bytes(self._window_rows(stage), window_size(stage)), index, index)
            for index, stage in enumerate(stages)
            if isinstance(stage, ConvolveStage) and self._reads_codes(stage)
        }
        ropes = {op.attributes["rope"]: None for op in graph.ops if op.kind == "rope"}
        turns = {rope: Block(4 * width * rope.dims, -1, len(stages)) for rope in ropes}
        blocks = (values, codes, rounded, spreads, turns, leads, windows)
        self.nbytes = place([block for made in blocks for block in made.values()])
        self.codes: dict[View, Room] = {
            view: (block.offset, view.size, self.code_rows[view]) for view, block in codes.items()
        }
        self.rounded: dict[View, Where] = {
            view: (True, block.offset, rounded_bytes(view.size)) for view, block in rounded.items()
        }
        self.spreads = {stage: block.offset for stage, block in spreads.items()}
        self.leads = {stage: block.offset for stage, block in leads.items()}
        self.windows: dict[ConvolveStage, Room] = {
            stage: (block.offset, window_size(stage), self._window_rows(stage))
            for stage, block in windows.items()
        }
        self.turns: dict[Rope, Where] = {
            rope: (True, block.offset, 4 * rope.dims) for rope, block in turns.items()
        }
        self.places: dict[Tensor, Where] = {
            root: (True, block.offset, 4 * root.size) for root, block in values.items()
        }
        used = [0] * len(stages)
        for root, index in self._first.items():
            if root not in self._inside:
                self.places[root] = (False, used[index], 0)
                used[index] += -(-4 * root.size // 64) * 64
        self.scratch = max(used, default=0)

    def place_of(self, tensor: Tensor) -> Where:
        """Where a value lies, which may be a part of another."""
        view = self.views[tensor]
        inside, offset, stride = self.places[view.root]
        stride = stride * rate(view.root.rows) // rate(tensor.rows)
        return inside, offset + 4 * view.offset, stride

    def _root(self, tensor: Tensor) -> Tensor:
        return self.views[tensor].root

    def _follow(self, index: int, stage: Stage) -> None:
        """Lets the values live that a stage touches."""
        reads, writes = touched(stage, self._coded)
        for tensor in writes:
            self._first[self._root(tensor)] = self._last[self._root(tensor)] = index
        if not isinstance(stage, RowStage):
            self._inside.update(self._root(tensor) for tensor in writes)
        for tensor in reads:
            root = self._root(tensor)
            self._last[root] = max(self._last[root], index)
            if self._first[root] != index or isinstance(stage, AttendStage):
                self._inside.add(root)
        if isinstance(stage, RowStage):
            # Of these, rows are read beside the one that a worker is at.
            others = [op.inputs[0] for op in stage.ops if op.kind in ("pick", "pool")]
            others += [tensor for op in stage.ops if op.kind == "store" for tensor in op.inputs]
            self._inside.update(self._root(tensor) for tensor in others)

    def _value(self, root: Tensor) -> Block:
        few = root.rows == PICKED or root.part == DRAFTING
        rows = self._outputs if few else self._width * rate(root.rows)
        return Block(4 * rows * root.size, self._first[root], self._last[root])

    def _most_rows(self, tensor: Tensor) -> int:
        """The most rows that a pass has of what a product reads."""
        return max(self._rows, self._width * rate(tensor.rows))

    def _codes(self, stages: Sequence[Stage]) -> dict[View, Block]:
        """The quantised rows, from the stage that makes them to the last product."""
        made: dict[View, Block] = {}
        for index, stage in enumerate(stages):
            if isinstance(stage, RowStage):
                for tensor in stage.quantise:
                    view = self.views[tensor]
                    rows = self.code_rows[view] = self._most_rows(tensor)
                    made[view] = Block(code_bytes(rows, view.size), index, index)
            elif isinstance(stage, (ProductStage, ExpertStage)) and self.views[stage.x] in made:
                made[self.views[stage.x]].last = index
        return made

    def _lead(self, stage: ConvolveStage) -> int:
        """Bytes of a convolution's rows and those before them, of as many sequences as may be."""
        rows = self._width * (rate(stage.rows) + stage.past)
        return 4 * rows * stage.x.size

    def _reads_codes(self, stage: ConvolveStage) -> bool:
        return stage.product.weight.stored.format.name in self._coded - self._rounding

    def _window_rows(self, stage: ConvolveStage) -> int:
        """The most windows of a convolution that a pass has."""
        return self._width * rate(stage.rows)

    def _roundings(self, stages: Sequence[Stage]) -> dict[View, Block]:
        """The rows rounded to bf16, likewise."""
        made: dict[View, Block] = {}
        for index, stage in enumerate(stages):
            if isinstance(stage, RowStage):
                for tensor in stage.rounding:
                    view = self.views[tensor]
                    rows = self._most_rows(tensor)
                    made[view] = Block(rows * rounded_bytes(view.size), index, index)
            elif isinstance(stage, (ProductStage, ExpertStage)) and self.views[stage.x] in made:
                made[self.views[stage.x]].last = index
        return made

    def _spread(self, stage: ExpertStage) -> int:
        """Bytes of what the experts read, a row for each that a row has chosen."""
        pairs, cols = self._rows * stage.routing.shape[1], stage.x.shape[-1]
        floats = 4 * pairs * cols + 64 if reads_floats(stage, self._coded) else 0
        formats = {p.weight.stored.format.name for p in stage.products}
        rounded = pairs * rounded_bytes(cols) + 64 if formats & self._rounding else 0
        return code_bytes(pairs, cols) + floats + rounded


def touched(stage: Stage, coded: Collection[str]) -> tuple[list[Tensor], list[Tensor]]:
    """The values that a stage reads and writes; a product that reads codes does not read floats."""
    if isinstance(stage, RowStage):
        reads = [t for op in stage.ops for t in op.inputs]
        reads += stage.quantise + stage.rounding
        return reads, [op.output for op in stage.ops if op.output is not None]
    if isinstance(stage, (AttendStage, ScanStage, WithinStage)):
        assert stage.op.output is not None
        return list(stage.op.inputs), [stage.op.output]
    if isinstance(stage, ConvolveStage):
        also = [] if stage.product.residual is None else [stage.product.residual]
        return [stage.x, *also], [stage.product.out]
    reads = [p.residual for p in stage.products if p.residual is not None]
    if reads_floats(stage, coded) or (isinstance(stage, ExpertStage) and stage.each):
        reads.append(stage.x)
    if isinstance(stage, ExpertStage):
        reads.append(stage.routing)
    return reads, [p.out for p in stage.products]


def reads_floats(stage: ProductStage | ExpertStage, coded: Collection[str]) -> bool:
    """Whether one of the products at least reads neither codes nor rounded columns."""
    return any(p.weight.stored.format.name not in coded for p in stage.products)


def window_size(stage: ConvolveStage) -> int:
    """Elements of a window of a convolution."""
    return (stage.past + 1) * stage.x.size


def code_bytes(rows: int, cols: int) -> int:
    """Codes, scales, sums and halves of so many rows, as `Tape.columns` lays them."""
    parts = (rows * cols, rows * cols // 8, rows * cols // 8, rows * cols // 4)
    return sum(-(-part // 64) * 64 for part in parts)


def rounded_bytes(cols: int) -> int:
    """Bytes of a row rounded to bf16: room for an even number of float32."""
    return 4 * (cols + cols % 2)
