"""Tiny Gemma 4 models: embeddings for each layer, shared keys and values, experts beside.

llama.cpp knows without a key whose keys and values a sharing layer reads: the last layer that has
its own if that one and the reader see everything, the one before it if the reader sees a window. So
the last two that have their own are a window and an everything, in that order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import gguf
import numpy as np

from ref.drawn import Tiny, experts, matrix, vector
from ref.quantise import Floats

PARTIAL = 0.25  # of a head's pairs turn in the layers that see everything


@dataclass(frozen=True)
class Gemma4(Tiny):
    """Gemma 4; `head_dim` is that of layers that see everything, `local_dim` of the others.

    `pattern` has an s for each layer that sees a window and an f for each that sees everything.
    `keyed` layers of the latter kind take the raw key for the value, and have `global_kv_heads`.
    """

    pattern: str = ""
    local_dim: int = 0
    global_kv_heads: int = 0
    keyed: bool = False
    shared: int = 0
    per_layer: int = 0
    experts: int = 0
    used: int = 0
    expert_ffn: int = 0
    router_gain: float = 1.5

    def is_global(self, layer: int) -> bool:
        """As the pattern says."""
        return self.pattern[layer] == "f"

    def owns(self, layer: int) -> bool:
        """Whether a layer has keys and values of its own."""
        return layer < self.layers - self.shared

    def dim(self, layer: int) -> int:
        """The width of a head."""
        return self.head_dim if self.is_global(layer) else self.local_dim

    def kv(self, layer: int) -> int:
        """How many heads keys and values have."""
        return self.global_kv_heads if self.is_global(layer) and self.keyed else self.kv_heads

    def wide(self, layer: int) -> int:
        """The width of the feed-forward: twice that of the others in sharing layers, as in E2B."""
        return self.ffn if self.owns(layer) else 2 * self.ffn


MODELS = (
    Gemma4(
        "gemma4-shared", "gemma4", 40, 2, 1, 32, 44, 5, 400, True, 41, theta=1e6, window=16,
        local_theta=1e4, pattern="ssfsf", local_dim=16, shared=2, per_layer=12,
    ),
    Gemma4(
        "gemma4-keyed", "gemma4", 36, 4, 2, 24, 52, 5, 400, True, 42, theta=1e6, window=8,
        local_theta=5e3, pattern="ssfsf", local_dim=12, keyed=True, global_kv_heads=1,
    ),
    Gemma4(
        "gemma4-moe", "gemma4", 64, 4, 2, 32, 72, 3, 448, True, 43, theta=1e6, window=16,
        local_theta=1e4, pattern="ssf", local_dim=16, keyed=True, global_kv_heads=1,
        experts=6, used=3, expert_ffn=40,
    ),
    Gemma4(
        "gemma4-wide", "gemma4", 256, 4, 1, 128, 256, 6, 448, True, 44, theta=1e6, window=16,
        local_theta=1e4, pattern="ssfssf", local_dim=64, shared=3, per_layer=256,
    ),
    # A router so decided that the last of the chosen hardly counts: where rounding puts another
    # in its place, that costs little, and the distance is the engines' own.
    Gemma4(
        "gemma4-moe-wide", "gemma4", 256, 4, 2, 128, 256, 3, 448, True, 45, theta=1e6, window=16,
        local_theta=1e4, pattern="ssf", local_dim=64, keyed=True, global_kv_heads=1,
        experts=8, used=4, expert_ffn=256, router_gain=4.0,
    ),
)  # fmt: skip


def tensors(tiny: Tiny) -> Iterator[tuple[str, Floats]]:
    """The model's tensors under their names in the file, matrices [rows(out), columns(in)]."""
    assert isinstance(tiny, Gemma4)
    width = tiny.hidden
    yield matrix(tiny, "token_embd.weight", tiny.vocab, width)
    if tiny.per_layer:
        every, gain = tiny.layers * tiny.per_layer, math.sqrt(tiny.layers)
        yield matrix(tiny, "per_layer_token_embd.weight", tiny.vocab, every, gain)
        yield matrix(tiny, "per_layer_model_proj.weight", every, width)
        yield vector(tiny, "per_layer_proj_norm.weight", tiny.per_layer)
    yield "rope_freqs.weight", rope_factors(tiny)
    for layer in range(tiny.layers):
        at, dim = f"blk.{layer}.", tiny.dim(layer)
        q, kv = tiny.heads * dim, tiny.kv(layer) * dim
        # Scores are not scaled; these make attention pick rather than average.
        sharp = 1.4 / dim**0.25
        yield vector(tiny, at + "attn_norm.weight", width)
        yield matrix(tiny, at + "attn_q.weight", q, width)
        yield vector(tiny, at + "attn_q_norm.weight", dim, sharp)
        if tiny.owns(layer):
            yield matrix(tiny, at + "attn_k.weight", kv, width)
            yield vector(tiny, at + "attn_k_norm.weight", dim, sharp)
            if not (tiny.keyed and tiny.is_global(layer)):
                yield matrix(tiny, at + "attn_v.weight", kv, width)
        yield matrix(tiny, at + "attn_output.weight", width, q)
        yield vector(tiny, at + "post_attention_norm.weight", width)
        yield vector(tiny, at + "ffn_norm.weight", width)
        yield matrix(tiny, at + "ffn_gate.weight", tiny.wide(layer), width)
        yield matrix(tiny, at + "ffn_up.weight", tiny.wide(layer), width)
        yield matrix(tiny, at + "ffn_down.weight", width, tiny.wide(layer))
        yield vector(tiny, at + "post_ffw_norm.weight", width)
        if tiny.experts:
            yield from mixture(tiny, at)
        if tiny.per_layer:
            yield matrix(tiny, at + "inp_gate.weight", tiny.per_layer, width)
            yield matrix(tiny, at + "proj.weight", width, tiny.per_layer)
            yield vector(tiny, at + "post_norm.weight", width)
        yield vector(tiny, at + "layer_output_scale.weight", 1, 0.75)
    yield vector(tiny, "output_norm.weight", width)


