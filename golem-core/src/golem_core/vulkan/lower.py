"""From a recorded graph to a Vulkan program: buffers, one dispatch an operation, barriers.

Each operation becomes one dispatch of the shader of its name (one for each piece, where a matrix
lies in several buffers). Every tensor has a buffer of its own, so any waypoint can be read after a
pass and no dispatch overwrites what another reads.

Kompute records no barrier between two dispatches. `OpTensorSyncLocal` of what was written makes
one, of what Kompute offers by itself: it waits for the shader's writes and copies them to host
memory, and the next dispatch waits for that copy. Here it is recorded before the first dispatch
that reads something not yet synchronised, for all such tensors at once, so the projections of q, k
and v share one. Keys and values in pages need none: `attend` takes the positions of its own pass
from k and v, and earlier passes have been waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from golem_core.errors import BadRequest, Unsupported
from golem_core.graph.graph import Graph
from golem_core.graph.program import PAGE, PageGroup
from golem_core.graph.record import PICKED, Cache, Op, Tensor, Weight
from golem_core.graph.rope import Rope
from golem_core.vulkan.memory import FORMATS, Device, Piece, words
from golem_core.vulkan.program import STATE, WIDTH, Recorded, Table, Turns, VulkanProgram

ACTS = ("silu", "gelu_tanh", "gelu_erf")  # in the order of shaders/glu.comp
HEAD = 256  # the largest head, as in shaders/attend.comp
KV_BYTES = {"f16": 2, "f32": 4}


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
) -> VulkanProgram:
    """The backend's entry, see `golem_core.graph.compile`.

    device   ``vulkan``, a card before what runs on the processor, or ``vulkan:N``, the loader's
             Nth device
    width    at most 8 is used; `outputs` likewise
    threads  is the driver's affair, and every waypoint can be read whatever `keep` says

    Raises `Unsupported` before a device is opened where the graph holds what no shader does,
    `NoMemory` before anything is uploaded where it does not fit, and `DeviceError` where there is
    no such device.
    """
    _check(graph)
    for name in keep or ():
        if name not in graph.named():
            raise BadRequest(f"no waypoint {name}; see `golem trace` for the names", "keep")
    named, number = device.partition(":")[1:]
    if named and not number.isdecimal():
        raise BadRequest(f"no device {device!r}; write vulkan or vulkan:0", "device")
    width, outputs = min(width, WIDTH), min(outputs, WIDTH)
    opened = Device(int(number) if named else None)
    try:
        _fit(graph, opened, pages, KV_BYTES[kv])
        recorded = _Recorder(graph, opened, pages, kv).record()
    except BaseException:
        opened.close()
        raise
    groups = tuple(
        PageGroup(
            window,
            sum(c.group == group for c in graph.caches),
            sum(2 * _page_bytes(c, KV_BYTES[kv]) for c in graph.caches if c.group == group),
            pages[group],
        )
        for group, window in enumerate(graph.windows)
    )
    return VulkanProgram(recorded, width, outputs, groups)


def _page_bytes(cache: Cache, element: int) -> int:
    """Bytes of one page of a layer's keys, or of its values."""
    return PAGE * cache.heads * cache.dim * element


def _check(graph: Graph) -> None:
    """Refuses by name whatever the shaders cannot do."""
    for op in graph.ops:
        if op.kind not in LOWER:
            raise Unsupported(f"{op.name}: the device vulkan has no shader for {op.kind}")
        if op.kind == "glu" and op.attributes["act"] not in ACTS:
            act = op.attributes["act"]
            raise Unsupported(f"{op.name}: the device vulkan has no shader for {act}")
        if op.kind == "scale" and op.weights:
            raise Unsupported(f"{op.name}: the device vulkan scales by numbers, not by weights")
        if op.kind == "embed" and (op.attributes["by"] != "ids" or op.attributes["first"]):
            raise Unsupported(f"{op.name}: the device vulkan looks up rows by token ids alone")
        if op.kind == "rope" and op.attributes["rope"].magnitude != 1.0:
            raise Unsupported(f"{op.name}: the device vulkan turns without a magnitude")
        for weight in op.weights:
            name = weight.stored.format.name
            if name not in FORMATS:
                raise Unsupported(
                    f"{weight.name} is stored as {name}, which the device vulkan does not "
                    f"multiply; it takes {', '.join(FORMATS)}"
                )
            multiple = FORMATS[name][1]
            if len(weight.shape) == 2 and weight.shape[1] % multiple:
                raise Unsupported(
                    f"{weight.name} has rows of {weight.shape[1]} elements; the device vulkan "
                    f"takes multiples of {multiple} in {name}"
                )
    for cache in graph.caches:
        if cache.dim > HEAD or cache.dim % 2:
            raise Unsupported(
                f"heads of {cache.dim} elements; the device vulkan takes even ones up to {HEAD}"
            )


