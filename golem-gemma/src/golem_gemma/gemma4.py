"""Gemma 4, the text model.

    x ─ norm ─ q,k,v ─ head norm ─ rope ─ attend ─ out ─ norm ─ + ─ feed-forward ─ + ─ per-layer ─ ×
    └───────────────────────────────────────────────────────────┘└─────────────────┘└───────────┘

    feed-forward: ─ norm ─ geglu ─ norm ─                         dense
                  ─┬ norm ─ geglu ─ norm ─────────┬ + ─ norm ─    beside experts
                   └ norm ─ experts, routed ─ norm┘
    per-layer:    ─ gate ─ gelu ─ × the token's own vector for this layer ─ out ─ norm ─

Layers that see a window have their own width of head, number of key heads and rope; those that see
everything turn by the file's factors. v is normed too, and is the raw key projection where the file
has no attn_v. The last layers may read the keys and values of the last layer of their kind that
made its own. Scores are not scaled: the norm of q carries that. Absent here: pictures and sound.
Gemma Team, 2026. Keys as in llama.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from golem_core.graph import Cache, Graph, Rope, Tensor
from golem_core.model import Generator, Options
from golem_core.text import ChatFormat
from golem_core.weights import Keys, Weights
from golem_gemma.format import format_of

SHARED = ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")


@dataclass(frozen=True)
class Layer:
    """What differs from layer to layer."""

    window: int | None  # None: sees everything
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    expert_ffn: int
    owner: int  # the layer whose keys and values are read; its own number unless they are shared


@dataclass(frozen=True)
class Config:
    """The geometry, as the file gives it."""

    vocab: int
    context: int
    width: int
    eps: float
    layers: tuple[Layer, ...]
    per_layer: int  # width of a token's own vector for a layer; 0: there are none
    experts: int  # 0: no mixture
    used: int
    global_rope: tuple[int, float]  # dims, base
    local_rope: tuple[int, float]
    softcap: float  # of the logits; 0: none
    suppressed: tuple[int, ...]

    @classmethod
    def from_weights(cls, weights: Weights) -> Config:
        """Reads each key once; raises BadWeights and Unsupported by key."""
        keys = Keys(weights, "gemma4")
        keys.absent("attn_logit_softcapping", "nextn_predict_layers", "rope.scaling.alpha")
        keys.one_of("attention.causal", (True,), True)
        keys.one_of("rope.scaling.type", ("none", "linear"), "none")
        keys.one_of("rope.scaling.factor", (1.0,), 1.0)
        keys.one_of("rope.scaling.attn_factor", (1.0,), 1.0)
        head_dim = keys.whole("attention.key_length")
        local_dim = keys.whole("attention.key_length_swa", head_dim)
        keys.one_of("attention.value_length", (head_dim,), head_dim)
        keys.one_of("attention.value_length_swa", (local_dim,), local_dim)
        experts = keys.whole("expert_count", absent(weights, "blk.0.ffn_down_exps"), least=0)
        table = absent(weights, "per_layer_token_embd")
        vocab = Keys(weights, "tokenizer.ggml").length("tokens")
        return cls(
            vocab=vocab,
            context=keys.whole("context_length", least=2),
            width=keys.whole("embedding_length"),
            eps=keys.real("attention.layer_norm_rms_epsilon", above=0),
            layers=layers(keys, head_dim, local_dim, experts > 0),
            per_layer=keys.whole("embedding_length_per_layer_input", table, least=0),
            experts=experts,
            used=keys.whole("expert_used_count", most=experts) if experts else 0,
            global_rope=rope(keys, "", head_dim),
            local_rope=rope(keys, "_swa", local_dim),
            softcap=keys.real("final_logit_softcapping", 0.0, above=-1e-9),
            suppressed=suppressed(Keys(weights, "tokenizer.ggml"), vocab),
        )


def layers(keys: Keys, head_dim: int, local_dim: int, mixture: bool) -> tuple[Layer, ...]:
    """Every layer's geometry, from keys that hold one number for all or one for each."""
    count = keys.whole("block_count", most=10_000)
    local = truths(keys, "attention.sliding_window_pattern", count)
    window = keys.whole("attention.sliding_window", None if any(local) else 0, least=any(local))
    heads = numbers(keys, "attention.head_count", count)
    kv_heads = numbers(keys, "attention.head_count_kv", count)
    ffn = numbers(keys, "feed_forward_length", count)
    expert_ffn = numbers(keys, "expert_feed_forward_length", count) if mixture else (0,) * count
    last = f"blk.{count - 1}.attn_k.weight"
    shared = 0 if last in keys.weights.tensors else None
    own = count - keys.whole("attention.shared_kv_layers", shared, least=0, most=count - 1)
    made = []
    for i in range(count):
        owner = i
        if i >= own:
            kind = "a window" if local[i] else "everything"
            owners = [j for j in range(own) if local[j] == local[i]]
            if not owners:
                raise keys.bad(
                    "attention.shared_kv_layers",
                    f"so layer {i}, which sees {kind}, would read keys and values that none makes",
                )
            owner = owners[-1]
        if heads[i] % kv_heads[owner]:
            raise keys.bad(
                "attention.head_count", f"no multiple of head_count_kv {kv_heads[owner]}"
            )
        made.append(
            Layer(
                window=window if local[i] else None,
                heads=heads[i],
                kv_heads=kv_heads[owner],
                head_dim=local_dim if local[i] else head_dim,
                ffn=ffn[i],
                expert_ffn=expert_ffn[i],
                owner=owner,
            )
        )
    return tuple(made)


