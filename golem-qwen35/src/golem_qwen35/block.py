"""One block of Qwen3.5: a mixer and a feed-forward, each behind its norm, beside its residual."""

from __future__ import annotations

from golem_core.graph import Graph, Tensor
from golem_qwen35.config import Config
from golem_qwen35.feed_forward import FeedForward, Mixture
from golem_qwen35.mixers import Attention, DeltaNet


class Block:
    """The block whose tensors begin with `name`; a delta net where it has such tensors."""

    def __init__(self, g: Graph, c: Config, name: str) -> None:
        self.name, self.eps = name, c.eps
        recurrent = any(each.startswith(f"{name}.ssm_") for each in g.weights.tensors)
        self.attn_norm = g.weight(f"{name}.attn_norm.weight", (c.width,))
        self.mixer = DeltaNet(g, c, name) if recurrent else Attention(g, c, name)
        self.ffn_norm = g.weight(f"{name}.post_attention_norm.weight", (c.width,))
        e = c.experts
        self.feed_forward = FeedForward(g, c, name) if e is None else Mixture(g, c, e, name)

    def __call__(self, g: Graph, x: Tensor) -> Tensor:
        """x [width] to the next block's x [width]."""
        with g.scope(self.name):
            h = g.rms_norm(x, self.attn_norm, self.eps)
            x = g.add(x, self.mixer(g, h), name="attn_residual")
            h = g.rms_norm(x, self.ffn_norm, self.eps)
            return g.add(x, self.feed_forward(g, h), name="out")
