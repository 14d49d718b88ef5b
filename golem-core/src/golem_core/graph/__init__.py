"""The graph: a forward pass written once, recorded once, replayed anywhere."""

from golem_core.graph.compile import BACKENDS, compile
from golem_core.graph.encoder import Buckets
from golem_core.graph.graph import Graph
from golem_core.graph.program import PAGE, Batch, PageGroup, Program, StateGroup, Stopped
from golem_core.graph.record import Cache, Op, State, Tensor, Weight
from golem_core.graph.rope import Rope, Yarn, stretched_rope

__all__ = [
    "BACKENDS",
    "PAGE",
    "Batch",
    "Buckets",
    "Cache",
    "Graph",
    "Op",
    "PageGroup",
    "Program",
    "Rope",
    "State",
    "StateGroup",
    "Stopped",
    "Tensor",
    "Weight",
    "Yarn",
    "compile",
    "stretched_rope",
]