def absent(weights: Weights, tensor: str) -> int | None:
    """The default of a key that must say how large `tensor` is: 0 where the file lacks that."""
    return None if f"{tensor}.weight" in weights.tensors else 0


def numbers(keys: Keys, key: str, count: int) -> tuple[int, ...]:
    """One number for all layers, or an array with one for each."""
    value = keys.metadata.get(keys.name(key))
    if not isinstance(value, np.ndarray):
        return (keys.whole(key),) * count
    if len(value) != count or value.dtype.kind not in "iu" or value.min() < 1:
        raise keys.bad(key, f"not a positive whole number for each of {count} layers")
    return tuple(int(each) for each in value)


def truths(keys: Keys, key: str, count: int) -> tuple[bool, ...]:
    """An array with a truth value for each layer."""
    if keys.length(key) != count:
        raise keys.bad(key, f"not one for each of {count} layers")
    value = np.asarray(keys.metadata[keys.name(key)])
    if value.dtype != np.bool_:
        raise keys.bad(key, "not truth values")
    return tuple(bool(each) for each in value)


def rope(keys: Keys, kind: str, head_dim: int) -> tuple[int, float]:
    """How many of a head's numbers turn, and the base, of one kind of layer."""
    dims = keys.whole(f"rope.dimension_count{kind}", head_dim, least=2, most=head_dim)
    if dims % 2:
        raise keys.bad(f"rope.dimension_count{kind}", "which does not turn in pairs")
    return dims, keys.real(f"rope.freq_base{kind}", above=0)


def suppressed(keys: Keys, vocab: int) -> tuple[int, ...]:
    """The ids that are never drawn; those that the vocabulary lacks cannot be anyway."""
    value = keys.metadata.get(keys.name("suppress_tokens"), ())
    ids = np.asarray(value)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise keys.bad("suppress_tokens", "not an array of token ids")
    return tuple(int(each) for each in ids if 0 <= each < vocab)


