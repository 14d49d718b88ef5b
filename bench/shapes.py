"""The shapes of published checkpoints: their keys, and the name, shape and format of every tensor.

Formats are those of a Q4_0 file as `llama-quantize` makes it: the table of embeddings (an untied
head too) in Q6_K, one-dimensional tensors and routers in F32, all other matrices in Q4_0; `mixed`
gives the other mixtures. `real_shapes` writes such a file with drawn numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

Row = tuple[str, tuple[int, ...], str]  # name, shape (slowest dimension first), format


@dataclass(frozen=True)
class Shape:
    """A checkpoint: its architecture, vocabulary, keys (without prefix) and tensors."""

    architecture: str
    vocabulary: str  # whose tokens: the name of a vocabulary file
    tokens: int
    keys: dict[str, Any]
    rows: tuple[Row, ...]


MIXTURES = ("Q4_0", "Q4_K_M", "Q8_0", "BF16")


def mixed(shape: Shape, mixture: str) -> Shape:
    """The same checkpoint as `llama-quantize` makes it of dense models for another of MIXTURES."""
    layers = shape.keys["block_count"]
    rows = tuple(
        (name, dims, _format(name, format, mixture, layers)) for name, dims, format in shape.rows
    )
    return replace(shape, rows=rows)


def _format(name: str, format: str, mixture: str, layers: int) -> str:
    if mixture == "Q4_0" or format in ("F32", "BF16"):
        return format
    if mixture != "Q4_K_M":
        return mixture
    if format == "Q4_0" and (".attn_v." in name or ".ffn_down." in name):
        layer, eighth = int(name.split(".")[1]), layers // 8
        if layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2:
            return "Q6_K"
    return "Q4_K" if format == "Q4_0" else format


def shortened(shape: Shape, layers: int) -> Shape:
    """The first layers of a checkpoint, and its prediction block; the rest is as it was."""
    ahead = shape.keys.get("nextn_predict_layers", 0)
    whole = shape.keys["block_count"] - ahead
    if not 0 < layers <= whole:
        raise ValueError(f"{layers} layers, expected 1 to {whole}")
    rows = []
    for name, dims, format in shape.rows:
        block = re.match(r"blk\.(\d+)\.", name)
        layer = int(block[1]) if block else -1
        if block and layer >= whole:  # behind the last layer, whichever that is
            rows.append((f"blk.{layer - whole + layers}.{name[block.end() :]}", dims, format))
        elif layer < layers:
            rows.append((name, dims, format))
    keys = {
        key: value[:layers] if isinstance(value, list) and len(value) == whole else value
        for key, value in shape.keys.items()
    }
    return replace(shape, rows=tuple(rows), keys=keys | {"block_count": layers + ahead})


def _q4(name: str, *shape: int) -> Row:
    return f"{name}.weight", shape, "Q4_0"


def _f32(name: str, *shape: int) -> Row:
    return f"{name}.weight", shape, "F32"


def _head(width: int, tokens: int, tied: bool) -> Iterator[Row]:
    yield "token_embd.weight", (tokens, width), "Q6_K"
    yield _f32("output_norm", width)
    if not tied:
        yield "output.weight", (tokens, width), "Q6_K"


def _attention(at: str, width: int, heads: int, kv: int, dim: int, gated: bool) -> Iterator[Row]:
    yield _q4(f"{at}.attn_q", heads * dim * (2 if gated else 1), width)
    yield _q4(f"{at}.attn_k", kv * dim, width)
    yield _q4(f"{at}.attn_v", kv * dim, width)
    yield _f32(f"{at}.attn_q_norm", dim)
    yield _f32(f"{at}.attn_k_norm", dim)
    yield _q4(f"{at}.attn_output", width, heads * dim)


def _ffn(at: str, width: int, ffn: int) -> Iterator[Row]:
    yield _q4(f"{at}.ffn_gate", ffn, width)
    yield _q4(f"{at}.ffn_up", ffn, width)
    yield _q4(f"{at}.ffn_down", width, ffn)


def qwen3(
    width: int, layers: int, heads: int, kv: int, ffn: int, *, experts: int = 0, tied: bool = True
) -> Shape:
    """Qwen3, dense or with `experts` of `ffn` elements, 8 of which are used."""
    dim, tokens = 128, 151936
    rows = list(_head(width, tokens, tied))
    for layer in range(layers):
        at = f"blk.{layer}"
        rows += [_f32(f"{at}.attn_norm", width), _f32(f"{at}.ffn_norm", width)]
        rows += _attention(at, width, heads, kv, dim, gated=False)
        if experts:
            rows += [
                _f32(f"{at}.ffn_gate_inp", experts, width),
                _q4(f"{at}.ffn_gate_exps", experts, ffn, width),
                _q4(f"{at}.ffn_up_exps", experts, ffn, width),
                _q4(f"{at}.ffn_down_exps", experts, width, ffn),
            ]
        else:
            rows += _ffn(at, width, ffn)
    keys: dict[str, Any] = {
        "block_count": layers,
        "context_length": 40960,
        "embedding_length": width,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": kv,
        "attention.key_length": dim,
        "attention.value_length": dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
    }
    if experts:
        keys |= {
            "expert_count": experts,
            "expert_used_count": 8,
            "expert_feed_forward_length": ffn,
        }
    return Shape("qwen3moe" if experts else "qwen3", "qwen2", tokens, keys, tuple(rows))


def qwen35(
    width: int, layers: int, heads: int, kv: int, ffn: int, value_heads: int, *, tied: bool
) -> Shape:
    """Qwen3.5: three delta nets, then one attention; and a prediction block."""
    dim, state, key_heads, taps, tokens = 256, 128, 16, 4, 248320
    inner, channels = value_heads * state, (value_heads + 2 * key_heads) * state
    rows = list(_head(width, tokens, tied))
    for layer in range(layers + 1):
        at = f"blk.{layer}"
        rows += [_f32(f"{at}.attn_norm", width), _f32(f"{at}.post_attention_norm", width)]
        rows += _ffn(at, width, ffn)
        if layer == layers or (layer + 1) % 4 == 0:
            rows += _attention(at, width, heads, kv, dim, gated=True)
            continue
        rows += [
            _q4(f"{at}.attn_qkv", channels, width),
            _q4(f"{at}.attn_gate", inner, width),
            _q4(f"{at}.ssm_alpha", value_heads, width),
            _q4(f"{at}.ssm_beta", value_heads, width),
            _f32(f"{at}.ssm_conv1d", channels, taps),
            (f"{at}.ssm_a", (value_heads,), "F32"),
            (f"{at}.ssm_dt.bias", (value_heads,), "F32"),
            _f32(f"{at}.ssm_norm", state),
            _q4(f"{at}.ssm_out", width, inner),
        ]
    at = f"blk.{layers}.nextn"
    rows += [_q4(f"{at}.eh_proj", width, 2 * width)]
    rows += [_f32(f"{at}.{name}", width) for name in ("enorm", "hnorm", "shared_head_norm")]
    keys = {
        "block_count": layers + 1,
        "context_length": 262144,
        "embedding_length": width,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": kv,
        "attention.key_length": dim,
        "attention.value_length": dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e7,
        "rope.dimension_count": 64,
        "rope.dimension_sections": [11, 11, 10, 0],
        "ssm.conv_kernel": taps,
        "ssm.state_size": state,
        "ssm.group_count": key_heads,
        "ssm.time_step_rank": value_heads,
        "ssm.inner_size": inner,
        "full_attention_interval": 4,
        "nextn_predict_layers": 1,
    }
    return Shape("qwen35", "qwen35", tokens, keys, tuple(rows))


def gemma4(
    width: int,
    layers: int,
    heads: int,
    kv: tuple[int, int],
    ffn: list[int],
    *,
    window: int,
    every: int,
    per_layer: int = 0,
    shared: int = 0,
    experts: tuple[int, int] = (0, 0),
) -> Shape:
    """Gemma 4. kv heads of window and global layers; every so many layers a global one.

    per_layer  elements of a layer's own embedding; shared: layers that keep nothing themselves
    experts    how many, and of how many elements; 8 are used
    """
    local, wide, tokens = 256, 512, 262144
    rows = list(_head(width, tokens, tied=True))
    rows.append(("rope_freqs.weight", (wide // 2,), "F32"))
    if per_layer:
        whole = per_layer * layers
        rows += [
            ("per_layer_token_embd.weight", (tokens, whole), "Q6_K"),
            ("per_layer_model_proj.weight", (whole, width), "BF16"),
            _f32("per_layer_proj_norm", per_layer),
        ]
    pattern = [(layer + 1) % every != 0 for layer in range(layers)]
    for layer, windowed in enumerate(pattern):
        at, dim = f"blk.{layer}", local if windowed else wide
        groups = kv[0] if windowed else kv[1]
        rows += [
            _q4(f"{at}.attn_q", heads * dim, width),
            _f32(f"{at}.attn_q_norm", dim),
            _q4(f"{at}.attn_output", width, heads * dim),
        ]
        if layer < layers - shared:
            rows += [_q4(f"{at}.attn_k", groups * dim, width), _f32(f"{at}.attn_k_norm", dim)]
            if windowed or per_layer:  # the large ones take a global layer's values from its keys
                rows.append(_q4(f"{at}.attn_v", groups * dim, width))
        rows += _ffn(at, width, ffn[layer])
        norms = ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"]
        if experts[0]:
            count, size = experts
            norms += ["post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"]
            rows += [
                _f32(f"{at}.ffn_gate_inp", count, width),
                (f"{at}.ffn_gate_inp.scale", (width,), "F32"),
                _q4(f"{at}.ffn_gate_up_exps", count, 2 * size, width),
                _q4(f"{at}.ffn_down_exps", count, width, size),
                (f"{at}.ffn_down_exps.scale", (count,), "F32"),
            ]
        if per_layer:
            norms.append("post_norm")
            rows += [_q4(f"{at}.inp_gate", per_layer, width), _q4(f"{at}.proj", width, per_layer)]
        rows += [_f32(f"{at}.{name}", width) for name in norms]
        rows.append(_f32(f"{at}.layer_output_scale", 1))
    keys: dict[str, Any] = {
        "block_count": layers,
        "context_length": 131072,
        "embedding_length": width,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": [kv[0] if windowed else kv[1] for windowed in pattern],
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.key_length": wide,
        "attention.value_length": wide,
        "attention.key_length_swa": local,
        "attention.value_length_swa": local,
        "attention.sliding_window": window,
        "attention.sliding_window_pattern": pattern,
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": per_layer,
        "final_logit_softcapping": 30.0,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
        "rope.dimension_count": wide,
        "rope.dimension_count_swa": local,
    }
    if experts[0]:
        keys |= {
            "expert_count": experts[0],
            "expert_used_count": 8,
            "expert_feed_forward_length": experts[1],
        }
    return Shape("gemma4", "gemma-4", tokens, keys, tuple(rows))


SHAPES = {
    "qwen3-0.6b": qwen3(1024, 28, 16, 8, 3072),
    "qwen3-4b": qwen3(2560, 36, 32, 8, 9728),
    "qwen3-30b-a3b": qwen3(2048, 48, 32, 4, 768, experts=128, tied=False),
    "qwen3.5-0.8b": qwen35(1024, 24, 8, 2, 3584, 16, tied=True),
    "qwen3.5-27b": qwen35(5120, 64, 24, 4, 17408, 48, tied=False),
    "gemma4-e2b": gemma4(
        1536,
        35,
        8,
        (1, 1),
        [6144] * 15 + [12288] * 20,
        window=512,
        every=5,
        per_layer=256,
        shared=20,
    ),
    "gemma4-12b": gemma4(3840, 48, 16, (8, 1), [15360] * 48, window=1024, every=6),
    "gemma4-26b-a4b": gemma4(
        2816, 30, 16, (8, 2), [2112] * 30, window=1024, every=6, experts=(128, 704)
    ),
}
