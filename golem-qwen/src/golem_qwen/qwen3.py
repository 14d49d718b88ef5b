"""Qwen3, dense.

    x ─ norm ─ q,k,v ─ norm of each head's q,k ─ rope ─ attend ─ out ─ + ─ norm ─ swiglu ─ + ─
    └──────────────────────────────────────────────────────────────────┘└──────────────────┘

Plain pre-norm with grouped heads, as model.py beside it; what differs is that each head's query and
key is normed where Qwen2 has a bias, and that a head has a size of its own. Absent here: biases,
sliding windows, logit caps. Yang et al., 2025. Keys and defaults as in llama.cpp.
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
        keys = Keys(weights, "qwen3")
        keys.absent("expert_count", "attention.sliding_window", "pooling_type")
        width, heads = keys.whole("embedding_length"), keys.whole("attention.head_count")
        kv_heads = keys.whole("attention.head_count_kv", heads)
        if heads % kv_heads:
            raise keys.bad("attention.head_count", f"no multiple of head_count_kv {kv_heads}")
        head_dim = keys.whole("attention.key_length", max(1, width // heads))
        if head_dim % 2:
            raise keys.bad("attention.key_length", "an odd number, which a rope cannot turn")
        for key in ("attention.value_length", "rope.dimension_count"):
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
    """Grouped-query attention with a norm for the heads of q and k."""

    def __init__(self, g: Graph, c: Config, block: str) -> None:
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.head_dim, self.eps, self.turn = c.head_dim, c.eps, c.rope
        self.q = g.weight(f"{block}.attn_q.weight", (q, c.width))
        self.k = g.weight(f"{block}.attn_k.weight", (kv, c.width))
        self.v = g.weight(f"{block}.attn_v.weight", (kv, c.width))
        self.q_norm = g.weight(f"{block}.attn_q_norm.weight", (c.head_dim,))
        self.k_norm = g.weight(f"{block}.attn_k_norm.weight", (c.head_dim,))
        self.out = g.weight(f"{block}.attn_output.weight", (c.width, q))
        self.cache = g.cache(c.kv_heads, c.head_dim)

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """What the rows h [width], normed, gather from the rows before them: [width]."""
        q = g.heads(g.linear(h, self.q), self.head_dim)  # [heads, d]
        k = g.heads(g.linear(h, self.k), self.head_dim)  # [kv_heads, d]
        v = g.heads(g.linear(h, self.v), self.head_dim)  # [kv_heads, d]
        q = g.rope(g.rms_norm(q, self.q_norm, self.eps), self.turn, name="q_rope")
        k = g.rope(g.rms_norm(k, self.k_norm, self.eps), self.turn, name="k_rope")
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


class Qwen3(Generator):
    """A language model of the architecture `qwen3`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.vocab = config.vocab
        self.context = config.context

    @classmethod
    def open(cls, weights: Weights, options: Options) -> Qwen3:
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
        return g.linear(x, head, name="logits")
