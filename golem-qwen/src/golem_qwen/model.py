"""Qwen2 and Qwen2.5, dense.

    x ─ norm ─ q,k,v + bias ─ rope ─ attend ─ out ─ + ─ norm ─ swiglu ─ + ─
    └───────────────────────────────────────────────┘└──────────────────┘

Plain pre-norm with grouped heads, as golem_llama/model.py; what differs is the bias of q, k and v
and the rope, whose pairs are half a head apart. Absent here: norms of heads, sliding windows
(Qwen2's are off in every file that the converter writes), logit caps, mixtures of experts.
Yang et al., 2024. Keys and defaults as in llama.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from golem_core.graph import Graph, Rope, Tensor, stretched_rope
from golem_core.model import Generator, Options
from golem_core.text import ChatFormat
from golem_core.weights import Keys, Weights
from golem_qwen.format import format_of


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
    head_dim: int
    eps: float
    rope: Rope

    @classmethod
    def from_weights(cls, weights: Weights) -> Config:
        """Reads each key once; raises BadWeights and Unsupported by key."""
        keys = Keys(weights, "qwen2")
        keys.absent("expert_count", "attention.sliding_window")
        width, heads = keys.whole("embedding_length"), keys.whole("attention.head_count")
        kv_heads = keys.whole("attention.head_count_kv", heads)
        if heads % kv_heads:
            raise keys.bad("attention.head_count", f"no multiple of head_count_kv {kv_heads}")
        if width % (2 * heads):
            raise keys.bad("embedding_length", f"not an even number for each of {heads} heads")
        head_dim = width // heads
        for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
            keys.one_of(key, (head_dim,), head_dim)
        return cls(
            vocab=Keys(weights, "tokenizer.ggml").length("tokens"),
            context=keys.whole("context_length", least=2),
            layers=keys.whole("block_count"),
            width=width,
            ffn=keys.whole("feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            eps=keys.real("attention.layer_norm_rms_epsilon", above=0),
            rope=stretched_rope(keys, head_dim),
        )


class Attention:
    """Grouped-query attention with biased q, k and v."""

    def __init__(self, g: Graph, c: Config, block: str) -> None:
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.head_dim, self.turn = c.head_dim, c.rope
        self.q = g.weight(f"{block}.attn_q.weight", (q, c.width))
        self.k = g.weight(f"{block}.attn_k.weight", (kv, c.width))
        self.v = g.weight(f"{block}.attn_v.weight", (kv, c.width))
        self.q_bias = g.weight(f"{block}.attn_q.bias", (q,))
        self.k_bias = g.weight(f"{block}.attn_k.bias", (kv,))
        self.v_bias = g.weight(f"{block}.attn_v.bias", (kv,))
        self.out = g.weight(f"{block}.attn_output.weight", (c.width, q))
        self.cache = g.cache(c.kv_heads, c.head_dim)

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """What the rows h [width], normed, gather from the rows before them: [width]."""
        q = g.heads(g.linear(h, self.q, self.q_bias), self.head_dim)  # [heads, d]
        k = g.heads(g.linear(h, self.k, self.k_bias), self.head_dim)  # [kv_heads, d]
        v = g.heads(g.linear(h, self.v, self.v_bias), self.head_dim)  # [kv_heads, d]
        q = g.rope(q, self.turn, name="q_rope")
        k = g.rope(k, self.turn, name="k_rope")
        seen = g.attend(q, k, v, self.cache, 1 / math.sqrt(self.head_dim), name="attend")
        return g.linear(seen, self.out)  # [width]


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


class Block:
    """One layer: attention and feed-forward, each behind its norm and beside its residual."""

    def __init__(self, g: Graph, c: Config, layer: int) -> None:
        self.name, self.eps = f"blk.{layer}", c.eps
        self.attn_norm = g.weight(f"{self.name}.attn_norm.weight", (c.width,))
        self.attention = Attention(g, c, self.name)
        self.ffn_norm = g.weight(f"{self.name}.ffn_norm.weight", (c.width,))
        self.feed_forward = FeedForward(g, c, self.name)

    def __call__(self, g: Graph, x: Tensor) -> Tensor:
        """x [width] to the next layer's x [width]."""
        with g.scope(self.name):
            h = g.rms_norm(x, self.attn_norm, self.eps)
            x = g.add(x, self.attention(g, h), name="attn_residual")
            h = g.rms_norm(x, self.ffn_norm, self.eps)
            return g.add(x, self.feed_forward(g, h), name="out")


class Qwen2(Generator):
    """A language model of the architecture `qwen2`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.vocab = config.vocab
        self.context = config.context

    @classmethod
    def open(cls, weights: Weights, options: Options) -> Qwen2:
        """As `Generator.open`."""
        return cls(Config.from_weights(weights)).checked(weights)

    def format(self, weights: Weights) -> ChatFormat | None:
        """As the file's chat template writes thoughts and calls."""
        return format_of(weights.metadata.get("tokenizer.chat_template"))

    def forward(self, g: Graph) -> Tensor:
        """Records the pass; logits [vocab]."""
        c = self.config
        table = g.weight("token_embd.weight", (c.vocab, c.width))
        x = g.embed(table)  # [width]
        for layer in range(c.layers):
            x = Block(g, c, layer)(g, x)
        x = g.rms_norm(g.pick(x), g.weight("output_norm.weight", (c.width,)), c.eps)
        tied = not g.has("output.weight")
        head = table if tied else g.weight("output.weight", (c.vocab, c.width))
        bias = g.weight("output.bias", (c.vocab,)) if g.has("output.bias") else None
        return g.linear(x, head, bias, name="logits")