def _fit(graph: Graph, device: Device, pages: Sequence[int], kv_element: int) -> None:
    """Refuses what the device's memory cannot hold, with both numbers."""
    weights = {w.name: w.stored for op in graph.ops for w in op.weights}
    kept = [pages[c.group] * _page_bytes(c, kv_element) for c in graph.caches]
    values = [4 * WIDTH * t.size for op in graph.ops if (t := op.output) is not None]
    split = sum(1 + s.data.nbytes // device.limits.storage_range for s in weights.values())
    device.need(
        # An activation has a copy for the host, which is the same memory on many devices.
        nbytes=sum(s.data.nbytes for s in weights.values()) + 2 * (sum(kept) + sum(values)),
        buffers=split + 2 * (len(kept) + len(values)),
        largest=max(kept, default=0),
        what="the keys of a layer",
    )
    device.need(0, 0, max(values), "the widest activation")


class _Recorder:
    """Walks a graph once and leaves a recorded sequence."""

    def __init__(self, graph: Graph, device: Device, pages: Sequence[int], kv: str) -> None:
        self.graph, self.device = graph, device
        self.half = int(kv == "f16")
        self.state = device.host(STATE)
        self.sequence = device.manager.sequence()
        self.values: dict[int, Any] = {}  # by the tensor's index; a reshaped one shares a buffer
        self.rows: dict[str, list[Piece]] = {}
        self.vectors: dict[str, Any] = {}
        self.turns: dict[bytes, Turns] = {}
        self.tables = [self._table(w, n) for w, n in zip(graph.windows, pages, strict=True)]
        self.kept = [
            tuple(device.storage(pages[c.group] * _page_bytes(c, KV_BYTES[kv])) for _ in range(2))
            for c in graph.caches
        ]
        self.stored: dict[int, tuple[Tensor, Tensor]] = {}  # k and v of this pass, by cache
        self.written: dict[int, Any] = {}  # buffers that no barrier has followed yet
        self.owned: list[Any] = []

    def record(self) -> Recorded:
        """Every operation in order, then the copies to the host of what is left."""
        for op in self.graph.ops:
            LOWER[op.kind](self, op)
        self.synchronise()
        self.device.uploaded()
        result = self.graph.result
        assert result is not None  # compile has looked
        embedded = [op.weights[0].shape[0] for op in self.graph.ops if op.kind == "embed"]
        return Recorded(
            device=self.device,
            sequence=self.sequence,
            state=self.state,
            tables=tuple(self.tables),
            turns=tuple(self.turns.values()),
            waypoints={name: (t, self.values[t.index]) for name, t in self.graph.named().items()},
            result=(result, self.values[result.index]),
            vocabulary_in=min(embedded, default=np.iinfo(np.int32).max),
            owned=[*self.owned, self.kept, self.rows, self.vectors, self.values],
        )

    def dispatch(
        self,
        name: str,
        buffers: Sequence[Any],
        reads: Sequence[Tensor],
        output: Tensor | None,
        groups: int,
        *push: float,
        constants: Sequence[int] = (),
    ) -> None:
        """Records shader `name` over the state and `buffers`, after a barrier if `reads` need one.

        `output` names what it writes of the graph's tensors: None for a `store`.
        """
        if any(id(self.values[t.index]) in self.written for t in reads):
            self.synchronise()
        bound = [self.state, *buffers]
        algorithm = self.device.algorithm(name, bound, groups, words(*push), constants)
        self.sequence.record(self.device.kp.OpAlgoDispatch(algorithm, words(*push)))
        self.owned.append(algorithm)
        if output is not None:
            buffer = self.values[output.index]
            self.written[id(buffer)] = buffer

    def synchronise(self) -> None:
        """A barrier between what has been written and whatever is recorded next."""
        if self.written:
            self.sequence.record(self.device.kp.OpTensorSyncLocal(list(self.written.values())))
            self.written.clear()

    def output(self, op: Op) -> tuple[Tensor, Any]:
        """The tensor that `op` gives, and a new buffer for it."""
        assert op.output is not None
        buffer = self.device.activations(WIDTH * op.output.size)
        self.values[op.output.index] = buffer
        return op.output, buffer

    def inputs(self, op: Op) -> list[Any]:
        """The buffers of what `op` reads."""
        return [self.values[t.index] for t in op.inputs]

    def matrix(self, weight: Weight) -> tuple[list[Piece], int]:
        """A weight as its file holds it, and its format's number for the shaders."""
        if weight.name not in self.rows:
            self.rows[weight.name] = self.device.rows(weight.stored)
        return self.rows[weight.name], FORMATS[weight.stored.format.name][0]

    def vector(self, weight: Weight | None) -> Any:
        """A weight as float32, or the state in its place: something must be bound."""
        if weight is None:
            return self.state
        if weight.name not in self.vectors:
            values = np.ascontiguousarray(weight.floats(), np.float32)
            self.vectors[weight.name] = self.device.upload(values)
        return self.vectors[weight.name]

    def turned(self, rope: Rope) -> Turns:
        """The host's buffer of cosines and sines; ropes that turn alike share it."""
        frequencies = rope.frequencies()
        key = frequencies.tobytes()
        if key not in self.turns:
            buffer = self.device.host(WIDTH * 2 * len(frequencies), np.float32)
            self.turns[key] = Turns(frequencies, buffer)
        return self.turns[key]

    def _table(self, window: int | None, pages: int) -> Table:
        # A window of positions touches one page more than its length fills, or two.
        room = pages if window is None else min(pages, (window - 1) // PAGE + 2)
        return Table(window, pages, room, self.device.host(WIDTH * (1 + room)))


def _count(tensor: Tensor) -> int:
    """Which of the state's two counts says how many rows a tensor has."""
    return int(tensor.rows == PICKED)


def _per(local: int, elements: int) -> int:
    """Workgroups of `local` invocations for `elements`."""
    return -(-elements // local)


def _embed(r: _Recorder, op: Op) -> None:
    out, y = r.output(op)
    pieces, number = r.matrix(op.weights[0])
    for p in pieces:
        groups = _per(64, WIDTH * out.size // 2)
        push = (out.size, p.first, p.count)
        r.dispatch("embed", [p.buffer, y], (), out, groups, *push, constants=[number])


def _linear(r: _Recorder, op: Op) -> None:
    out, y = r.output(op)
    pieces, number = r.matrix(op.weights[0])
    bias = op.weights[1] if len(op.weights) > 1 else None
    (x,) = r.inputs(op)
    for p in pieces:
        buffers = [p.buffer, r.vector(bias), x, y]
        push = (_count(out), op.inputs[0].size, out.size, p.first, p.count, int(bias is not None))
        r.dispatch("linear", buffers, op.inputs, out, p.count, *push, constants=[number])


def _rms_norm(r: _Recorder, op: Op) -> None:
    out, y = r.output(op)
    weight = op.weights[0] if op.weights else None
    vectors = out.size // out.shape[-1]
    eps = float(op.attributes["eps"])
    push = (_count(out), vectors, out.shape[-1], eps, int(weight is not None))
    buffers = [r.vector(weight), *r.inputs(op), y]
    r.dispatch("rms_norm", buffers, op.inputs, out, WIDTH * vectors, *push)


def _rope(r: _Recorder, op: Op) -> None:
    out, y = r.output(op)
    rope: Rope = op.attributes["rope"]
    if out.rows == PICKED:
        raise Unsupported(f"{op.name}: the device vulkan turns columns, not picked rows")
    push = (_count(out), out.shape[0], out.shape[1], rope.dims, int(rope.layout == "pairs"))
    buffers = [r.turned(rope).buffer, *r.inputs(op), y]
    r.dispatch("rope", buffers, op.inputs, out, _per(64, WIDTH * out.size), *push)


def _store(r: _Recorder, op: Op) -> None:
    cache: Cache = op.attributes["cache"]
    table = r.tables[cache.group]
    k, v = op.inputs
    r.stored[cache.index] = (k, v)
    push = (_count(k), k.size, 1 + table.room)
    buffers = [table.buffer, *r.inputs(op), *r.kept[cache.index]]
    groups = _per(64, WIDTH * k.size // 2)
    r.dispatch("store", buffers, op.inputs, None, groups, *push, constants=[r.half])


def _attend(r: _Recorder, op: Op) -> None:
    out, y = r.output(op)
    cache: Cache = op.attributes["cache"]
    table = r.tables[cache.group]
    (q,) = op.inputs
    if cache.index not in r.stored:
        raise Unsupported(f"{op.name}: the device vulkan reads a cache only after its store")
    k, v = r.stored[cache.index]
    buffers = [table.buffer, *(r.values[t.index] for t in (q, k, v)), *r.kept[cache.index], y]
    push = (
        *(_count(q), q.shape[0], cache.heads, cache.dim, cache.window or 0),
        *(float(op.attributes["scale"]), float(op.attributes["softcap"] or 0.0), 1 + table.room),
    )
    groups = WIDTH * q.shape[0]
    r.dispatch("attend", buffers, (q, k, v), out, groups, *push, constants=[r.half])


def _elements(r: _Recorder, op: Op, *push: float) -> None:
    """Any operation that makes one element of its inputs' elements at the same place."""
    out, y = r.output(op)
    groups = _per(64, WIDTH * out.size)
    r.dispatch(op.kind, [*r.inputs(op), y], op.inputs, out, groups, _count(out), out.size, *push)


def _pick(r: _Recorder, op: Op) -> None:
    out, y = r.output(op)
    r.dispatch("pick", [*r.inputs(op), y], op.inputs, out, _per(64, WIDTH * out.size), out.size)


def _reshape(r: _Recorder, op: Op) -> None:
    assert op.output is not None
    r.values[op.output.index] = r.values[op.inputs[0].index]


LOWER: dict[str, Callable[[_Recorder, Op], None]] = {
    "embed": _embed,
    "linear": _linear,
    "rms_norm": _rms_norm,
    "rope": _rope,
    "store": _store,
    "attend": _attend,
    "add": _elements,
    "mul": _elements,
    "scale": lambda r, op: _elements(r, op, float(op.attributes["factor"])),
    "glu": lambda r, op: _elements(r, op, ACTS.index(op.attributes["act"])),
    "softcap": lambda r, op: _elements(r, op, float(op.attributes["cap"])),
    "pick": _pick,
    "reshape": _reshape,
}
