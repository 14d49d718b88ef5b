"""OLMo 2.

    x ─ q,k,v ─ norm of q,k ─ rope ─ attend ─ out ─ norm ─ + ─ swiglu ─ norm ─ + ─
    └──────────────────────────────────────────────────────┘└──────────────────┘

Norms stand after each branch, none before it; q and k are normed over all their heads at once.
Absent here: biases, sliding windows (those are OLMo 3), stretched ropes. OLMo Team, 2025.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from golem_core.graph import Graph, Rope, Tensor
from golem_core.model import Generator, Options
from golem_core.weights import Keys, Weights


@dataclass(frozen=True)
class Config:
    """The geometry, as the file gives it."""

    vocab: int
    context: int
    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    eps: float
    rope_base: float

    @classmethod
    def from_weights(cls, weights: Weights) -> Config:
        """Reads each key once; raises BadWeights and Unsupported by key."""
        keys = Keys(weights, "olmo2")
        keys.absent("attention.sliding_window", "rope.scaling.factor")
        width, heads = keys.whole("embedding_length"), keys.whole("attention.head_count")
        kv_heads = keys.whole("attention.head_count_kv", heads)
        if width % (2 * heads):
            raise keys.bad("embedding_length", f"not an even number for each of {heads} heads")
        if heads % kv_heads:
            raise keys.bad("attention.head_count", f"no multiple of head_count_kv {kv_heads}")
        return cls(
            vocab=Keys(weights, "tokenizer.ggml").length("tokens"),
            context=keys.whole("context_length", least=2),
            layers=keys.whole("block_count"),
            width=width,
            ffn=keys.whole("feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            eps=keys.real("attention.layer_norm_rms_epsilon", above=0),
            rope_base=keys.real("rope.freq_base", 10000.0, above=0),
        )


def attention(g: Graph, c: Config, block: str, x: Tensor) -> Tensor:
    """x [width] to what its rows gather from the rows before them, [width]."""
    d = c.width // c.heads
    q_norm = g.weight(f"{block}.attn_q_norm.weight", (c.width,))
    k_norm = g.weight(f"{block}.attn_k_norm.weight", (c.kv_heads * d,))
    q = g.linear(x, g.weight(f"{block}.attn_q.weight", (c.width, c.width)))
    k = g.linear(x, g.weight(f"{block}.attn_k.weight", (c.kv_heads * d, c.width)))
    v = g.linear(x, g.weight(f"{block}.attn_v.weight", (c.kv_heads * d, c.width)))
    rope = Rope(d, c.rope_base, "half")
    q = g.rope(g.heads(g.rms_norm(q, q_norm, c.eps), d), rope, name="q_rope")  # [heads, d]
    k = g.rope(g.heads(g.rms_norm(k, k_norm, c.eps), d), rope, name="k_rope")  # [kv_heads, d]
    cache = g.cache(c.kv_heads, d)
    seen = g.attend(q, k, g.heads(v, d), cache, 1 / math.sqrt(d), name="attend")
    return g.linear(seen, g.weight(f"{block}.attn_output.weight", (c.width, c.width)))


def feed_forward(g: Graph, c: Config, block: str, x: Tensor) -> Tensor:
    """SwiGLU: x [width] to [width]."""
    gate = g.linear(x, g.weight(f"{block}.ffn_gate.weight", (c.ffn, c.width)))
    up = g.linear(x, g.weight(f"{block}.ffn_up.weight", (c.ffn, c.width)))
    act = g.glu(gate, up, "silu", name="ffn_act")  # [ffn]
    return g.linear(act, g.weight(f"{block}.ffn_down.weight", (c.width, c.ffn)))


class Olmo2(Generator):
    """A language model of the architecture `olmo2`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.vocab = config.vocab
        self.context = config.context

    @classmethod
    def open(cls, weights: Weights, options: Options) -> Olmo2:
        """As `Generator.open`."""
        return cls(Config.from_weights(weights)).checked(weights)

    def forward(self, g: Graph) -> Tensor:
        """Records the pass; logits [vocab]."""
        c = self.config
        x = g.embed(g.weight("token_embd.weight", (c.vocab, c.width)))  # [width]
        for layer in range(c.layers):
            block = f"blk.{layer}"
            after_attention = g.weight(f"{block}.post_attention_norm.weight", (c.width,))
            after_ffn = g.weight(f"{block}.post_ffw_norm.weight", (c.width,))
            with g.scope(block):
                h = g.rms_norm(attention(g, c, block, x), after_attention, c.eps)
                x = g.add(x, h, name="attn_residual")
                h = g.rms_norm(feed_forward(g, c, block, x), after_ffn, c.eps)
                x = g.add(x, h, name="out")
        x = g.rms_norm(g.pick(x), g.weight("output_norm.weight", (c.width,)), c.eps)
        return g.linear(x, g.weight("output.weight", (c.vocab, c.width)), name="logits")