class Attention:
    """Grouped-query attention over everything or a window, q, k and v normed for each head.

    A layer without keys and values of its own reads `cache` as its owner left it.
    """

    def __init__(
        self, g: Graph, c: Config, layer: int, rope: Rope, caches: dict[int, Cache]
    ) -> None:
        at, block = c.layers[layer], f"blk.{layer}"
        q, kv = at.heads * at.head_dim, at.kv_heads * at.head_dim
        self.head_dim, self.eps, self.rope = at.head_dim, c.eps, rope
        self.own = at.owner == layer
        self.q = g.weight(f"{block}.attn_q.weight", (q, c.width))
        self.q_norm = g.weight(f"{block}.attn_q_norm.weight", (at.head_dim,))
        self.out = g.weight(f"{block}.attn_output.weight", (c.width, q))
        if self.own:
            self.k = g.weight(f"{block}.attn_k.weight", (kv, c.width))
            self.k_norm = g.weight(f"{block}.attn_k_norm.weight", (at.head_dim,))
            v = f"{block}.attn_v.weight"
            # Only layers that see everything may take the key projection for the value.
            keyed = at.window is None and not g.has(v)
            self.v = None if keyed else g.weight(v, (kv, c.width))
            caches[layer] = g.cache(at.kv_heads, at.head_dim, at.window)
        self.cache = caches[at.owner]

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """What the rows h [width], normed, gather from the rows before them: [width]."""
        q = g.heads(g.linear(h, self.q), self.head_dim)  # [heads, d]
        q = g.rope(g.rms_norm(q, self.q_norm, self.eps), self.rope, name="q_rope")
        k = v = None
        if self.own:
            raw = g.heads(g.linear(h, self.k), self.head_dim)  # [kv_heads, d]
            k = g.rope(g.rms_norm(raw, self.k_norm, self.eps), self.rope, name="k_rope")
            v = raw if self.v is None else g.heads(g.linear(h, self.v), self.head_dim)
            v = g.rms_norm(v, None, self.eps, name="v_norm")
        return g.linear(g.attend(q, k, v, self.cache, 1.0, name="attend"), self.out)


class FeedForward:
    """GeGLU, with the tanh form of GELU."""

    def __init__(self, g: Graph, c: Config, layer: int) -> None:
        block, ffn = f"blk.{layer}", c.layers[layer].ffn
        self.gate = g.weight(f"{block}.ffn_gate.weight", (ffn, c.width))
        self.up = g.weight(f"{block}.ffn_up.weight", (ffn, c.width))
        self.down = g.weight(f"{block}.ffn_down.weight", (c.width, ffn))

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """h [width], normed, to [width]."""
        gate, up = g.linear(h, self.gate), g.linear(h, self.up)  # [ffn]
        return g.linear(g.glu(gate, up, "gelu_tanh", name="ffn_act"), self.down)  # [width]


