"""The transformer layers of the flow model and of the codec.

    x ─ norm ─ q,k,v ─ rope of q,k ─ attend ─ out (* scale) ─ + ─ norm ─ gelu ─ down (* scale) ─ + ─
    └─────────────────────────────────────────────────────────┘└─────────────────────────────────┘

Norms have a mean, a weight and a bias; matrices have no bias. Ropes turn pairs of neighbours. The
codec's layers have a scale for each channel of a branch, which is put into the branch's matrix.
"""

from __future__ import annotations

import math

from golem_core.graph import Graph, Rope, Tensor, Weight
from golem_pockettts.config import Layers
from golem_pockettts.derived import Tensors

EPS = 1e-5


def norm_weights(g: Graph, at: str, width: int) -> tuple[Weight, Weight]:
    """The weight and the bias of a norm."""
    return g.weight(f"{at}.weight", (width,)), g.weight(f"{at}.bias", (width,))


class Stack:
    """The layers whose tensors begin with `at`."""

    def __init__(self, tensors: Tensors, c: Layers, at: str, heavy: bool) -> None:
        self.c, self.at = c, at
        rows = c.attention + 2 * c.kv_heads * c.dim
        for layer in range(c.layers):
            block = f"{at}.layers.{layer}"
            tensors.matrix(f"{block}.self_attn.in_proj.weight", (rows, c.width), heavy)
            tensors.matrix(f"{block}.linear1.weight", (c.ffn, c.width), heavy)
            for name, scale, cols in (
                ("self_attn.out_proj.weight", "layer_scale_1.scale", c.attention),
                ("linear2.weight", "layer_scale_2.scale", c.ffn),
            ):
                shape = (c.width, cols)
                if f"{block}.{scale}" in tensors.weights.tensors:
                    factor = tensors.values(f"{block}.{scale}", (c.width,))
                    source = tensors.source(f"{block}.{name}", shape)
                    tensors.remade(
                        f"{block}.{name}",
                        source,
                        shape,
                        lambda w, factor=factor: w * factor[:, None],  # type: ignore[misc]
                        exact=False,
                        block=cols if heavy else 0,
                    )
                else:
                    tensors.matrix(f"{block}.{name}", shape, heavy)

    def record(self, g: Graph, x: Tensor) -> Tensor:
        """x [width] through all layers."""
        c = self.c
        rope = Rope(c.dim, c.base, "pairs")
        for layer in range(c.layers):
            block = f"{self.at}.layers.{layer}"
            with g.scope(block):
                x = g.add(x, self.attention(g, block, rope, x), name="attn_residual")
                x = g.add(x, self.feed_forward(g, block, x), name="out")
        return x

    def attention(self, g: Graph, block: str, rope: Rope, x: Tensor) -> Tensor:
        """x [width] to what its rows gather from the rows before them, [width]."""
        c = self.c
        kv = c.kv_heads * c.dim
        rows = c.attention + 2 * kv
        x = g.layer_norm(x, *norm_weights(g, f"{block}.norm1", c.width), EPS)
        qkv = g.linear(x, g.weight(f"{block}.self_attn.in_proj.weight", (rows, c.width)))
        q = g.heads(g.slice(qkv, 0, c.attention, name="q"), c.dim)
        k = g.heads(g.slice(qkv, c.attention, c.attention + kv, name="k"), c.dim)
        v = g.heads(g.slice(qkv, c.attention + kv, rows, name="v"), c.dim)
        q, k = g.rope(q, rope, name="q_rope"), g.rope(k, rope, name="k_rope")
        cache = g.cache(c.kv_heads, c.dim, c.window)
        seen = g.attend(q, k, v, cache, 1 / math.sqrt(c.dim), name="attend")
        return g.linear(
            seen, g.weight(f"{block}.self_attn.out_proj.weight", (c.width, c.attention))
        )

    def feed_forward(self, g: Graph, block: str, x: Tensor) -> Tensor:
        """x [width] to [width]."""
        c = self.c
        x = g.layer_norm(x, *norm_weights(g, f"{block}.norm2", c.width), EPS)
        up = g.linear(x, g.weight(f"{block}.linear1.weight", (c.ffn, c.width)))
        act = g.activate(up, "gelu_tanh", name="ffn_act")
        return g.linear(act, g.weight(f"{block}.linear2.weight", (c.width, c.ffn)))
