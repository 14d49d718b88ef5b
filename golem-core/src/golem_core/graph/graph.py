"""A forward pass as it is recorded: symbolic tensors and the operations between them.

A model's `forward` is plain Python over a `Graph`. Nothing is computed while it runs: each call
checks its shapes by the rule in `ops.OPS` and appends one `Op`. `compile.compile` turns the record
into a `Program` of one backend. The number of rows is left open: a tensor has the shape of *one*
row and a symbol for how many there are: ``"n"`` for the columns of a pass, ``"m"`` for those whose
logits are wanted, and ``"n*6"`` where each column has six rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from golem_core.errors import BadWeights
from golem_core.graph.encoder import Buckets as Buckets  # who lowers a graph reads it here
from golem_core.graph.ops import OPS
from golem_core.graph.rope import Rope as Rope  # who lowers a graph reads it here
from golem_core.weights import Stored, Weights

COLUMNS = "n"
PICKED = "m"

# The two passes that a program can make: the one that reads, and the one that guesses ahead.
READING = "reading"
DRAFTING = "drafting"

# What has a place in a sequence, and so a row a column at most.
PLACED = (
    *("embed", "rope", "store", "attend", "attend_within", "pool", "pick"),
    *("conv", "delta", "previous", "recall"),
)


def rate(rows: str) -> int:
    """How many rows a column has, by the symbol of a row count."""
    return int(rows[2:]) if rows.startswith("n*") else 1


def at_rate(count: int) -> str:
    """The symbol of so many rows a column."""
    return COLUMNS if count == 1 else f"n*{count}"


@dataclass(frozen=True, eq=False)
class Weight:
    """A tensor of the file, with the shape that the model expects (slowest dimension first)."""

    name: str
    stored: Stored

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in numpy order: a matrix is [outputs, inputs]."""
        return self.stored.shape

    @property
    def waypoint(self) -> str:
        """What a result made from this weight is called: the name without its ``.weight``."""
        return self.name.removesuffix(".weight")

    def floats(self) -> np.ndarray:
        """The values as float32, of `shape`; meant for vectors and small tables."""
        return self.stored.dequantize()


@dataclass(frozen=True, eq=False)
class Cache:
    """The keys and values that one layer keeps: [positions, heads, dim], twice."""

    index: int
    heads: int
    dim: int
    window: int | None
    group: int


