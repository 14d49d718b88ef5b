"""Leaves out the rows that nobody asks for.

Logits are wanted of a few rows of a pass, of a prompt only of the last. Behind the last layer that
keeps anything (keys, values, a state), everything else is computed for these rows alone: the tail
of the last layer of any model, and all layers that read the keys and values of earlier ones.
"""

from __future__ import annotations

from collections.abc import Collection

from golem_core.graph.graph import Graph
from golem_core.graph.record import COLUMNS, DRAFTING, PICKED, READING, Op, Tensor

# What reads rows that others wrote, or keeps rows for others: it needs them all.
MIXING = (
    *("store", "conv", "convolve", "delta", "previous", "split", "join"),
    *("attend_within", "pool"),
)

# What gives wanted rows without a pick.
OWN = ("input", "pool")


def prune(graph: Graph, keep: Collection[str]) -> Graph:
    """The same graph with each operation on as few rows as its readers need.

    Waypoints in `keep` stay whole. No value of a row that is left changes.
    """
    return _Pruning(graph, frozenset(keep)).graph


class _Pruning:
    def __init__(self, graph: Graph, keep: frozenset[str]) -> None:
        self.graph = Graph(
            graph.weights,
            graph.drafts,
            caches=graph.caches,
            windows=graph.windows,
            states=graph.states,
            draft=graph.draft,
        )
        self.whole = _needed(graph, keep)
        self.now: dict[Tensor, Tensor] = {}  # what stands for a tensor of the old graph
        self.picks: dict[Tensor, Tensor] = {}
        for op in graph.part(READING):
            self.take(op)
        self.graph.ops += graph.part(DRAFTING)
        assert graph.result is not None
        self.graph.result = self.now[graph.result]

    def take(self, op: Op) -> None:
        """One operation as it was, or on the rows whose logits are wanted."""
        out = op.output
        if out is None or out in self.whole or (op.kind in OWN and out.rows == PICKED):
            self.graph.ops.append(op)
            if out is not None:
                self.now[out] = out
        elif op.kind == "pick":
            self.now[out] = self.picked(op.inputs[0], op)
        else:
            inputs = tuple(self.picked(tensor) for tensor in op.inputs)
            made = Tensor(self.graph, out.index, PICKED, out.shape, out.name)
            self.graph.ops.append(Op(op.kind, op.name, inputs, op.weights, op.attributes, made))
            self.now[out] = made

    def picked(self, tensor: Tensor, by: Op | None = None) -> Tensor:
        """The wanted rows of a tensor: picked here, by the model's own operation if it is one."""
        now = self.now[tensor]
        if now.rows == PICKED:
            return now
        if now in self.picks and by is None:
            return self.picks[now]
        name = f"{tensor.name}.picked" if by is None else by.name
        made = Tensor(self.graph, -1 - tensor.index, PICKED, tensor.shape, name)
        self.graph.ops.append(Op("pick", name, (now,), (), {}, made))
        self.picks[now] = made
        return made


def _needed(graph: Graph, keep: frozenset[str]) -> set[Tensor]:
    """The tensors of which every row is needed."""
    whole: set[Tensor] = set()
    for op in reversed(graph.part(READING)):
        out = op.output
        if out is None or out.rows == PICKED:
            pass
        elif op.name in keep or op.kind in ("embed", "input", *MIXING) or out.rows != COLUMNS:
            whole.add(out)
        # A pick needs no row itself, but stays where it is when it is asked for by name.
        needed = op.name in keep if op.kind == "pick" else op.kind in MIXING or out in whole
        if needed:
            whole.update(tensor for tensor in op.inputs if tensor.rows != PICKED)
    return whole
