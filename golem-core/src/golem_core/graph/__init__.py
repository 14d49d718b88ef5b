"""The graph: a forward pass written once, recorded once, replayed anywhere."""

from golem_core.graph.compile import BACKENDS, compile
from golem_core.graph.graph import Cache, Graph, Op, Rope, State, Tensor, Weight
from golem_core.graph.program import PAGE, Batch, PageGroup, Program, StateGroup

__all__ = [
    "BACKENDS",
    "PAGE",
    "Batch",
    "Cache",
    "Graph",
    "Op",
    "PageGroup",
    "Program",
    "Rope",
    "State",
    "StateGroup",
    "Tensor",
    "Weight",
    "compile",
]