def mixture(tiny: Gemma4, at: str) -> Iterator[tuple[str, Floats]]:
    """The router, the experts and the norms around them of the block `at`."""
    count, ffn, width = tiny.experts, tiny.expert_ffn, tiny.hidden
    # What the router sees was divided by sqrt(width).
    gain = tiny.router_gain * math.sqrt(width)
    yield matrix(tiny, at + "ffn_gate_inp.weight", count, width, gain)
    yield vector(tiny, at + "ffn_gate_inp.scale", width)
    yield experts(tiny, at + "ffn_gate_up_exps.weight", count, 2 * ffn, width)
    yield experts(tiny, at + "ffn_down_exps.weight", count, width, ffn)
    yield vector(tiny, at + "ffn_down_exps.scale", count)
    yield vector(tiny, at + "pre_ffw_norm_2.weight", width)
    yield vector(tiny, at + "post_ffw_norm_1.weight", width)
    yield vector(tiny, at + "post_ffw_norm_2.weight", width)


def rope_factors(tiny: Gemma4) -> Floats:
    """What each frequency is divided by in layers that see everything: the later ones stand."""
    turning = int(tiny.head_dim * PARTIAL / 2)
    return np.where(np.arange(tiny.head_dim // 2) < turning, 1.0, 1e30).astype(np.float32)


def keys(writer: gguf.GGUFWriter, tiny: Tiny) -> None:
    """Adds the keys that the plain decoder has not, and those that it has one of for all layers."""
    assert isinstance(tiny, Gemma4)
    layers = range(tiny.layers)
    widths = [tiny.wide(layer) for layer in layers]
    writer.add_feed_forward_length(widths if tiny.shared else tiny.ffn)
    kv_heads = [tiny.kv(layer) for layer in layers]
    writer.add_head_count_kv(kv_heads if tiny.keyed else tiny.kv_heads)
    writer.add_key_length_swa(tiny.local_dim)
    writer.add_value_length_swa(tiny.local_dim)
    writer.add_rope_dimension_count(tiny.head_dim)
    writer.add_rope_dimension_count_swa(tiny.local_dim)
    writer.add_sliding_window_pattern([not tiny.is_global(layer) for layer in layers])
    writer.add_shared_kv_layers(tiny.shared)
    writer.add_embedding_length_per_layer_input(tiny.per_layer)
    writer.add_final_logit_softcapping(30.0)
    if tiny.experts:
        writer.add_expert_count(tiny.experts)
        writer.add_expert_used_count(tiny.used)
        writer.add_expert_feed_forward_length(tiny.expert_ffn)
