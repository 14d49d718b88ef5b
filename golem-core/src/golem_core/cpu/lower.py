"""From a graph to a tape: kernels chosen, memory planned, weights packed.

This file decides; `tape.pyx` only does what the tape says. Where values lie is in `arena.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from golem_core.cpu import dispatch, packed
from golem_core.cpu.arena import Arena, reads_floats
from golem_core.cpu.pool import Pool
from golem_core.cpu.tape import Tape, within_floats
from golem_core.errors import BadRequest, Unsupported
from golem_core.graph.fuse import fuse
from golem_core.graph.graph import Graph
from golem_core.graph.program import PAGE, Batch, PageGroup, Program, StateGroup
from golem_core.graph.prune import prune
from golem_core.graph.record import (
    COLUMNS,
    DRAFTING,
    PICKED,
    READING,
    Op,
    State,
    Tensor,
    Weight,
    rate,
)
from golem_core.graph.rope import Rope
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
from golem_core.graph.storage import storage
from golem_core.threads import choose

# Formats whose products read quantised columns, or columns rounded to bf16; the others read floats.
CODED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
ROUNDED = ("BF16",)
PREPARED = CODED + ROUNDED

# Formats of the matrices of convolutions: their kernels read windows that overlap, in floats.
CONVOLVED = ("F32", "F16")

# The lanes of a delta net's state that lie together, as kernels/table.pxd has it.
LANES = 32


class CpuProgram(Program):
    """A tape, and the places of the values that may be asked for.

    `stages` says what each stage of the tape is: a kind and what it computes.
    """

    def __init__(
        self,
        tape: Tape,
        graph: Graph,
        groups: tuple[PageGroup, ...],
        states: StateGroup | None,
        arena: Arena,
        stages: list[str],
    ) -> None:
        assert graph.result is not None
        self.device = "cpu"
        self.tape = tape
        self.width, self.outputs = tape.width, tape.most_outputs
        self.groups, self.states = groups, states
        self.vocabulary = graph.result.size
        self.stages = tuple(stages)
        self._arena = arena
        self._logits = self._value(graph.result.name, self.outputs)
        self.drafts = graph.draft is not None
        self._inputs = {
            op.attributes["key"]: self._input(op.output)
            for op in graph.ops
            if op.kind == "input" and op.output is not None
        }
        if graph.draft is not None:
            self._drafted = self._value(graph.draft.name, self.outputs)

    def run(self, batch: Batch) -> np.ndarray:
        """See `Program.run`."""
        self._pass(batch, False)
        return self._logits[: len(batch.outputs)]

    def draft(self, batch: Batch) -> np.ndarray:
        """See `Program.draft`."""
        if not self.drafts:
            return super().draft(batch)
        self._pass(batch, True)
        return self._drafted[: len(batch.ids)]

    def _input(self, tensor: Tensor) -> np.ndarray:
        """Where an input is written: [rows, size]."""
        rows = self.outputs if tensor.rows == PICKED else self.width
        found: np.ndarray = self.tape.view(self._arena.places[tensor][1], rows, tensor.size)
        return found

    def _pass(self, batch: Batch, drafting: bool) -> None:
        for key, room in self._inputs.items():
            given = batch.inputs[key]
            room[: len(given)] = given.reshape(len(given), room.shape[1])
        self.tape.run(
            batch.ids,
            batch.positions,
            batch.sequence,
            batch.pages,
            batch.outputs[:0] if drafting else batch.outputs,
            batch.states,
            None if drafting else batch.keeps,
            drafting,
            batch.kinds,
        )

    def _value(self, name: str, rows: int) -> np.ndarray:
        """The first rows of a value, [rows, size], where it lies."""
        view = self._arena.views[self._arena.shown[name]]
        _, offset, _ = self._arena.places[view.root]
        tensor, root = self._arena.shown[name], view.root
        if rate(tensor.rows) != rate(root.rows):
            rows = rows * rate(root.rows) // rate(tensor.rows)
            whole: np.ndarray = self.tape.view(offset, rows, root.size)
            return whole.reshape(-1, tensor.size)
        whole = self.tape.view(offset, rows, root.size)
        return whole[:, view.offset : view.offset + view.size]

    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """See `Program.trace`; only what `compile` was told to keep is there."""
        kept = [name for name, tensor in self._arena.shown.items() if tensor.part == READING]
        wanted = kept if names is None else list(names)
        for name in wanted:
            if name not in kept:
                raise BadRequest(
                    f"waypoint {name} was not kept when the program was compiled", "names"
                )
        self.run(batch)
        counts = {PICKED: len(batch.outputs)}
        traced = {}
        for name in wanted:
            tensor = self._arena.shown[name]
            rows = counts.get(tensor.rows, len(batch.ids) * rate(tensor.rows))
            traced[name] = self._value(name, rows).copy().reshape(rows, *tensor.shape)
        return traced

    def put(self, table: np.ndarray, first: int, kept: Sequence[np.ndarray]) -> None:
        """See `Program.put`."""
        for cache, made in enumerate(kept):
            keys, values = np.ascontiguousarray(made, np.float32)
            self.tape.put(cache, np.ascontiguousarray(table, np.int32), first, keys, values)

    def get(self, table: np.ndarray, first: int, end: int) -> list[np.ndarray]:
        """See `Program.get`."""
        found = []
        places = range(first // PAGE, -(-end // PAGE))
        for cache in range(self.tape.caches):
            pages = [np.stack(self.tape.page(cache, int(table[place]))) for place in places]
            whole = np.concatenate(pages, axis=1)  # [2, positions, heads, dim]
            found.append(whole[:, first - PAGE * places[0] : end - PAGE * places[0]].copy())
        return found

    def close(self) -> None:
        """See `Program.close`."""
        self._inputs.clear()
        self._logits = self._drafted = np.empty((0, 0), np.float32)
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
    return _Lowering(graph, width, outputs, tuple(pages), states, workers, kv, kept).program()


class _Lowering:
    """The state of one lowering: stages, places, and the tape that is written."""

    def __init__(
        self,
        graph: Graph,
        width: int,
        outputs: int,
        pages: tuple[int, ...],
        states: int,
        workers: int,
        kv: str,
        kept: tuple[str, ...],
    ) -> None:
        self.graph = graph = prune(graph, kept)
        self.kept, self.kv = kept, kv
        self.width, self.outputs, self.pages, self.slots = width, outputs, pages, states
        self.views = storage(graph)
        self.stages = fuse(graph, CODED, kept, rounded=ROUNDED)
        self.reading = len(self.stages)  # the stages after these are the drafting pass's
        self.stages += fuse(graph, CODED, kept, DRAFTING, ROUNDED)
        self.ropes = list({op.attributes["rope"]: None for op in graph.ops if op.kind == "rope"})
        self.tape = Tape(Pool(workers), width, outputs, list(pages))
        self.packed: dict[str, tuple[Any, ...]] = {}
        self.written: list[str] = []  # what each stage of the tape is, "kind name"

    def program(self) -> CpuProgram:
        self.pack_weights()
        self.arena = self.lay_values()
        self.tape.reserve_arena(
            self.arena.nbytes,
            self.arena.scratch,
            self.product_scratch(),
            max(scan_scratch(self.graph), within_scratch(self.graph, self.width)),
        )
        for cache in self.graph.caches:
            self.tape.add_cache(cache.group, cache.heads, cache.dim, cache.window, self.kv)
        sizes = [self.state_size(state) for state in self.graph.states]
        for size in sizes:
            self.tape.add_state(size, self.slots)
        self.write(self.stages[: self.reading])
        self.tape.begin_drafting()
        self.write(self.stages[self.reading :])
        self.tape.finish()
        states = StateGroup(self.slots, 4 * sum(sizes)) if sizes else None
        return CpuProgram(
            self.tape, self.graph, self.page_groups(), states, self.arena, self.written
        )

    def lay_values(self) -> Arena:
        """Where the values lie."""
        return Arena(
            self.graph, self.stages, self.views, self.width, self.outputs, self.kept, CODED, ROUNDED
        )

    def product_scratch(self) -> int:
        """Floats that a product of a dequantised panel keeps by a worker."""
        return 16 * max((weight.shape[-1] for weight in self.matrices()), default=0)

    def write(self, stages: list[Stage]) -> None:
        """One pass of the tape."""
        for stage in stages:
            self.written += said(stage)
        angles = [self.angles(rope) for rope in self.ropes]
        for stage in stages:
            if isinstance(stage, RowStage):
                # What every layer turns by is worked out with the first rows of the pass.
                self.write_rows(stage, angles if stage.rows == COLUMNS else [])
                angles = [] if stage.rows == COLUMNS else angles
            elif isinstance(stage, ProductStage):
                self.write_products(stage)
            elif isinstance(stage, ExpertStage):
                self.write_experts(stage)
            elif isinstance(stage, ScanStage):
                self.write_scan(stage)
            elif isinstance(stage, ConvolveStage):
                self.write_convolution(stage)
            elif isinstance(stage, WithinStage):
                self.write_within(stage)
            else:
                self.write_attend(stage)

    def state_size(self, state: State) -> int:
        """Floats of a state as its kernel lays it out."""
        if any(op.kind == "delta" and op.attributes["state"] is state for op in self.graph.ops):
            heads, keys, values = state.shape
            return heads * keys * -(-values // LANES) * LANES
        return state.size

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
            products: list[Product] = []
            if isinstance(stage, (ProductStage, ExpertStage)):
                products = stage.products
            elif isinstance(stage, ConvolveStage):
                products = [stage.product]
            for product in products:
                for weight in (product.weight, product.gate):
                    if weight is not None:
                        found.setdefault(weight.name, weight)
        return list(found.values())

    def lay_weights(self) -> tuple[list[tuple[Weight, int, int]], int]:
        """Gives each matrix that is packed its place; these, and the bytes of all of them.

        A matrix whose kernel reads the file's own layout stays where it is mapped.
        """
        where: list[tuple[Weight, int, int]] = []
        end = 0
        for weight in self.matrices():
            rows, cols = weight.shape[-2:]
            format = format_number(weight)
            panel = dispatch.panel_bytes(format, cols)
            if not dispatch.is_packed(format):
                self.packed[weight.name] = (None, weight.stored.data, rows, cols, panel)
                continue
            self.packed[weight.name] = (end, None, rows, cols, panel)
            where.append((weight, end, panel))
            end += -(-experts_of(weight) * -(-rows // 16) * panel // 256) * 256
        return where, end

    def pack_weights(self) -> None:
        """Brings matrices into the layout of their kernels, or maps them as they were brought once.

        The file's pages are let go of; a row of a table that is looked up comes from them again.
        """
        where, end = self.lay_weights()
        if not end:
            return
        files = packed.PackedFiles.usual()
        key = packed.key(self.graph.weights, [(weight.stored, at) for weight, at, _ in where])
        descriptor = files.find(key, end)
        if descriptor is not None:
            try:
                self.tape.map_weights(descriptor, packed.HEADER, end, False)
            finally:
                os.close(descriptor)
            return
        made = files.create(end)
        if made is None:
            self.tape.reserve_weights(end)
        else:
            self.tape.map_weights(made.descriptor, packed.HEADER, end, True)
        try:
            for weight, offset, panel in where:
                self.pack(weight, offset, panel)
        except BaseException:
            if made is not None:
                made.discard()
            raise
        if made is not None:
            made.finish(key)

    def pack(self, weight: Weight, offset: int, panel: int) -> None:
        """One matrix, or those of all experts, to its place."""
        rows, cols = weight.shape[-2:]
        format, experts = format_number(weight), experts_of(weight)
        each = len(weight.stored.data) // experts
        for expert in range(experts):
            source = weight.stored.data[expert * each : (expert + 1) * each]
            self.tape.pack(format, source, rows, cols, panel, offset)
            offset += -(-rows // 16) * panel
        weight.stored.drop_pages()

    # Writing the tape

    def angles(self, rope: Rope) -> dict[str, Any]:
        turns = np.ascontiguousarray(rope.frequencies(), dtype=np.float64)
        return {
            "kind": "angles",
            "out": self.arena.turns[rope],
            "half": rope.dims // 2,
            "turns": turns,
            "value": rope.magnitude,
        }

    def write_rows(self, stage: RowStage, before: list[dict[str, Any]]) -> None:
        ops = before + [self.row_op(op) for op in stage.ops]
        for tensor in stage.quantise:
            ops.append(
                {
                    "kind": "quantise",
                    "a": self.arena.place_of(tensor),
                    "size": tensor.size,
                    "codes": self.arena.codes[self.views[tensor]],
                }
            )
        for tensor in stage.rounding:
            ops.append(
                {
                    "kind": "round",
                    "a": self.arena.place_of(tensor),
                    "size": tensor.size,
                    "out": self.arena.rounded[self.views[tensor]],
                }
            )
        self.tape.add_rows(stage.rows == PICKED, rate(stage.rows), ops)

    def row_op(self, op: Op) -> dict[str, Any]:
        """What `Tape.add_rows` must know of one operation."""
        shape = op.inputs[0].shape if op.inputs else ()
        made: dict[str, Any] = {"kind": op.kind}
        for key, tensor in zip("ab", op.inputs, strict=False):
            made[key] = self.arena.place_of(tensor)
        if op.output is not None:
            made["out"] = self.arena.place_of(op.output)
            made["size"] = op.output.size
        attributes = op.attributes
        if op.kind == "embed":
            table = op.weights[0]
            stored = table.stored
            made["table"] = stored.data
            made["rows"] = table.shape[0] - attributes["first"]
            made["by"], made["start"] = attributes["by"], attributes["first"]
            made["row_bytes"] = len(stored.data) // table.shape[0]
            made["format"] = format_number(table)
            if table.shape[1] % stored.format.block:
                raise Unsupported(f"{table.name}: rows of {table.shape[1]} are no whole blocks")
        elif op.kind == "layer_norm":
            made["heads"] = int(np.prod(shape[:-1], dtype=np.int64))
            made["dim"] = shape[-1]
            made["value"] = attributes["eps"]
            made["vector"], made["bias"] = (
                op.weights[i].floats() if len(op.weights) > i else None for i in range(2)
            )
        elif op.kind == "rms_norm":
            made["heads"] = int(np.prod(shape[:-1], dtype=np.int64))
            made["dim"] = shape[-1]
            made["value"] = attributes["eps"]
            made["vector"] = op.weights[0].floats() if op.weights else None
        elif op.kind == "rope":
            made["heads"], made["dim"] = shape
            made["half"] = attributes["rope"].dims // 2
            made["layout"] = attributes["rope"].layout
            made["b"] = self.arena.turns[attributes["rope"]]
        elif op.kind == "store":
            made["cache"] = attributes["cache"].index
        elif op.kind == "scale":
            weights = op.weights
            made["value"] = float(weights[0].floats()[0]) if weights else attributes["factor"]
        elif op.kind == "softcap":
            made["value"] = attributes["cap"]
        elif op.kind in ("glu", "activate"):
            made["act"] = attributes["act"]
            made["single"] = op.kind == "glu" and op.inputs[0].shape != op.inputs[1].shape
        elif op.kind == "concat":
            made["heads"] = op.inputs[0].size // shape[-1]
            made["dim"], made["count"] = shape[-1], op.inputs[1].shape[-1]
        elif op.kind == "slice":
            made["heads"], made["dim"] = op.inputs[0].size // shape[-1], shape[-1]
            made["start"], made["count"] = attributes["start"], op.output.shape[-1]  # type: ignore[union-attr]
        elif op.kind == "decay":
            made["vector"], made["bias"] = (w.floats() for w in op.weights)
        elif op.kind == "route":
            made["dim"], made["heads"] = shape[0], attributes["used"]
        elif op.kind == "combine":
            made["heads"], made["dim"] = shape
            made["vector"] = op.weights[0].floats() if op.weights else None
        elif op.kind == "recall":
            made["state"] = attributes["state"].index
        return made

    def write_products(self, stage: ProductStage) -> None:
        x = self.arena.place_of(stage.x)
        codes = self.arena.codes.get(self.views[stage.x])
        jobs = [self.job(product) for product in stage.products]
        self.tape.add_product(
            stage.rows == PICKED,
            rate(stage.rows),
            x if x[0] else None,
            codes,
            self.arena.rounded.get(self.views[stage.x]),
            stage.x.size,
            jobs,
        )

    def write_experts(self, stage: ExpertStage) -> None:
        """Rows sorted by expert, put beside each other, and multiplied."""
        experts = stage.products[0].weight.shape[0]
        used, cols = stage.routing.shape[1], stage.x.shape[-1]
        routing = self.arena.place_of(stage.routing)
        if stage.sorts:
            self.tape.add_sort(stage.rows == PICKED, routing, used, experts)
        codes = self.arena.codes.get(self.views[stage.x])
        formats = {p.weight.stored.format.name for p in stage.products}
        coded, rounds = bool(formats & {*CODED}), bool(formats & {*ROUNDED})
        self.tape.add_experts(
            stage.rows == PICKED,
            used,
            experts,
            self.arena.place_of(stage.x) if stage.each or reads_floats(stage, PREPARED) else None,
            codes if coded and not stage.each else None,
            self.arena.rounded.get(self.views[stage.x]) if not stage.each else None,
            (self.arena.spreads[stage], cols, max(self.width, self.outputs) * used),
            coded,
            reads_floats(stage, PREPARED),
            rounds,
            stage.each,
            [self.job(product) for product in stage.products],
        )

    def write_scan(self, stage: ScanStage) -> None:
        op = stage.op
        assert op.output is not None
        state = op.attributes["state"].index
        inputs = [self.arena.place_of(tensor) for tensor in op.inputs]
        out = self.arena.place_of(op.output)
        if op.kind == "conv":
            taps = np.ascontiguousarray(op.weights[0].floats().T)
            self.tape.add_conv(state, inputs[0], out, taps)
        elif op.kind == "delta":
            (key_heads, keys), (heads, values) = op.inputs[0].shape, op.output.shape
            self.tape.add_delta(state, inputs, out, key_heads, keys, heads, values)
        else:
            self.tape.add_previous(state, inputs[0], out, op.output.size)

    def write_convolution(self, stage: ConvolveStage) -> None:
        """Rows put behind those before them, then the product with windows of them."""
        format = stage.product.weight.stored.format.name
        if format not in CONVOLVED:
            raise Unsupported(
                f"{stage.product.weight.name} is {format}; the processor convolves with "
                f"{', '.join(CONVOLVED)}"
            )
        self.tape.add_convolution(
            stage.op.attributes["state"].index,
            rate(stage.rows),
            stage.past,
            self.arena.place_of(stage.x),
            (True, self.arena.leads[stage], 4 * stage.x.size),
            stage.x.size,
            stage.act,
            self.job(stage.product),
        )

    def job(self, product: Product) -> dict[str, Any]:
        return {
            "format": format_number(product.weight),
            "weight": self.packed[product.weight.name],
            "bias": product.bias.floats() if product.bias else None,
            "residual": self.arena.place_of(product.residual) if product.residual else None,
            "out": self.arena.place_of(product.out),
            "gate": self.packed[product.gate.name] if product.gate else None,
            "gate_bias": product.gate_bias.floats() if product.gate_bias else None,
            "act": product.act,
        }

    def write_within(self, stage: WithinStage) -> None:
        op, given = stage.op, stage.op.attributes
        assert op.output is not None
        heads, dim = op.inputs[0].shape
        bias = None
        if op.weights:
            table = op.weights[0].floats()[given["buckets"].table(self.width)]
            bias = np.ascontiguousarray(table.T)  # [heads, 2 * width - 1]
        self.tape.add_within(
            [self.arena.place_of(tensor) for tensor in op.inputs],
            self.arena.place_of(op.output),
            heads,
            op.inputs[1].shape[0],
            dim,
            given["scale"],
            -1 if given["reach"] is None else given["reach"],
            given["causal"],
            bias,
        )

    def write_attend(self, stage: AttendStage) -> None:
        op, cache = stage.op, stage.op.attributes["cache"]
        assert op.output is not None
        self.tape.add_attend(
            stage.rows == PICKED,
            cache.index,
            self.arena.place_of(op.inputs[0]),
            self.arena.place_of(op.output),
            op.inputs[0].shape[0],
            op.attributes["scale"],
            op.attributes["softcap"],
        )


def within_scratch(graph: Graph, width: int) -> int:
    """Floats that an attention within a text of up to `width` columns keeps by a worker."""
    needed = [0]
    for op in graph.ops:
        if op.kind == "attend_within":
            needed.append(within_floats(width, op.inputs[0].shape[1]))
    return max(needed)


def said(stage: Stage) -> list[str]:
    """What the tape's stages for a stage are."""
    if isinstance(stage, RowStage):
        tensors = stage.quantise + stage.rounding
        return [f"rows {stage.ops[0].name if stage.ops else tensors[0].name}"]
    if isinstance(stage, ProductStage):
        return [f"product {stage.products[0].out.name}"]
    if isinstance(stage, ExpertStage):
        name = stage.products[0].out.name
        return [*([f"sort {name}"] if stage.sorts else []), f"spread {name}", f"experts {name}"]
    if isinstance(stage, ConvolveStage):
        return [f"lead {stage.product.out.name}", f"product {stage.product.out.name}"]
    return [f"{stage.op.kind} {stage.op.name}"]


def scan_scratch(graph: Graph) -> int:
    """Floats that a scan keeps by a worker: a block of a state, the past of a convolution."""
    needed = [0]
    for op in graph.ops:
        if op.kind == "delta":
            needed.append(op.attributes["state"].shape[1] * LANES)
        elif op.kind == "conv":
            needed.append(op.attributes["state"].size)
    return max(needed)


def experts_of(weight: Weight) -> int:
    """How many matrices a weight has: one, or one an expert."""
    return weight.shape[0] if len(weight.shape) == 3 else 1


def format_number(weight: Weight) -> int:
    """The kernels' number of a weight's format; `Unsupported` names a format without kernels."""
    name = weight.stored.format.name
    if name not in dispatch.FORMATS:
        raise Unsupported(
            f"{weight.name} is {name}; the processor multiplies {', '.join(dispatch.FORMATS)}"
        )
    return dispatch.FORMATS[name]
