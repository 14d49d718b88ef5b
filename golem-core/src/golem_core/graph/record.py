"""The record of a forward pass: symbolic tensors, the operations between them, and their names.

Nothing is computed: each call of a `Graph` checks its shapes by the rule in `ops.OPS` and appends
one `Op` here. The number of rows is left open: a tensor has the shape of *one* row and a symbol for
how many there are: ``"n"`` for the columns of a pass, ``"m"`` for those whose logits are wanted,
and ``"n*6"`` where each column has six rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from golem_core.errors import BadWeights
from golem_core.graph.ops import OPS
from golem_core.weights import Stored, Weights

COLUMNS = "n"
PICKED = "m"

# The two passes that a program can make: the one that reads, and the one that guesses ahead.
READING = "reading"
DRAFTING = "drafting"

# What has a place in a sequence, and so a row a column at most.
PLACED = (
    *("embed", "rope", "store", "attend", "attend_within", "pool", "pick"),
    *("conv", "delta", "previous", "recall", "pass_on"),
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

    record: Record
    index: int
    rows: str
    shape: tuple[int, ...]
    name: str
    part: str = READING

    @property
    def size(self) -> int:
        """Elements in one row."""
        return math.prod(self.shape)

    def __add__(self, other: Tensor) -> Tensor:
        return self.record.append("add", None, (self, other), ())

    def __mul__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return self.record.append("mul", None, (self, other), ())
        return self.record.append("scale", None, (self,), (), factor=float(other))


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
class Record:
    """One forward pass over the tensors of `weights`, and what its sequences keep.

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

    # What is recorded

    def part(self, part: str) -> list[Op]:
        """The operations of the reading or of the drafting pass, in the order of the record."""
        return [op for op in self.ops if op.part == part]

    def named(self) -> dict[str, Tensor]:
        """Every waypoint of the reading pass by name, in the order of the record."""
        return {op.name: op.output for op in self.part(READING) if op.output is not None}

    def append(
        self,
        kind: str,
        name: str | None,
        inputs: tuple[Tensor, ...],
        weights: tuple[Weight, ...],
        full: bool = False,
        rows: str | None = None,
        **attributes: Any,
    ) -> Tensor:
        """Appends an operation that gives a value, and gives that.

        name    of its waypoint, in the scopes that are open unless it is the `full` one; None: the
                kind, numbered
        rows    the symbol of the row count; None: as the inputs have it
        """
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
        """`append`, also for what gives no value."""
        for tensor in inputs:
            if tensor.record is not self:
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
