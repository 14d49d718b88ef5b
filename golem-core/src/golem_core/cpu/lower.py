"""From a graph to a tape: kernels chosen, memory planned, weights packed.

This file decides; `tape.pyx` only does what the tape says. The arena holds every value that
outlives a stage, each at the place that `plan.place` found; a value that only one row stage reads
lies in the worker's scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from golem_core.cpu import dispatch
from golem_core.cpu.pool import Pool
from golem_core.cpu.tape import Tape
from golem_core.errors import BadRequest, Unsupported
from golem_core.graph.fuse import (
    AttendStage,
    Product,
    ProductStage,
    RowStage,
    Stage,
    fuse,
    storage,
)
from golem_core.graph.graph import COLUMNS, PICKED, Graph, Op, Rope, Tensor, Weight
from golem_core.graph.plan import Block, place
from golem_core.graph.program import PAGE, Batch, PageGroup, Program
from golem_core.threads import choose

# Formats whose products read quantised columns; the others read floats.
CODED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")

Where = tuple[bool, int, int]  # in the arena, offset, bytes from a row to the next


class CpuProgram(Program):
    """A tape, and the places of the values that may be asked for."""

    def __init__(
        self,
        tape: Tape,
        graph: Graph,
        groups: tuple[PageGroup, ...],
        places: dict[str, tuple[Tensor, int]],
    ) -> None:
        assert graph.result is not None
        self.device = "cpu"
        self.tape = tape
        self.width, self.outputs = tape.width, tape.most_outputs
        self.groups = groups
        self.vocabulary = graph.result.size
        self._result = graph.result.name
        self._places = places
        tensor, offset = places[self._result]
        self._logits: np.ndarray = tape.view(offset, self.outputs, tensor.size)

    def run(self, batch: Batch) -> np.ndarray:
        """See `Program.run`."""
        self.tape.run(batch.ids, batch.positions, batch.sequence, batch.pages, batch.outputs)
        return self._logits[: len(batch.outputs)]

    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """See `Program.trace`; only what `compile` was told to keep is there."""
        wanted = list(self._places) if names is None else list(names)
        for name in wanted:
            if name not in self._places:
                raise BadRequest(
                    f"waypoint {name} was not kept when the program was compiled", "names"
                )
        self.run(batch)
        counts = {PICKED: len(batch.outputs)}
        traced = {}
        for name in wanted:
            tensor, offset = self._places[name]
            rows = counts.get(tensor.rows, len(batch.ids))
            value = self.tape.view(offset, rows, tensor.size).copy()
            traced[name] = value.reshape(rows, *tensor.shape)
        return traced

    def close(self) -> None:
        """See `Program.close`."""
        self._logits = np.empty((0, 0), np.float32)
        self.tape.close()


def lower(
    graph: Graph,
    *,
    device: str,
    width: int,
    outputs: int,
    pages: Sequence[int],
    states: int,
    threads: int | None,
    kv: str,
    keep: Sequence[str] | None,
) -> CpuProgram:
    """The backend's entry, see `golem_core.graph.compile`."""
    named = graph.named()
    kept = tuple(named) if keep is None else tuple(keep)
    for name in kept:
        if name not in named:
            raise BadRequest(f"no waypoint {name}; see `golem trace` for the names", "keep")
    workers = threads if threads is not None else choose().count
    return _Lowering(graph, width, outputs, tuple(pages), workers, kv, kept).program()


