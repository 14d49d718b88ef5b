"""Gemma 3, the text model.

    x ─ norm ─ q,k,v ─ head norm ─ rope ─ attend ─ out ─ norm ─ + ─ norm ─ geglu ─ norm ─ + ─
    └───────────────────────────────────────────────────────────┘└────────────────────────┘

Normed on both sides of each branch, and q and k for each head. Five layers of six see only a window
of the text and turn by their own, faster rope. Embeddings are scaled by sqrt(width). The norms'
weights are used as the file has them: the converter has added Gemma's 1 to each. Absent here: the
vision tower, a cap on attention's scores, mixtures of experts.
Gemma Team, 2025. Keys and defaults as in llama.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from golem_core.graph import Graph, Rope, Tensor
from golem_core.model import Generator, Options
from golem_core.weights import Keys, Weights

# The 27B model alone scales attention by the width of a head in the embedding, not by its own
# head_dim; no key says so, and llama.cpp tells it by its number of layers too.
LAYERS_OF_27B = 62


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
    scale: float  # of attention's scores
    windows: tuple[int | None, ...]  # what each layer sees; None: everything
    local_rope: Rope
    global_rope: Rope
    softcap: float  # of the logits; 0: none

    @classmethod
    def from_weights(cls, weights: Weights) -> Config:
        """Reads each key once; raises BadWeights and Unsupported by key."""
        keys = Keys(weights, "gemma3")
        keys.absent("attn_logit_softcapping", "expert_count", "rope.scaling.alpha")
        keys.one_of("rope.scaling.attn_factor", (1.0,), 1.0)
        width, heads = keys.whole("embedding_length"), keys.whole("attention.head_count")
        kv_heads = keys.whole("attention.head_count_kv", heads)
        if heads % kv_heads:
            raise keys.bad("attention.head_count", f"no multiple of head_count_kv {kv_heads}")
        head_dim = keys.whole("attention.key_length", max(1, width // heads))
        for key in ("attention.value_length", "attention.key_length_swa", "rope.dimension_count"):
            keys.one_of(key, (head_dim,), head_dim)
        if head_dim % 2:
            raise keys.bad("attention.key_length", "which does not turn in pairs")
        layers = keys.whole("block_count", most=10_000)
        of_head = width // heads if layers == LAYERS_OF_27B else head_dim
        return cls(
            vocab=Keys(weights, "tokenizer.ggml").length("tokens"),
            context=keys.whole("context_length", least=2),
            layers=layers,
            width=width,
            ffn=keys.whole("feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            eps=keys.real("attention.layer_norm_rms_epsilon", above=0),
            scale=1 / math.sqrt(of_head),
            windows=layer_windows(keys, layers),
            # The window's layers are never stretched: what they see is always near.
            local_rope=Rope(head_dim, keys.real("rope.freq_base_swa", 10000.0, above=0)),
            global_rope=Rope(
                head_dim, keys.real("rope.freq_base", 10000.0, above=0), scale=rope_scale(keys)
            ),
            softcap=keys.real("final_logit_softcapping", 0.0, above=-1e-9),
        )


def layer_windows(keys: Keys, layers: int) -> tuple[int | None, ...]:
    """The window of each layer: all but every sixth, or as the file's own pattern says."""
    window = keys.whole("attention.sliding_window", 0, least=0)
    if window == 0:
        return (None,) * layers
    pattern = keys.metadata.get(keys.name("attention.sliding_window_pattern"))
    if isinstance(pattern, np.ndarray):  # a truth value a layer: whether it has a window
        if len(pattern) != layers:
            raise keys.bad("attention.sliding_window_pattern", f"not one for each of {layers}")
        return tuple(window if local else None for local in pattern)
    every = keys.whole("attention.sliding_window_pattern", 6, least=0)
    # Zero: no layer sees everything.
    return tuple(window if not every or (i + 1) % every else None for i in range(layers))


def rope_scale(keys: Keys) -> float:
    """What the positions of a global layer are multiplied by: 1/8 from 4B on."""
    kind = keys.one_of("rope.scaling.type", ("linear", "none"), "linear")
    factor = keys.real("rope.scaling.factor", 0.0, above=-1e-9)
    return 1.0 if kind == "none" or factor == 0.0 else 1.0 / factor


