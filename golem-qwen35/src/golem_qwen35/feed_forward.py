"""What follows the mixer in a block of Qwen3.5: SwiGLU, or a mixture beside a shared expert."""

from __future__ import annotations

from golem_core.graph import Graph, Tensor
from golem_qwen35.config import Config, Experts


class FeedForward:
    """SwiGLU."""

    def __init__(self, g: Graph, c: Config, block: str) -> None:
        self.gate = g.weight(f"{block}.ffn_gate.weight", (c.ffn, c.width))
        self.up = g.weight(f"{block}.ffn_up.weight", (c.ffn, c.width))
        self.down = g.weight(f"{block}.ffn_down.weight", (c.width, c.ffn))

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """h [width], normed, to [width]."""
        gate, up = g.linear(h, self.gate), g.linear(h, self.up)  # [ffn]
        return g.linear(g.glu(gate, up, "silu", name="ffn_act"), self.down)  # [width]


class Mixture:
    """A SwiGLU of each chosen expert, summed by the router's weights, and of one that all share.

    The softmax goes over the chosen alone; the shared expert has a gate of one number.
    """

    def __init__(self, g: Graph, c: Config, e: Experts, block: str) -> None:
        inner, outer = (e.count, e.ffn, c.width), (e.count, c.width, e.ffn)
        self.used = e.used
        self.router = g.weight(f"{block}.ffn_gate_inp.weight", (e.count, c.width))
        self.gate = g.weight(f"{block}.ffn_gate_exps.weight", inner)
        self.up = g.weight(f"{block}.ffn_up_exps.weight", inner)
        self.down = g.weight(f"{block}.ffn_down_exps.weight", outer)
        self.shared_router = g.weight(f"{block}.ffn_gate_inp_shexp.weight", (1, c.width))
        self.shared_gate = g.weight(f"{block}.ffn_gate_shexp.weight", (e.shared, c.width))
        self.shared_up = g.weight(f"{block}.ffn_up_shexp.weight", (e.shared, c.width))
        self.shared_down = g.weight(f"{block}.ffn_down_shexp.weight", (c.width, e.shared))

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """h [width], normed, to [width]."""
        chosen = g.route(g.linear(h, self.router), self.used, name="ffn_routing")  # [2, used]
        gate = g.linear_experts(h, chosen, self.gate)  # [used, ffn]
        up = g.linear_experts(h, chosen, self.up)
        act = g.glu(gate, up, "silu", name="ffn_act")
        down = g.linear_experts(act, chosen, self.down)  # [used, width]
        experts = g.combine(down, chosen, name="ffn_experts")  # [width]
        return g.add(experts, self.shared(g, h), name="ffn_out")

    def shared(self, g: Graph, h: Tensor) -> Tensor:
        """What the shared expert says, behind its gate: [width]."""
        gate, up = g.linear(h, self.shared_gate), g.linear(h, self.shared_up)  # [shared]
        down = g.linear(g.glu(gate, up, "silu", name="ffn_act_shexp"), self.shared_down)
        weight = g.linear(h, self.shared_router)  # [1]
        return g.glu(weight, down, "sigmoid", name="ffn_shexp")