@dataclass(frozen=True, eq=False)
class State:
    """What a sequence keeps of its past in a fixed room: float32 `shape`, zeros at first."""

    index: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value that a pass will hold: `rows` (a symbol) rows of float32 `shape`."""

    graph: Graph
    index: int
    rows: str
    shape: tuple[int, ...]
    name: str
    part: str = READING

    @property
    def size(self) -> int:
        """Elements in one row."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __add__(self, other: Tensor) -> Tensor:
        return self.graph.add(self, other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return self.graph.mul(self, other)
        return self.graph.scale(self, other)


@dataclass(frozen=True, eq=False)
class Op:
    """One recorded operation. `store` has no output; everything else has one."""

    kind: str
    name: str
    inputs: tuple[Tensor, ...]
    weights: tuple[Weight, ...]
    attributes: Mapping[str, Any]
    output: Tensor | None
    part: str = READING


@dataclass(eq=False)
class Graph:
    """The record of one forward pass over the tensors of `weights`.

    With `drafts` a model that can guess ahead records that too: see `drafting`.
    """

    weights: Weights
    drafts: bool = True
    ops: list[Op] = field(default_factory=list)
    caches: list[Cache] = field(default_factory=list)
    windows: list[int | None] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    result: Tensor | None = None
    draft: Tensor | None = None
    _part: str = READING
    _scopes: list[str] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _tensors: int = 0

    # What a model reads

    def has(self, name: str) -> bool:
        """Whether the file holds a tensor of this name."""
        return name in self.weights.tensors

    def weight(self, name: str, shape: Sequence[int]) -> Weight:
        """The tensor `name`, which must have `shape` (numpy order).

        A matrix of one row may lie in the file as a vector: some writers drop such an axis.
        Raises `BadWeights` when it is absent or of another shape.
        """
        stored = self.weights.tensors.get(name)
        if stored is None:
            raise BadWeights(f"{name} is missing ({self.weights.path})")
        if tuple(shape) == (1, *stored.shape):
            stored = replace(stored, shape=tuple(shape))
        if tuple(stored.shape) != tuple(shape):
            raise BadWeights(
                f"{name} has shape {list(stored.shape)}, expected {list(shape)} "
                f"({self.weights.path})"
            )
        return Weight(name, stored)

    def cache(self, heads: int, dim: int, window: int | None = None) -> Cache:
        """Room for a layer's keys and values. Layers of one `window` share their page tables."""
        if window not in self.windows:
            self.windows.append(window)
        made = Cache(len(self.caches), heads, dim, window, self.windows.index(window))
        self.caches.append(made)
        return made

    def state(self, shape: Sequence[int]) -> State:
        """Room for what each sequence carries from position to position."""
        made = State(len(self.states), tuple(shape))
        self.states.append(made)
        return made

    @contextmanager
    def drafting(self) -> Iterator[None]:
        """What is recorded inside is the drafting pass: a pass by itself, of one column a sequence.

        A column is the newest token, which no reading pass has seen yet, at its position. Caches
        and states are those of the reading pass; no value of it is. `draft` is set to the logits
        [n, vocabulary] of the token after. Names begin with ``draft.``.
        """
        self._part = DRAFTING
        try:
            yield
        finally:
            self._part = READING

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Puts `name` and a dot before the names of what is recorded inside."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    # What a model writes

    def input(self, key: str, shape: Sequence[int], rows: str = COLUMNS) -> Tensor:
        """What the caller of a pass gives: `Batch.inputs[key]`, a row a column, or a wanted row."""
        return self._record("input", key, (), (), rows=rows, key=key, shape=tuple(shape))

    def embed(
        self, table: Weight, name: str | None = None, by: str = "ids", first: int = 0
    ) -> Tensor:
        """Rows of `table` [rows, d], one a column: [n, d].

        Row ``first + id`` where `by` is ``"ids"``, ``first + position`` where it is
        ``"positions"``, by ``"kinds"`` alike, and row `first` for every column where it is ``""``.
        """
        if by not in ("ids", "positions", "kinds", ""):
            raise ValueError(f"no rows by {by!r}")
        waypoint = name or table.waypoint
        return self._record("embed", waypoint, (), (table,), full=True, by=by, first=first)

    def linear(
        self, x: Tensor, weight: Weight, bias: Weight | None = None, name: str | None = None
    ) -> Tensor:
        """x [.., inputs] times the transpose of `weight` [outputs, inputs], plus `bias`."""
        weights = (weight,) if bias is None else (weight, bias)
        return self._record("linear", name or weight.waypoint, (x,), weights, full=name is None)

    def rms_norm(
        self, x: Tensor, weight: Weight | None, eps: float, name: str | None = None
    ) -> Tensor:
        """x / sqrt(mean(x**2) + eps) * weight over the last axis (Zhang, Sennrich, 2019)."""
        weights = () if weight is None else (weight,)
        full = name is None and weight is not None
        if full and weight is not None:
            name = weight.waypoint
        return self._record("rms_norm", name, (x,), weights, full=full, eps=eps)

    def layer_norm(
        self,
        x: Tensor,
        weight: Weight | None,
        bias: Weight | None,
        eps: float,
        name: str | None = None,
    ) -> Tensor:
        """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis (Ba, 2016)."""
        if weight is None and bias is not None:
            raise ValueError(f"{name}: a layer norm with a bias has a weight")
        weights = tuple(w for w in (weight, bias) if w is not None)
        full = name is None and weight is not None
        if full and weight is not None:
            name = weight.waypoint
        return self._record("layer_norm", name, (x,), weights, full=full, eps=eps)

    def rope(self, x: Tensor, rope: Rope, name: str | None = None) -> Tensor:
        """Turns each head of x [heads, dim] by its row's position."""
        return self._record("rope", name, (x,), (), rope=rope)

    def attend(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        cache: Cache,
        scale: float,
        softcap: float = 0.0,
        name: str | None = None,
    ) -> Tensor:
        """Keeps k and v [heads, dim] in `cache`, then attends with q [query heads, dim].

        A row sees the positions of its own sequence up to its own, and of a window cache only the
        last `window` of these, its own included. Query head h reads key head h // (query heads /
        heads). Scores are q.k * scale, capped by ``softcap * tanh(s / softcap)`` where softcap is
        not 0. With k and v None the cache is read as another layer left it. Gives [heads * dim].
        """
        if k is not None and v is not None:
            self.store(k, v, cache, f"{name}.store" if name else None)
        return self._record("attend", name, (q,), (), cache=cache, scale=scale, softcap=softcap)

    def store(self, k: Tensor, v: Tensor, cache: Cache, name: str | None = None) -> None:
        """Keeps k and v [heads, dim] in `cache` for who attends later, in this pass or another."""
        self._append("store", name, (k, v), (), False, None, {"cache": cache})

    def attend_within(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        *,
        causal: bool = False,
        reach: int | None = None,
        bias: Weight | None = None,
        buckets: Buckets | None = None,
        name: str | None = None,
    ) -> Tensor:
        """Attends with q [query heads, dim] to k and v [heads, dim] of the same text.

        A text is the columns that a sequence has in the pass; nothing is kept. A row sees them all,
        with `causal` none after its own, with `reach` none farther away than that. Scores are q.k *
        scale, plus row ``buckets.table(..)[j - i]`` of `bias` [buckets, query heads]. Gives [query
        heads * dim].
        """
        if (bias is None) != (buckets is None):
            raise ValueError(f"{name}: a bias comes with its buckets")
        weights = () if bias is None else (bias,)
        return self._record(
            "attend_within",
            name,
            (q, k, v),
            weights,
            scale=scale,
            causal=causal,
            reach=reach,
            buckets=buckets,
        )

    def pool(self, x: Tensor, name: str | None = None) -> Tensor:
        """The mean over the columns of each wanted row's text: [n, d] to [m, d]."""
        return self._record("pool", name, (x,), (), rows=PICKED)

    def add(self, a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
        """a + b."""
        return self._record("add", name, (a, b), ())

    def mul(self, a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
        """a * b, element by element."""
        return self._record("mul", name, (a, b), ())

    def scale(self, x: Tensor, factor: float | Weight, name: str | None = None) -> Tensor:
        """x * factor, a number or the single one of a weight [1]."""
        if isinstance(factor, Weight):
            return self._record("scale", name or factor.waypoint, (x,), (factor,), name is None)
        return self._record("scale", name, (x,), (), factor=float(factor))

    def glu(self, gate: Tensor, up: Tensor, act: str, name: str | None = None) -> Tensor:
        """act(gate) * up (Shazeer, 2020); act is silu, gelu_tanh, gelu_erf or sigmoid.

        A gate of [1] is the same for all of up.
        """
        return self._record("glu", name, (gate, up), (), act=act)

    def activate(self, x: Tensor, act: str, name: str | None = None) -> Tensor:
        """act(x): the activations of `glu`, and elu."""
        return self._record("activate", name, (x,), (), act=act)

    def l2_norm(self, x: Tensor, eps: float, name: str | None = None) -> Tensor:
        """x / sqrt(sum(x**2) + eps) over the last axis."""
        dim = x.shape[-1]
        unit = self.rms_norm(x, None, eps / dim)
        return self.scale(unit, 1 / math.sqrt(dim), name=name)

    def softcap(self, x: Tensor, cap: float, name: str | None = None) -> Tensor:
        """cap * tanh(x / cap)."""
        return self._record("softcap", name, (x,), (), cap=float(cap))

    def pick(self, x: Tensor, name: str | None = None) -> Tensor:
        """The rows whose logits are wanted: [n, ..] to [m, ..]."""
        return self._record("pick", name, (x,), (), rows=PICKED)

    def reshape(self, x: Tensor, shape: Sequence[int], name: str | None = None) -> Tensor:
        """The same elements of each row in another shape."""
        return self._record("reshape", name, (x,), (), shape=tuple(shape))

    def slice(self, x: Tensor, start: int, stop: int, name: str | None = None) -> Tensor:
        """x[.., start:stop]."""
        return self._record("slice", name, (x,), (), start=start, stop=stop)

    def concat(self, a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
        """The elements of a, then those of b, along the last axis."""
        return self._record("concat", name, (a, b), ())

    def heads(self, x: Tensor, dim: int) -> Tensor:
        """x [heads * dim] as [heads, dim]."""
        return self.reshape(x, (x.size // dim, dim))

    # Rows at other rates

    def split(self, x: Tensor, parts: int, name: str | None = None) -> Tensor:
        """The elements of each row as `parts` rows: [n, parts * d] to [n*parts, d]."""
        rows = at_rate(rate(self._several(x)) * parts)
        return self._record("split", name, (x,), (), rows=rows, parts=parts)

    def join(self, x: Tensor, parts: int, name: str | None = None) -> Tensor:
        """`parts` rows of a column as one: [n*parts, d] to [n, parts * d]."""
        if rate(self._several(x)) % parts:
            raise ValueError(f"{x.name} has {rate(x.rows)} rows a column, not to be joined {parts}")
        rows = at_rate(rate(x.rows) // parts)
        return self._record("join", name, (x,), (), rows=rows, parts=parts)

    def convolve(
        self,
        x: Tensor,
        weight: Weight,
        bias: Weight | None,
        state: State,
        name: str | None = None,
    ) -> Tensor:
        """A causal convolution over rows, `weight` [outputs, taps * channels], plus `bias`.

        out[i] = weight times rows i - taps + 1 to i beside each other, oldest first; `state`
        [taps - 1, channels] has the newest rows before, zeros before the first.
        """
        weights = (weight,) if bias is None else (weight, bias)
        named = name or weight.waypoint
        self._several(x)
        return self._record("convolve", named, (x,), weights, name is None, state=state)

    @staticmethod
    def _several(x: Tensor) -> str:
        if x.rows == PICKED:
            raise ValueError(f"{x.name} are wanted rows, which do not follow each other")
        return x.rows

    # Mixtures of experts

    def route(self, scores: Tensor, used: int, name: str | None = None) -> Tensor:
        """Who of the experts, scored [experts], is asked: [2, used], numbers and weights.

        The `used` best, best first, of equals the lower number; the weights are the softmax over
        the chosen.
        """
        return self._record("route", name, (scores,), (), used=used)

    def linear_experts(
        self, x: Tensor, routing: Tensor, weight: Weight, name: str | None = None
    ) -> Tensor:
        """x [inputs], or [used, inputs], times each chosen expert's part of `weight`.

        The weight is [experts, outputs, inputs]; gives [used, outputs].
        """
        named = name or weight.waypoint
        return self._record("linear_experts", named, (x, routing), (weight,), name is None)

    def combine(
        self, x: Tensor, routing: Tensor, scale: Weight | None = None, name: str | None = None
    ) -> Tensor:
        """The sum of x [used, d], each times its weight and, with `scale` [experts], its scale."""
        weights = () if scale is None else (scale,)
        return self._record("combine", name, (x, routing), weights)

    # What goes on from position to position

    def conv(self, x: Tensor, weight: Weight, state: State, name: str | None = None) -> Tensor:
        """A causal convolution of each channel by itself, `weight` [channels, taps].

        out[i] = sum over t of weight[:, t] * x[i - taps + 1 + t]; `state` [taps - 1, channels] has
        the newest inputs, oldest first.
        """
        named = name or weight.waypoint
        return self._record("conv", named, (x,), (weight,), name is None, state=state)

    def decay(self, x: Tensor, a: Weight, bias: Weight, name: str | None = None) -> Tensor:
        """exp(a * softplus(x + bias)), between 0 and 1 where a is negative (Gu, Dao, 2023)."""
        return self._record("decay", name, (x,), (a, bias))

    def delta(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        decay: Tensor,
        beta: Tensor,
        state: State,
        name: str | None = None,
    ) -> Tensor:
        """The gated delta rule (Yang, Kautz, Hatamizadeh, 2024), one position after the other.

        q, k [key heads, dk]; v [value heads, dv]; decay, beta [value heads]; state [value heads,
        dk, dv]. For value head h, with q and k of head h modulo the key heads: S *= decay, then
        S += k (beta * (v - S'k))', and the result is S'q: [value heads, dv].
        """
        return self._record("delta", name, (q, k, v, decay, beta), (), state=state)

    def previous(self, x: Tensor, state: State, name: str | None = None) -> Tensor:
        """x of the position before; zeros before the first. `state` has the shape of x."""
        return self._record("previous", name, (x,), (), state=state)

    def recall(self, state: State, name: str | None = None) -> Tensor:
        """What the row's sequence carries in `state`; for a drafting pass."""
        return self._record("recall", name, (), (), state=state)

    # The record

    def part(self, part: str) -> list[Op]:
        """The operations of the reading or of the drafting pass, in the order of the record."""
        return [op for op in self.ops if op.part == part]

    def named(self) -> dict[str, Tensor]:
        """Every waypoint of the reading pass by name, in the order of the record."""
        return {op.name: op.output for op in self.part(READING) if op.output is not None}

    def _record(
        self,
        kind: str,
        name: str | None,
        inputs: tuple[Tensor, ...],
        weights: tuple[Weight, ...],
        full: bool = False,
        rows: str | None = None,
        **attributes: Any,
    ) -> Tensor:
        output = self._append(kind, name, inputs, weights, full, rows, attributes)
        if output is None:
            raise ValueError(f"{kind} gives no value")
        return output

    def _append(
        self,
        kind: str,
        name: str | None,
        inputs: tuple[Tensor, ...],
        weights: tuple[Weight, ...],
        full: bool,
        rows: str | None,
        attributes: Mapping[str, Any],
    ) -> Tensor | None:
        for tensor in inputs:
            if tensor.graph is not self:
                raise ValueError(f"{kind} reads {tensor.name}, which is of another graph")
            if tensor.part != self._part:
                raise ValueError(f"{kind} of the {self._part} pass reads {tensor.name}")
        waypoint = self._name(kind, name, full)
        if kind in PLACED and any(rate(t.rows) > 1 for t in inputs):
            raise ValueError(f"{waypoint} reads {inputs[0].name}, which has rows {inputs[0].rows}")
        if len({t.rows for t in inputs}) > 1:
            raise ValueError(f"{waypoint} mixes rows {sorted({t.rows for t in inputs})}")
        shape = OPS[kind].shape(
            waypoint, [t.shape for t in inputs], [w.shape for w in weights], attributes
        )
        output = None
        if shape is not None:
            symbol = rows or (inputs[0].rows if inputs else COLUMNS)
            output = Tensor(self, self._tensors, symbol, shape, waypoint, self._part)
            self._tensors += 1
        self.ops.append(Op(kind, waypoint, inputs, weights, attributes, output, self._part))
        return output

    def _name(self, kind: str, name: str | None, full: bool) -> str:
        whole = name or kind
        if not full:
            whole = ".".join([*self._scopes, whole])
        if self._part == DRAFTING:
            whole = f"draft.{whole}"
        if whole in self._names:
            if name is not None:
                raise ValueError(f"two operations are named {whole}")
            count = 2
            while f"{whole}#{count}" in self._names:
                count += 1
            whole = f"{whole}#{count}"
        self._names.add(whole)
        return whole
