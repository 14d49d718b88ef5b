"""Llama, dense: Llama 1 to 3.3, SmolLM, and what else is converted to the architecture `llama`.

    x ─ norm ─ q,k,v ─ rope ─ attend ─ out ─ + ─ norm ─ swiglu ─ + ─
    └────────────────────────────────────────┘└──────────────────┘

The plainest of the families, pre-norm with grouped heads, so read it first. Absent here: norms of
heads and after a branch, sliding windows, logit caps, embedding scale, mixtures of experts.
Touvron et al., 2023; Grattafiori et al., 2024 (rope_freqs). Keys and defaults as in llama.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from golem_core.graph import Graph, Rope, Tensor, Weight
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
    head_dim: int
    eps: float
    rope_base: float
    rope_scale: float  # positions are multiplied by it: 1 / rope.scaling.factor

    @classmethod
    def from_weights(cls, weights: Weights) -> Config:
        """Reads each key once; raises BadWeights and Unsupported by key."""
        keys = Keys(weights, "llama")
        keys.absent("expert_count", "rope.scaling.alpha", "attention.sliding_window")
        keys.one_of("rope.scaling.attn_factor", (1.0,), 1.0)
        width, heads = keys.whole("embedding_length"), keys.whole("attention.head_count")
        kv_heads = keys.whole("attention.head_count_kv", heads)
        if heads % kv_heads:
            raise keys.bad("attention.head_count", f"no multiple of head_count_kv {kv_heads}")
        head_dim = keys.whole("attention.key_length", width // heads)
        if head_dim * heads != width and not keys.has("attention.key_length"):
            raise keys.bad("embedding_length", f"no multiple of head_count {heads}")
        # Keys and values of one size, and rope over all of it, are all that there is in the wild.
        keys.one_of("attention.value_length", (head_dim,), head_dim)
        keys.one_of("rope.dimension_count", (head_dim,), head_dim)
        if head_dim % 2:
            raise keys.bad("embedding_length", f"whose heads of {head_dim} do not turn in pairs")
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
            rope_base=keys.real("rope.freq_base", 10000.0, above=0),
            rope_scale=rope_scale(keys),
        )


def rope_scale(keys: Keys) -> float:
    """What positions are multiplied by: the inverse of the factor, under its new or old key."""
    kind = keys.one_of("rope.scaling.type", ("linear", "none"), "linear")
    old = keys.real("rope.scale_linear", 0.0, above=-1e-9)
    factor = keys.real("rope.scaling.factor", old, above=-1e-9)
    return 1.0 if kind == "none" or factor == 0.0 else 1.0 / factor


class Attention:
    """Grouped-query attention; biases where the file has them."""

    def __init__(self, g: Graph, c: Config, block: str, rope: Rope) -> None:
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.head_dim, self.rope = c.head_dim, rope
        self.q, self.q_bias = weight_and_bias(g, f"{block}.attn_q", q, c.width)
        self.k, self.k_bias = weight_and_bias(g, f"{block}.attn_k", kv, c.width)
        self.v, self.v_bias = weight_and_bias(g, f"{block}.attn_v", kv, c.width)
        self.out, self.out_bias = weight_and_bias(g, f"{block}.attn_output", c.width, q)
        self.cache = g.cache(c.kv_heads, c.head_dim)

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """What the rows h [width], normed, gather from the rows before them: [width]."""
        q = g.heads(g.linear(h, self.q, self.q_bias), self.head_dim)  # [heads, d]
        k = g.heads(g.linear(h, self.k, self.k_bias), self.head_dim)  # [kv_heads, d]
        v = g.heads(g.linear(h, self.v, self.v_bias), self.head_dim)  # [kv_heads, d]
        q = g.rope(q, self.rope, name="q_rope")
        k = g.rope(k, self.rope, name="k_rope")
        seen = g.attend(q, k, v, self.cache, 1 / math.sqrt(self.head_dim), name="attend")
        return g.linear(seen, self.out, self.out_bias)  # [width]


class FeedForward:
    """SwiGLU; biases where the file has them."""

    def __init__(self, g: Graph, c: Config, block: str) -> None:
        self.gate, self.gate_bias = weight_and_bias(g, f"{block}.ffn_gate", c.ffn, c.width)
        self.up, self.up_bias = weight_and_bias(g, f"{block}.ffn_up", c.ffn, c.width)
        self.down, self.down_bias = weight_and_bias(g, f"{block}.ffn_down", c.width, c.ffn)

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """h [width], normed, to [width]."""
        gate = g.linear(h, self.gate, self.gate_bias)  # [ffn]
        up = g.linear(h, self.up, self.up_bias)  # [ffn]
        return g.linear(g.glu(gate, up, "silu", name="ffn_act"), self.down, self.down_bias)


class Block:
    """One layer: attention and feed-forward, each behind its norm and beside its residual."""

    def __init__(self, g: Graph, c: Config, layer: int, rope: Rope) -> None:
        self.name, self.eps = f"blk.{layer}", c.eps
        self.attn_norm = g.weight(f"{self.name}.attn_norm.weight", (c.width,))
        self.attention = Attention(g, c, self.name, rope)
        self.ffn_norm = g.weight(f"{self.name}.ffn_norm.weight", (c.width,))
        self.feed_forward = FeedForward(g, c, self.name)

    def __call__(self, g: Graph, x: Tensor) -> Tensor:
        """x [width] to the next layer's x [width]."""
        with g.scope(self.name):
            h = g.rms_norm(x, self.attn_norm, self.eps)
            x = g.add(x, self.attention(g, h), name="attn_residual")
            h = g.rms_norm(x, self.ffn_norm, self.eps)
            return g.add(x, self.feed_forward(g, h), name="out")


class Llama(Generator):
    """A language model of the architecture `llama`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.vocab = config.vocab
        self.context = config.context

    @classmethod
    def open(cls, weights: Weights, options: Options) -> Llama:
        """As `Generator.open`."""
        return cls(Config.from_weights(weights)).checked(weights)

    def forward(self, g: Graph) -> Tensor:
        """Records the pass; logits [vocab]."""
        c = self.config
        table = g.weight("token_embd.weight", (c.vocab, c.width))
        # The converter has permuted the rows of attn_q and attn_k, so that pairs lie side by side.
        rope = Rope(c.head_dim, c.rope_base, "pairs", c.rope_scale, rope_factors(g, c))
        x = g.embed(table)  # [width]
        for layer in range(c.layers):
            x = Block(g, c, layer, rope)(g, x)
        output_norm = g.weight("output_norm.weight", (c.width,))
        x = g.rms_norm(g.pick(x), output_norm, c.eps)
        tied = not g.has("output.weight")
        head = table if tied else g.weight("output.weight", (c.vocab, c.width))
        return g.linear(x, head, name="logits")


def rope_factors(g: Graph, c: Config) -> Weight | None:
    """Llama 3's division of each frequency [head_dim / 2], which the converter writes out."""
    name = "rope_freqs.weight"
    return g.weight(name, (c.head_dim // 2,)) if g.has(name) else None


def weight_and_bias(g: Graph, name: str, rows: int, columns: int) -> tuple[Weight, Weight | None]:
    """A matrix [rows, columns], and its bias [rows] if the file has one."""
    bias = g.weight(f"{name}.bias", (rows,)) if g.has(f"{name}.bias") else None
    return g.weight(f"{name}.weight", (rows, columns)), bias
