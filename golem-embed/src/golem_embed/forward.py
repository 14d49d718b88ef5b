"""The forward passes of the encoders: BERT and its kin, Nomic, ModernBERT, Qwen3 and Gemma 3.

BERT, DistilBERT, MPNet, RoBERTa, XLM-RoBERTa and Nomic norm after each branch:

    x ─ q,k,v ─ attend ─ out ─ + ─ norm ─ ffn ─ + ─ norm ─
    └──────────────────────────┘       └────────┘

ModernBERT and Qwen3 norm before it, Gemma 3 before and after. All but Qwen3 attend both ways, to
their own text alone. Weights are not tied to a container: their names are those of `layout`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from golem_core.graph import Buckets, Graph, Rope, Tensor, Weight
from golem_embed.config import Config

FARTHEST = 128  # distance from which on MPNet's relative biases are one, as its authors wrote it


@dataclass(frozen=True, eq=False)
class OneMore(Weight):
    """A norm's weight that lies around 0 in the file and means 1 + w."""

    def floats(self) -> np.ndarray:
        """See `Weight.floats`."""
        one: np.ndarray = np.float32(1.0) + self.stored.dequantize()
        return one


def hidden(g: Graph, c: Config, shifted: bool = False) -> Tensor:
    """Records the encoder: the hidden state [width] of every token.

    shifted: the weights of RMS norms mean 1 + w.
    """
    ropes = {base: Rope(c.head, base, "half") for base in c.ropes if base}
    made = {"bert": _post_norm, "nomic": _post_norm, "modern": _modern, "qwen": _qwen}
    if c.family == "gemma":
        return _gemma(g, c, ropes, shifted)
    return made[c.family](g, c, ropes)


def norm(g: Graph, c: Config, x: Tensor, name: str) -> Tensor:
    """A layer norm, with a bias where the file has one."""
    bias = g.weight(f"{name}.bias", (c.width,)) if g.has(f"{name}.bias") else None
    return g.layer_norm(x, g.weight(f"{name}.weight", (c.width,)), bias, c.eps)


def linear(g: Graph, x: Tensor, name: str, outputs: int) -> Tensor:
    """A matrix, with a bias where the file has one."""
    bias = g.weight(f"{name}.bias", (outputs,)) if g.has(f"{name}.bias") else None
    return g.linear(x, g.weight(f"{name}.weight", (outputs, x.size)), bias)


def attention(
    g: Graph,
    c: Config,
    block: str,
    x: Tensor,
    rope: Rope | None = None,
    reach: int | None = None,
    causal: bool = False,
    shifted: bool = False,
) -> Tensor:
    """x [width] to what its rows gather from their text, [width]."""
    q = g.heads(linear(g, x, f"{block}.attn_q", c.heads * c.head), c.head)  # [heads, head]
    k = g.heads(linear(g, x, f"{block}.attn_k", c.kv_heads * c.head), c.head)  # [kv_heads, head]
    v = g.heads(linear(g, x, f"{block}.attn_v", c.kv_heads * c.head), c.head)
    if g.has(f"{block}.attn_q_norm.weight"):
        q = g.rms_norm(q, scale(g, f"{block}.attn_q_norm.weight", c.head, shifted), c.eps)
        k = g.rms_norm(k, scale(g, f"{block}.attn_k_norm.weight", c.head, shifted), c.eps)
    if rope is not None:
        q, k = g.rope(q, rope, name="q_rope"), g.rope(k, rope, name="k_rope")
    bias = buckets = None
    if c.buckets:
        buckets = Buckets(c.buckets, FARTHEST)
        bias = g.weight("relative_bias.weight", (c.buckets, c.heads))
    seen = g.attend_within(
        q,
        k,
        v,
        c.scale or 1 / math.sqrt(c.head),
        causal=causal,
        reach=reach,
        bias=bias,
        buckets=buckets,
        name="attend",
    )
    return linear(g, seen, f"{block}.attn_output", c.width)


def scale(g: Graph, name: str, size: int, shifted: bool) -> Weight:
    """The weight of an RMS norm."""
    weight = g.weight(name, (size,))
    return OneMore(weight.name, weight.stored) if shifted else weight


def gated(g: Graph, c: Config, block: str, x: Tensor, act: str) -> Tensor:
    """down(act(gate x) * up x)."""
    gate = linear(g, x, f"{block}.ffn_gate", c.ffn)
    up = linear(g, x, f"{block}.ffn_up", c.ffn)
    return linear(g, g.glu(gate, up, act, name="ffn_act"), f"{block}.ffn_down", c.width)