class _Lowering:
    """The state of one lowering: stages, places, and the tape that is written."""

    def __init__(
        self,
        graph: Graph,
        width: int,
        outputs: int,
        pages: tuple[int, ...],
        workers: int,
        kv: str,
        kept: tuple[str, ...],
    ) -> None:
        assert graph.result is not None
        self.graph, self.kept, self.kv = graph, kept, kv
        self.rows = {PICKED: outputs}
        self.width, self.outputs, self.pages = width, outputs, pages
        self.roots = storage(graph)
        self.stages = fuse(graph, CODED, kept)
        self.ropes = list({op.attributes["rope"]: None for op in graph.ops if op.kind == "rope"})
        self.tape = Tape(Pool(workers), width, outputs, list(pages))
        self.packed: dict[str, tuple[Any, ...]] = {}

    def program(self) -> CpuProgram:
        self.pack_weights()
        places = self.plan()
        for cache in self.graph.caches:
            self.tape.add_cache(cache.group, cache.heads, cache.dim, cache.window, self.kv)
        angles = [self.angles(rope) for rope in self.ropes]
        for stage in self.stages:
            if isinstance(stage, RowStage):
                # What every layer turns by is worked out with the first rows of the pass.
                self.write_rows(stage, angles if stage.rows == COLUMNS else [])
                angles = [] if stage.rows == COLUMNS else angles
            elif isinstance(stage, ProductStage):
                self.write_products(stage)
            else:
                self.write_attend(stage)
        self.tape.finish()
        return CpuProgram(self.tape, self.graph, self.page_groups(), places)

    def page_groups(self) -> tuple[PageGroup, ...]:
        """What the engine must know of the pages."""
        item = 2 if self.kv == "f16" else 4
        groups = []
        for group, window in enumerate(self.graph.windows):
            caches = [c for c in self.graph.caches if c.group == group]
            nbytes = sum(PAGE * c.heads * (c.dim + -(-c.dim // 16) * 16) * item for c in caches)
            groups.append(PageGroup(window, len(caches), nbytes, self.pages[group]))
        return tuple(groups)

    # Weights

    def matrices(self) -> list[Weight]:
        """Every matrix that a product reads, once."""
        found: dict[str, Weight] = {}
        for stage in self.stages:
            if isinstance(stage, ProductStage):
                for product in stage.products:
                    for weight in (product.weight, product.gate):
                        if weight is not None:
                            found.setdefault(weight.name, weight)
        return list(found.values())

    def pack_weights(self) -> None:
        """Brings every matrix into the layout of its kernel, and lets go of the file's pages.

        A matrix whose kernel reads the file's own layout stays where it is mapped.
        """
        where: list[tuple[Weight, int, int]] = []
        end = 0
        for weight in self.matrices():
            rows, cols = weight.shape
            format = format_number(weight)
            panel = dispatch.panel_bytes(format, cols)
            if not dispatch.is_packed(format):
                self.packed[weight.name] = (None, weight.stored.data, rows, cols, panel)
                continue
            self.packed[weight.name] = (end, None, rows, cols, panel)
            where.append((weight, end, panel))
            end += -(-(-(-rows // 16) * panel) // 256) * 256
        if end:
            self.tape.reserve_weights(end)
        looked_up = {op.weights[0].name for op in self.graph.ops if op.kind == "embed"}
        for weight, offset, panel in where:
            rows, cols = weight.shape
            self.tape.pack(format_number(weight), weight.stored.data, rows, cols, panel, offset)
            if weight.name not in looked_up:
                weight.stored.drop_pages()

    # Memory

    def plan(self) -> dict[str, tuple[Tensor, int]]:
        """Gives every value its place; the waypoints that are kept, and the result, by name."""
        graph = self.graph
        first: dict[Tensor, int] = {}
        last: dict[Tensor, int] = {}
        codes_first: dict[Tensor, int] = {}
        codes_last: dict[Tensor, int] = {}
        inside: set[Tensor] = set()  # read by another stage than the one that wrote it
        for index, stage in enumerate(self.stages):
            reads, writes = touched(stage)
            for tensor in writes:
                first[self.roots[tensor]] = last[self.roots[tensor]] = index
            if not isinstance(stage, RowStage):
                inside.update(self.roots[tensor] for tensor in writes)
            for tensor in reads:
                root = self.roots[tensor]
                last[root] = max(last[root], index)
                if first[root] != index or isinstance(stage, AttendStage):
                    inside.add(root)
            if isinstance(stage, RowStage):
                for op in stage.ops:
                    if op.kind == "pick":
                        inside.add(self.roots[op.inputs[0]])
                for tensor in stage.quantise:
                    codes_first[self.roots[tensor]] = codes_last[self.roots[tensor]] = index
            if isinstance(stage, ProductStage):
                root = self.roots[stage.x]
                if root in codes_first:
                    codes_last[root] = index
        assert graph.result is not None
        named = graph.named()
        for name in (*self.kept, graph.result.name):
            root = self.roots[named[name]]
            inside.add(root)
            last[root] = len(self.stages)
        blocks: dict[Tensor, Block] = {}
        for root in inside:
            blocks[root] = Block(4 * self.most(root.rows) * root.size, first[root], last[root])
        code_blocks = {
            root: Block(self.code_bytes(root.size), codes_first[root], codes_last[root])
            for root in codes_first
        }
        turns = {
            rope: Block(4 * self.width * rope.dims, -1, len(self.stages)) for rope in self.ropes
        }
        arena = place([*blocks.values(), *code_blocks.values(), *turns.values()])
        self.places: dict[Tensor, Where] = {
            root: (True, block.offset, 4 * root.size) for root, block in blocks.items()
        }
        self.codes = {root: (block.offset, root.size) for root, block in code_blocks.items()}
        self.turns: dict[Rope, Where] = {
            rope: (True, block.offset, 4 * rope.dims) for rope, block in turns.items()
        }
        used = [0] * len(self.stages)  # bytes of scratch, for each stage
        for root, stage_index in first.items():
            if root not in inside:
                self.places[root] = (False, used[stage_index], 0)
                used[stage_index] += -(-4 * root.size // 64) * 64
        tiled = max((w.shape[1] for w in self.matrices()), default=0)
        self.tape.reserve_arena(arena, max(used, default=0), 16 * tiled)
        return {
            name: (named[name], self.places[self.roots[named[name]]][1])
            for name in (*self.kept, graph.result.name)
        }

    def most(self, rows: str) -> int:
        return self.rows.get(rows, self.width)

    def code_bytes(self, cols: int) -> int:
        """Codes, scales, sums and halves of every row, as `Tape.columns` lays them."""
        rows = max(self.width, self.outputs)
        parts = (rows * cols, rows * cols // 8, rows * cols // 8, rows * cols // 4)
        return sum(-(-part // 64) * 64 for part in parts)

    def place_of(self, tensor: Tensor) -> Where:
        return self.places[self.roots[tensor]]

    # Writing the tape

    def angles(self, rope: Rope) -> dict[str, Any]:
        turns = np.ascontiguousarray(rope.frequencies(), dtype=np.float64)
        return {
            "kind": "angles",
            "out": self.turns[rope],
            "half": rope.dims // 2,
            "turns": turns,
        }

    def write_rows(self, stage: RowStage, before: list[dict[str, Any]]) -> None:
        ops = before + [self.row_op(op) for op in stage.ops]
        for tensor in stage.quantise:
            ops.append(
                {
                    "kind": "quantise",
                    "a": self.place_of(tensor),
                    "size": tensor.size,
                    "codes": self.codes[self.roots[tensor]],
                }
            )
        self.tape.add_rows(stage.rows == PICKED, ops)

    def row_op(self, op: Op) -> dict[str, Any]:
        """What `Tape.add_rows` must know of one operation."""
        shape = op.inputs[0].shape if op.inputs else ()
        made: dict[str, Any] = {"kind": op.kind}
        for key, tensor in zip("ab", op.inputs, strict=False):
            made[key] = self.place_of(tensor)
        if op.output is not None:
            made["out"] = self.place_of(op.output)
            made["size"] = op.output.size
        attributes = op.attributes
        if op.kind == "embed":
            table = op.weights[0]
            stored = table.stored
            made["table"] = stored.data
            made["rows"] = table.shape[0]
            made["row_bytes"] = len(stored.data) // table.shape[0]
            made["format"] = format_number(table)
            if table.shape[1] % stored.format.block:
                raise Unsupported(f"{table.name}: rows of {table.shape[1]} are no whole blocks")
        elif op.kind == "rms_norm":
            made["heads"] = int(np.prod(shape[:-1], dtype=np.int64))
            made["dim"] = shape[-1]
            made["value"] = attributes["eps"]
            made["vector"] = op.weights[0].floats() if op.weights else None
        elif op.kind == "rope":
            made["heads"], made["dim"] = shape
            made["half"] = attributes["rope"].dims // 2
            made["layout"] = attributes["rope"].layout
            made["b"] = self.turns[attributes["rope"]]
        elif op.kind == "store":
            made["cache"] = attributes["cache"].index
        elif op.kind == "scale":
            made["value"] = attributes["factor"]
        elif op.kind == "softcap":
            made["value"] = attributes["cap"]
        elif op.kind == "glu":
            made["act"] = attributes["act"]
        return made

    def write_products(self, stage: ProductStage) -> None:
        x = self.place_of(stage.x)
        codes = self.codes.get(self.roots[stage.x])
        jobs = [self.job(product) for product in stage.products]
        self.tape.add_product(stage.rows == PICKED, x if x[0] else None, codes, stage.x.size, jobs)

    def job(self, product: Product) -> dict[str, Any]:
        return {
            "format": format_number(product.weight),
            "weight": self.packed[product.weight.name],
            "bias": product.bias.floats() if product.bias else None,
            "residual": self.place_of(product.residual) if product.residual else None,
            "out": self.place_of(product.out),
            "gate": self.packed[product.gate.name] if product.gate else None,
            "gate_bias": product.gate_bias.floats() if product.gate_bias else None,
            "act": product.act,
        }

    def write_attend(self, stage: AttendStage) -> None:
        op, cache = stage.op, stage.op.attributes["cache"]
        assert op.output is not None
        self.tape.add_attend(
            cache.index,
            self.place_of(op.inputs[0]),
            self.place_of(op.output),
            op.inputs[0].shape[0],
            op.attributes["scale"],
            op.attributes["softcap"],
        )


def touched(stage: Stage) -> tuple[list[Tensor], list[Tensor]]:
    """The values that a stage reads and writes; a product that reads codes does not read floats."""
    if isinstance(stage, RowStage):
        reads = [t for op in stage.ops for t in op.inputs] + stage.quantise
        return reads, [op.output for op in stage.ops if op.output is not None]
    if isinstance(stage, AttendStage):
        assert stage.op.output is not None
        return list(stage.op.inputs), [stage.op.output]
    reads = [p.residual for p in stage.products if p.residual is not None]
    if any(p.weight.stored.format.name not in CODED for p in stage.products):
        reads.append(stage.x)
    return reads, [p.out for p in stage.products]


def format_number(weight: Weight) -> int:
    """The kernels' number of a weight's format; `Unsupported` names a format without kernels."""
    name = weight.stored.format.name
    if name not in dispatch.FORMATS:
        raise Unsupported(
            f"{weight.name} is {name}; the processor multiplies {', '.join(dispatch.FORMATS)}"
        )
    return dispatch.FORMATS[name]