class Mixture:
    """Experts beside the feed-forward that all tokens share.

    The router reads the same x as the two branches, by a norm of its own whose weight the file
    calls ffn_gate_inp.scale.
    """

    def __init__(self, g: Graph, c: Config, layer: int) -> None:
        block, ffn, experts = f"blk.{layer}", c.layers[layer].expert_ffn, c.experts
        self.eps, self.used, self.ffn, self.shrink = c.eps, c.used, ffn, 1 / math.sqrt(c.width)
        self.norm = g.weight(f"{block}.pre_ffw_norm_2.weight", (c.width,))
        self.router_norm = g.weight(f"{block}.ffn_gate_inp.scale", (c.width,))
        self.router = g.weight(f"{block}.ffn_gate_inp.weight", (experts, c.width))
        gate, up = f"{block}.ffn_gate_exps.weight", f"{block}.ffn_up_exps.weight"
        both = f"{block}.ffn_gate_up_exps.weight"
        self.gate_up = None
        if g.has(gate) or g.has(up):
            self.gate = g.weight(gate, (experts, ffn, c.width))
            self.up = g.weight(up, (experts, ffn, c.width))
        else:
            self.gate_up = g.weight(both, (experts, 2 * ffn, c.width))
        self.down = g.weight(f"{block}.ffn_down_exps.weight", (experts, c.width, ffn))
        scale = f"{block}.ffn_down_exps.scale"
        self.scale = g.weight(scale, (experts,)) if g.has(scale) else None
        self.post_norm_1 = g.weight(f"{block}.post_ffw_norm_1.weight", (c.width,))
        self.post_norm_2 = g.weight(f"{block}.post_ffw_norm_2.weight", (c.width,))

    def __call__(self, g: Graph, x: Tensor, shared: Tensor) -> Tensor:
        """The sum of both branches [width], from x [width] and what the shared one made of it."""
        r = g.scale(g.rms_norm(x, self.router_norm, self.eps), self.shrink, name="router_in")
        routing = g.route(g.linear(r, self.router), self.used, name="route")  # [2, used]
        h = g.rms_norm(x, self.norm, self.eps)
        if self.gate_up is None:
            gate = g.linear_experts(h, routing, self.gate)  # [used, ffn]
            up = g.linear_experts(h, routing, self.up)
        else:
            gate_up = g.linear_experts(h, routing, self.gate_up)  # [used, 2 ffn]
            gate = g.slice(gate_up, 0, self.ffn, name="ffn_gate_exps")
            up = g.slice(gate_up, self.ffn, 2 * self.ffn, name="ffn_up_exps")
        act = g.glu(gate, up, "gelu_tanh", name="ffn_act_exps")
        down = g.linear_experts(act, routing, self.down)  # [used, width]
        h = g.combine(down, routing, self.scale, name="experts")
        both = g.rms_norm(shared, self.post_norm_1, self.eps)
        return g.add(both, g.rms_norm(h, self.post_norm_2, self.eps), name="ffn_both")


class PerLayer:
    """What a layer adds by the token's own vector for it."""

    def __init__(self, g: Graph, c: Config, layer: int) -> None:
        block, self.eps = f"blk.{layer}", c.eps
        self.start, self.stop = layer * c.per_layer, (layer + 1) * c.per_layer
        self.gate = g.weight(f"{block}.inp_gate.weight", (c.per_layer, c.width))
        self.out = g.weight(f"{block}.proj.weight", (c.width, c.per_layer))
        self.norm = g.weight(f"{block}.post_norm.weight", (c.width,))

    def __call__(self, g: Graph, x: Tensor, inputs: Tensor) -> Tensor:
        """x [width], with the vectors for all layers [layers * per_layer], to [width]."""
        own = g.slice(inputs, self.start, self.stop, name="inp")  # [per_layer]
        h = g.glu(g.linear(x, self.gate), own, "gelu_tanh", name="inp_act")
        return g.rms_norm(g.linear(h, self.out), self.norm, self.eps)


class Block:
    """One layer."""

    def __init__(
        self, g: Graph, c: Config, layer: int, rope: Rope, caches: dict[int, Cache]
    ) -> None:
        self.name, self.eps = f"blk.{layer}", c.eps
        self.attn_norm = g.weight(f"{self.name}.attn_norm.weight", (c.width,))
        self.attention = Attention(g, c, layer, rope, caches)
        self.post_attention_norm = g.weight(f"{self.name}.post_attention_norm.weight", (c.width,))
        self.ffn_norm = g.weight(f"{self.name}.ffn_norm.weight", (c.width,))
        self.feed_forward = FeedForward(g, c, layer)
        self.mixture = Mixture(g, c, layer) if c.experts else None
        self.post_ffw_norm = g.weight(f"{self.name}.post_ffw_norm.weight", (c.width,))
        self.per_layer = PerLayer(g, c, layer) if c.per_layer else None
        scale = f"{self.name}.layer_output_scale.weight"
        self.scale = g.weight(scale, (1,)) if g.has(scale) else None

    def __call__(self, g: Graph, x: Tensor, inputs: Tensor | None) -> Tensor:
        """x [width] to the next layer's x [width]."""
        with g.scope(self.name):
            h = self.attention(g, g.rms_norm(x, self.attn_norm, self.eps))
            x = g.add(x, g.rms_norm(h, self.post_attention_norm, self.eps), name="attn_residual")
            h = self.feed_forward(g, g.rms_norm(x, self.ffn_norm, self.eps))
            if self.mixture is not None:
                h = self.mixture(g, x, h)
            h = g.rms_norm(h, self.post_ffw_norm, self.eps)
            # The last step of a layer is called out, whichever it is.
            last = self.per_layer is None and self.scale is None
            x = g.add(x, h, name="out" if last else "ffn_residual")
            if self.per_layer is not None and inputs is not None:
                last = self.scale is None
                h = self.per_layer(g, x, inputs)
                x = g.add(x, h, name="out" if last else "inp_residual")
            return x if self.scale is None else g.scale(x, self.scale, name="out")


