"""What a pass costs at least: bytes of weights to read, and products to add up.

Only matrices are counted, which is nearly all of either; keys, values and states come on top. Rows
that `prune` leaves out are not counted, nor experts that a row does not ask.
"""

from __future__ import annotations

from dataclasses import dataclass

from golem_core.graph.graph import Graph
from golem_core.graph.prune import prune
from golem_core.graph.record import COLUMNS, READING


@dataclass(frozen=True)
class Cost:
    """Of one reading pass.

    bytes     of weights that a pass of a single column reads
    column    products (a multiplication and its addition) for each column
    output    further products for each row whose logits are wanted
    """

    bytes: int
    column: int
    output: int


def cost(graph: Graph) -> Cost:
    """The cost of `graph`, whose result must be set."""
    nbytes = column = output = 0
    for op in prune(graph, ()).part(READING):
        if op.kind not in ("linear", "linear_experts"):
            continue
        stored = op.weights[0].stored
        used, experts = 1, 1
        if op.kind == "linear_experts":
            used, experts = op.inputs[1].shape[1], stored.shape[0]
        products = stored.elements * used // experts
        nbytes += stored.nbytes * used // experts
        if op.inputs[0].rows == COLUMNS:
            column += products
        else:
            output += products
    return Cost(nbytes, column, output)