def _post_norm(g: Graph, c: Config, ropes: dict[float, Rope]) -> Tensor:
    x = g.embed(g.weight("token_embd.weight", (c.vocab, c.width)))
    if g.has("token_types.weight"):
        kinds = g.weights.tensors["token_types.weight"].shape[0]
        types = g.weight("token_types.weight", (kinds, c.width))
        by = "kinds" if c.scores and kinds > 1 else ""  # which text of a pair
        x = g.add(x, g.embed(types, by=by), name="typed")
    if c.first is not None:
        table = g.weight("position_embd.weight", (c.first + c.length, c.width))
        x = g.add(x, g.embed(table, by="positions", first=c.first), name="placed")
    x = norm(g, c, x, "token_embd_norm")
    for layer in range(c.layers):
        block = f"blk.{layer}"
        with g.scope(block):
            h = attention(g, c, block, x, ropes.get(c.ropes[0]))
            x = norm(g, c, g.add(h, x, name="attn_residual"), f"{block}.attn_output_norm")
            if g.has(f"{block}.ffn_gate.weight"):
                h = gated(g, c, block, x, "silu")
            else:
                h = linear(g, x, f"{block}.ffn_up", c.ffn)
                h = linear(
                    g, g.activate(h, "gelu_erf", name="ffn_act"), f"{block}.ffn_down", c.width
                )
            x = norm(g, c, g.add(h, x, name="ffn_residual"), f"{block}.layer_output_norm")
    return x


def _modern(g: Graph, c: Config, ropes: dict[float, Rope]) -> Tensor:
    x = norm(g, c, g.embed(g.weight("token_embd.weight", (c.vocab, c.width))), "token_embd_norm")
    for layer in range(c.layers):
        block, far = f"blk.{layer}", c.sees_all(layer)
        with g.scope(block):
            h = norm(g, c, x, f"{block}.attn_norm") if layer else x  # the first has none
            h = attention(g, c, block, h, ropes[c.ropes[not far]], None if far else c.reach)
            x = g.add(x, h, name="attn_residual")
            h = gated(g, c, block, norm(g, c, x, f"{block}.ffn_norm"), "gelu_erf")
            x = g.add(x, h, name="out")
    return norm(g, c, x, "output_norm")


def _qwen(g: Graph, c: Config, ropes: dict[float, Rope]) -> Tensor:
    x = g.embed(g.weight("token_embd.weight", (c.vocab, c.width)))
    for layer in range(c.layers):
        block = f"blk.{layer}"
        with g.scope(block):
            h = g.rms_norm(x, g.weight(f"{block}.attn_norm.weight", (c.width,)), c.eps)
            x = g.add(x, attention(g, c, block, h, ropes[c.ropes[0]], causal=True), name="mixed")
            h = g.rms_norm(x, g.weight(f"{block}.ffn_norm.weight", (c.width,)), c.eps)
            x = g.add(x, gated(g, c, block, h, "silu"), name="out")
    return g.rms_norm(x, g.weight("output_norm.weight", (c.width,)), c.eps)


def _gemma(g: Graph, c: Config, ropes: dict[float, Rope], shifted: bool) -> Tensor:
    x = g.embed(g.weight("token_embd.weight", (c.vocab, c.width)))
    # The reference rounds this factor to bfloat16 only where it runs in bfloat16.
    x = g.scale(x, float(np.float32(math.sqrt(c.width))), name="scaled")

    def rms(x: Tensor, name: str) -> Tensor:
        return g.rms_norm(x, scale(g, f"{name}.weight", c.width, shifted), c.eps)

    for layer in range(c.layers):
        block, far = f"blk.{layer}", c.sees_all(layer)
        with g.scope(block):
            h = rms(x, f"{block}.attn_norm")
            reach = None if far else c.reach
            h = attention(g, c, block, h, ropes[c.ropes[not far]], reach, shifted=shifted)
            x = g.add(x, rms(h, f"{block}.post_attention_norm"), name="attn_residual")
            h = gated(g, c, block, rms(x, f"{block}.ffn_norm"), "gelu_tanh")
            x = g.add(x, rms(h, f"{block}.post_ffw_norm"), name="out")
    return rms(x, "output_norm")


def scores(g: Graph, c: Config, x: Tensor, outputs: int) -> Tensor:
    """The classification head: hidden states to [outputs] scores a text."""
    if c.family == "modern":
        h = g.pool(x) if c.head_pools == "mean" else g.pick(x)
        h = linear(g, h, "cls", c.width)
        h = norm(g, c, g.activate(h, "gelu_erf", name="cls_act"), "cls.norm")
    else:
        h = g.softcap(linear(g, g.pick(x), "cls", c.width), 1.0, name="cls_tanh")
    return linear(g, h, "cls.output", outputs)
