"""Where tensors lie that are parts of others, or others by another name: no memory of their own."""

from __future__ import annotations

from dataclasses import dataclass

from golem_core.graph.graph import Graph
from golem_core.graph.record import Op, Tensor, rate


@dataclass(frozen=True)
class View:
    """Where a tensor lies: `size` elements at `offset` of each row of `root`."""

    root: Tensor
    offset: int
    size: int


def is_view(op: Op) -> bool:
    """Whether an operation only says the same memory in another way."""
    if op.kind in ("reshape", "split", "join"):
        return True
    return op.kind == "input" or (op.kind == "slice" and len(op.inputs[0].shape) == 1)


def storage(graph: Graph) -> dict[Tensor, View]:
    """Where every tensor lies: a reshape, or a part of a flat row, is in another's memory."""
    views: dict[Tensor, View] = {}
    for op in graph.ops:
        if op.output is None:
            continue
        if is_view(op) and op.inputs:
            whole = views[op.inputs[0]]
            if op.kind in ("split", "join") and (whole.offset or not dense(op.inputs[0], whole)):
                raise ValueError(f"{op.name} reads a part of rows, {op.inputs[0].name}")
            start = op.attributes.get("start", 0)
            views[op.output] = View(whole.root, whole.offset + start, op.output.size)
        else:
            views[op.output] = View(op.output, 0, op.output.size)
    return views


def dense(tensor: Tensor, view: View) -> bool:
    """Whether a tensor's rows are all that its root's rows have."""
    return tensor.size * rate(tensor.rows) == view.root.size * rate(view.root.rows)