class Attention:
    """Grouped-query attention over everything or a window, q and k normed for each head."""

    def __init__(self, g: Graph, c: Config, layer: int) -> None:
        block, window = f"blk.{layer}", c.windows[layer]
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.head_dim, self.eps, self.scale = c.head_dim, c.eps, c.scale
        self.q = g.weight(f"{block}.attn_q.weight", (q, c.width))
        self.k = g.weight(f"{block}.attn_k.weight", (kv, c.width))
        self.v = g.weight(f"{block}.attn_v.weight", (kv, c.width))
        self.q_norm = g.weight(f"{block}.attn_q_norm.weight", (c.head_dim,))
        self.k_norm = g.weight(f"{block}.attn_k_norm.weight", (c.head_dim,))
        self.out = g.weight(f"{block}.attn_output.weight", (c.width, q))
        self.rope = c.global_rope if window is None else c.local_rope
        self.cache = g.cache(c.kv_heads, c.head_dim, window)

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """What the rows h [width], normed, gather from the rows before them: [width]."""
        q = g.heads(g.linear(h, self.q), self.head_dim)  # [heads, d]
        k = g.heads(g.linear(h, self.k), self.head_dim)  # [kv_heads, d]
        v = g.heads(g.linear(h, self.v), self.head_dim)  # [kv_heads, d]
        q = g.rope(g.rms_norm(q, self.q_norm, self.eps), self.rope, name="q_rope")
        k = g.rope(g.rms_norm(k, self.k_norm, self.eps), self.rope, name="k_rope")
        return g.linear(g.attend(q, k, v, self.cache, self.scale, name="attend"), self.out)


class FeedForward:
    """GeGLU, with the tanh form of GELU."""

    def __init__(self, g: Graph, c: Config, layer: int) -> None:
        block = f"blk.{layer}"
        self.gate = g.weight(f"{block}.ffn_gate.weight", (c.ffn, c.width))
        self.up = g.weight(f"{block}.ffn_up.weight", (c.ffn, c.width))
        self.down = g.weight(f"{block}.ffn_down.weight", (c.width, c.ffn))

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """h [width], normed, to [width]."""
        gate, up = g.linear(h, self.gate), g.linear(h, self.up)  # [ffn]
        return g.linear(g.glu(gate, up, "gelu_tanh", name="ffn_act"), self.down)  # [width]


class Block:
    """One layer: attention and feed-forward, each between two norms and beside its residual."""

    def __init__(self, g: Graph, c: Config, layer: int) -> None:
        self.name, self.eps = f"blk.{layer}", c.eps
        self.attn_norm = g.weight(f"{self.name}.attn_norm.weight", (c.width,))
        self.attention = Attention(g, c, layer)
        self.post_attention_norm = g.weight(f"{self.name}.post_attention_norm.weight", (c.width,))
        self.ffn_norm = g.weight(f"{self.name}.ffn_norm.weight", (c.width,))
        self.feed_forward = FeedForward(g, c, layer)
        self.post_ffw_norm = g.weight(f"{self.name}.post_ffw_norm.weight", (c.width,))

    def __call__(self, g: Graph, x: Tensor) -> Tensor:
        """x [width] to the next layer's x [width]."""
        with g.scope(self.name):
            h = self.attention(g, g.rms_norm(x, self.attn_norm, self.eps))
            x = g.add(x, g.rms_norm(h, self.post_attention_norm, self.eps), name="attn_residual")
            h = self.feed_forward(g, g.rms_norm(x, self.ffn_norm, self.eps))
            return g.add(x, g.rms_norm(h, self.post_ffw_norm, self.eps), name="out")


class Gemma3(Generator):
    """A language model of the architecture `gemma3`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.vocab = config.vocab
        self.context = config.context

    @classmethod
    def open(cls, weights: Weights, options: Options) -> Gemma3:
        """As `Generator.open`."""
        return cls(Config.from_weights(weights)).checked(weights)

    def forward(self, g: Graph) -> Tensor:
        """Records the pass; logits [vocab]."""
        c = self.config
        table = g.weight("token_embd.weight", (c.vocab, c.width))
        # The waypoint token_embd is what the first layer reads, as transformers names it too.
        x = g.embed(table, name="token_embd_unscaled")
        x = g.scale(x, math.sqrt(c.width), name="token_embd")  # [width]
        for layer in range(c.layers):
            x = Block(g, c, layer)(g, x)
        x = g.rms_norm(g.pick(x), g.weight("output_norm.weight", (c.width,)), c.eps)
        tied = not g.has("output.weight")
        head = table if tied else g.weight("output.weight", (c.vocab, c.width))
        if not c.softcap:
            return g.linear(x, head, name="logits")
        return g.softcap(g.linear(x, head, name="raw_logits"), c.softcap, name="logits")
