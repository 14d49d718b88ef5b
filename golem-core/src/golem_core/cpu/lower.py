"""From a graph to a tape: stages sorted, memory planned, weights packed, and all of it written.

This file decides; `tape.pyx` only does what the tape says. Where values lie is in `arena.py`, where
matrices do in `matrices.py`; what comes out is a `CpuProgram` (`program.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from golem_core.cpu.arena import Arena, reads_floats
from golem_core.cpu.matrices import Matrices, format_number
from golem_core.cpu.pool import Pool
from golem_core.cpu.program import CpuProgram
from golem_core.cpu.row_ops import angles, quantise, rounding, row_op
from golem_core.cpu.tape import Tape, delta_floats, within_floats
from golem_core.errors import BadRequest, Unsupported
from golem_core.graph.fuse import fuse
from golem_core.graph.graph import Graph
from golem_core.graph.program import PAGE, PageGroup, StateGroup
from golem_core.graph.prune import prune
from golem_core.graph.record import (
    COLUMNS,
    DRAFTING,
    PICKED,
    State,
    rate,
)
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
from golem_core.graph.storage import View, storage
from golem_core.threads import choose

# Formats whose products read quantised columns, in runs of BLOCK or of RUN, or columns rounded to
# bf16; the others read floats.
CODED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
LONG = ("W8A8",)
ROUNDED = ("BF16",)
PREPARED = CODED + LONG + ROUNDED

# Formats of the matrices of convolutions whose kernels read windows that overlap, in floats. Those
# in CODED read windows of codes that are put beside each other.
CONVOLVED = ("F32", "F16")

BLOCK = 32  # elements that are quantised together
RUN = 128  # for the formats in LONG

# The lanes of a delta net's state that lie together, as kernels/table.pxd has it.
LANES = 32


def lower(
    graph: Graph,
    *,
    device: str,
    width: int,
    outputs: int,
    pages: Sequence[int],
    states: int,
    guesses: int,
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
    slots = (states, guesses)
    return _Lowering(graph, width, outputs, tuple(pages), slots, workers, kv, kept).program()


class _Lowering:
    """The state of one lowering: stages, places, and the tape that is written."""

    def __init__(
        self,
        graph: Graph,
        width: int,
        outputs: int,
        pages: tuple[int, ...],
        states: tuple[int, int],
        workers: int,
        kv: str,
        kept: tuple[str, ...],
    ) -> None:
        self.graph = graph = prune(graph, kept)
        self.kept, self.kv = kept, kv
        self.width, self.outputs, self.pages = width, outputs, pages
        self.slots, self.guesses = states
        self.views = storage(graph)
        self.stages = fuse(graph, CODED + LONG, kept, rounded=ROUNDED)
        self.reading = len(self.stages)  # the stages after these are the drafting pass's
        self.stages += fuse(graph, CODED + LONG, kept, DRAFTING, ROUNDED)
        self.long = self.read_in_runs()
        self.ropes = list({op.attributes["rope"]: None for op in graph.ops if op.kind == "rope"})
        self.tape = Tape(Pool(workers), width, outputs, list(pages))
        self.matrices = Matrices(self.tape, self.stages)
        self.written: list[str] = []  # what each stage of the tape is, "kind name"

    def program(self) -> CpuProgram:
        self.arena = self.lay_values()
        self.tape.reserve_arena(
            self.arena.nbytes,
            self.arena.scratch,
            self.product_scratch(),
            max(scan_scratch(self.graph), within_scratch(self.graph, self.width)),
        )
        for cache in self.graph.caches:
            self.tape.add_cache(cache.group, cache.heads, cache.dim, cache.window, self.kv)
        for state in self.graph.states:
            row = self.state_row(state)
            self.tape.add_state(self.state_size(state), self.slots, row, self.guesses)
        # When all other room is reserved: while pages are entered, the kernel gives none.
        self.matrices.bring(self.graph.weights)
        self.write(self.stages[: self.reading])
        self.tape.begin_drafting()
        self.write(self.stages[self.reading :])
        self.tape.finish()
        states = None
        if self.graph.states:
            states = StateGroup(self.slots, self.slot_bytes(), self.guesses)
        program = CpuProgram(
            self.tape, self.graph, self.page_groups(), states, self.arena, self.written
        )
        program.token_share = self.token_share()
        return program

    def token_share(self) -> float:
        """See `Program.token_share`: the drafting pass must end with nothing but its head."""
        last = self.stages[-1]
        if self.graph.draft is None or not isinstance(last, ProductStage):
            return 0.0
        head = last.products[0]
        if len(last.products) > 1 or head.out is not self.graph.draft or head.gate is not None:
            return 0.0
        read = sum(len(weight.stored.data) for weight in self.matrices.all())
        return len(head.weight.stored.data) / head.weight.shape[0] / read

    def lay_values(self) -> Arena:
        """Where the values lie."""
        return Arena(
            self.graph,
            self.stages,
            self.views,
            self.width,
            self.outputs,
            self.kept,
            CODED + LONG,
            ROUNDED,
        )

    def read_in_runs(self) -> set[View]:
        """What is quantised in runs of RUN, since products of the formats in LONG read it."""
        found, others = set(), set()
        for stage in self.stages:
            if isinstance(stage, (ProductStage, ExpertStage)):
                formats = {product.weight.stored.format.name for product in stage.products}
                if formats & {*LONG}:
                    found.add(self.views[stage.x])
                if formats & {*CODED} or (formats & {*LONG} and isinstance(stage, ExpertStage)):
                    others.add(self.views[stage.x])
        if found & others:
            raise Unsupported(
                f"{', '.join(LONG)} is not multiplied beside {', '.join(CODED)}, nor by experts"
            )
        return found

    def product_scratch(self) -> int:
        """Floats that a product of a dequantised panel keeps by a worker."""
        return 16 * max((weight.shape[-1] for weight in self.matrices.all()), default=0)

    def write(self, stages: list[Stage]) -> None:
        """One pass of the tape."""
        for stage in stages:
            self.written += said(stage)
        turns = [angles(rope, self.arena) for rope in self.ropes]
        for stage in stages:
            if isinstance(stage, RowStage):
                # What every layer turns by is worked out with the first rows of the pass.
                self.write_rows(stage, turns if stage.rows == COLUMNS else [])
                turns = [] if stage.rows == COLUMNS else turns
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

    def state_row(self, state: State) -> int:
        """Floats by which a column that is a guess is remembered for a state."""
        if not self.guesses:
            return 0
        kinds = {op.kind for op in self.graph.ops if op.attributes.get("state") is state}
        if "conv" in kinds:
            return state.shape[1]
        if "delta" in kinds:
            heads, keys, values = state.shape
            return heads * -(-values // LANES) * delta_floats(keys)
        if "previous" in kinds:
            return state.size
        raise Unsupported(
            f"no guess can follow a state {list(state.shape)} of {', '.join(sorted(kinds))}"
        )

    def slot_bytes(self) -> int:
        """What every state takes, with the guesses behind it."""
        states = self.graph.states
        return 4 * sum(self.state_size(s) + self.guesses * self.state_row(s) for s in states)

    def page_groups(self) -> tuple[PageGroup, ...]:
        """What the engine must know of the pages."""
        item = 2 if self.kv == "f16" else 4
        groups = []
        for group, window in enumerate(self.graph.windows):
            caches = [c for c in self.graph.caches if c.group == group]
            nbytes = sum(PAGE * c.heads * (c.dim + -(-c.dim // 16) * 16) * item for c in caches)
            groups.append(PageGroup(window, len(caches), nbytes, self.pages[group]))
        return tuple(groups)

    # Writing the tape

    def write_rows(self, stage: RowStage, before: list[dict[str, Any]]) -> None:
        ops = before + [row_op(op, self.arena) for op in stage.ops]
        for tensor in stage.quantise:
            run = RUN if self.views[tensor] in self.long else BLOCK
            ops.append(quantise(tensor, self.arena, run))
        ops += [rounding(tensor, self.arena) for tensor in stage.rounding]
        self.tape.add_rows(stage.rows == PICKED, rate(stage.rows), ops)

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
        if format not in CONVOLVED and (format not in CODED or stage.x.size % BLOCK):
            raise Unsupported(
                f"{stage.product.weight.name} is {format}; the processor convolves with "
                f"{', '.join(CONVOLVED)}, and rows of whole blocks of {BLOCK} with "
                f"{', '.join(CODED)}"
            )
        self.tape.add_convolution(
            stage.op.attributes["state"].index,
            rate(stage.rows),
            stage.past,
            self.arena.place_of(stage.x),
            (True, self.arena.leads[stage], 4 * stage.x.size),
            self.arena.windows.get(stage),
            stage.x.size,
            stage.act,
            self.job(stage.product),
        )

    def job(self, product: Product) -> dict[str, Any]:
        return {
            "format": format_number(product.weight),
            "weight": self.matrices.places[product.weight.name],
            "bias": product.bias.floats() if product.bias else None,
            "residual": self.arena.place_of(product.residual) if product.residual else None,
            "out": self.arena.place_of(product.out),
            "gate": self.matrices.places[product.gate.name] if product.gate else None,
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
            needed.append((op.attributes["state"].shape[1] + 1) * LANES)
        elif op.kind == "conv":
            needed.append(op.attributes["state"].size)
    return max(needed)