class Gemma4(Generator):
    """A language model of the architecture `gemma4`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.vocab = config.vocab
        self.context = config.context
        self.suppressed = config.suppressed

    @classmethod
    def open(cls, weights: Weights, options: Options) -> Gemma4:
        """As `Generator.open`."""
        model = cls(Config.from_weights(weights))
        # Published checkpoints still carry what their sharing layers never used.
        shared = [i for i, layer in enumerate(model.config.layers) if layer.owner != i]
        return model.checked(weights, [f"blk.{i}.{name}" for i in shared for name in SHARED])

    def format(self, weights: Weights) -> ChatFormat | None:
        """As the file's chat template writes thoughts and calls."""
        return format_of(weights.metadata.get("tokenizer.chat_template"))

    def forward(self, g: Graph) -> Tensor:
        """Records the pass; logits [vocab]."""
        c = self.config
        table = g.weight("token_embd.weight", (c.vocab, c.width))
        # The waypoint token_embd is what the first layer reads, as transformers names it too.
        x = g.embed(table, name="token_embd_unscaled")
        x = g.scale(x, math.sqrt(c.width), name="token_embd")  # [width]
        inputs = self._inputs(g, x) if c.per_layer else None
        (dims, base), local = c.global_rope, Rope(*c.local_rope)
        factors = g.has("rope_freqs.weight")
        turned = g.weight("rope_freqs.weight", (dims // 2,)) if factors else None
        whole = Rope(dims, base, factors=turned)
        caches: dict[int, Cache] = {}
        for i, layer in enumerate(c.layers):
            x = Block(g, c, i, whole if layer.window is None else local, caches)(g, x, inputs)
        x = g.rms_norm(g.pick(x), g.weight("output_norm.weight", (c.width,)), c.eps)
        tied = not g.has("output.weight")
        head = table if tied else g.weight("output.weight", (c.vocab, c.width))
        if not c.softcap:
            return g.linear(x, head, name="logits")
        return g.softcap(g.linear(x, head, name="raw_logits"), c.softcap, name="logits")

    def _inputs(self, g: Graph, x: Tensor) -> Tensor:
        """Its own vectors of a token for all layers, with its embedding's: [layers * per_layer]."""
        c = self.config
        every = len(c.layers) * c.per_layer
        table = g.weight("per_layer_token_embd.weight", (c.vocab, every))
        own = g.scale(g.embed(table), math.sqrt(c.per_layer), name="per_layer_token")
        weight = g.weight("per_layer_model_proj.weight", (every, c.width))
        made = g.scale(g.linear(x, weight), 1 / math.sqrt(c.width), name="per_layer_made")
        norm = g.weight("per_layer_proj_norm.weight", (c.per_layer,))
        made = g.rms_norm(g.heads(made, c.per_layer), norm, c.eps)  # [layers, per_layer]
        both = g.add(g.reshape(made, (every,)), own, name="per_layer_both")
        return g.scale(both, 1 / math.sqrt(2), name="per_layer_inputs")
