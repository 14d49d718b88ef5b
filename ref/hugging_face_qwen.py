"""Qwen3 and Qwen3.5 in transformers: their settings, where each tensor of the file stands there,
and what is looked at on the way.

A Qwen3.5 file has norms that multiply by themselves where transformers has them less 1, `ssm_a` for
its logarithm `A_log`, and the value heads of a delta net in another order (`ref.tiny_qwen35`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ref.drawn import Tiny, Yarn
from ref.quantise import Floats
from ref.tiny_qwen3 import Qwen3
from ref.tiny_qwen35 import Qwen35

ATTENTION = {  # the tensor's name in the file: in transformers
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
}
DELTA = {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_out": "linear_attn.out_proj",
}
DENSE = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
MIXED = {"ffn_gate_inp": "mlp.gate", "ffn_experts": "mlp.experts"}
SHARED = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
# What is no module with a weight of its own; gate and up are joined there (`joined`).
PARAMETERS = {
    "ffn_gate_exps.weight": "mlp.experts.gate",
    "ffn_up_exps.weight": "mlp.experts.up",
    "ffn_down_exps.weight": "mlp.experts.down_proj",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_norm.weight": "linear_attn.norm.weight",
}
PREDICTION = {
    "nextn.eh_proj.weight": "mtp.fc.weight",
    "nextn.enorm.weight": "mtp.pre_fc_norm_embedding.weight",
    "nextn.hnorm.weight": "mtp.pre_fc_norm_hidden.weight",
    "nextn.shared_head_norm.weight": "mtp.norm.weight",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def settings(tiny: Tiny) -> dict[str, Any]:
    """What the family's config.json has besides the plain decoder's; keys of the rope included."""
    assert isinstance(tiny, (Qwen3, Qwen35))
    made: dict[str, Any] = {"head_dim": tiny.head_dim}
    if tiny.experts:
        made |= {
            "num_experts": tiny.experts,
            "num_experts_per_tok": tiny.used,
            "moe_intermediate_size": tiny.expert_ffn,
        }
    if isinstance(tiny, Qwen3):
        if tiny.experts:
            made["norm_topk_prob"] = True
        if isinstance(tiny.scaling, Yarn):
            made["rope_parameters"] = {
                "rope_type": "yarn",
                "rope_theta": tiny.theta,
                "factor": tiny.scaling.factor,
                "original_max_position_embeddings": tiny.scaling.original,
            }
        return made
    made |= {
        "model_type": {"qwen35": "qwen3_5_text", "qwen35moe": "qwen3_5_moe_text"}[tiny.family],
        "linear_conv_kernel_dim": tiny.taps,
        "linear_key_head_dim": tiny.key_dim,
        "linear_value_head_dim": tiny.value_dim,
        "linear_num_key_heads": tiny.key_heads,
        "linear_num_value_heads": tiny.value_heads,
        "layer_types": [
            "full_attention" if tiny.attends(layer) else "linear_attention"
            for layer in range(tiny.layers)
        ],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": tiny.theta,
            "partial_rotary_factor": tiny.rope_dims / tiny.head_dim,
            "mrope_section": list(tiny.sections),
            "mrope_interleaved": True,
        },
    }
    if tiny.experts:
        made["shared_expert_intermediate_size"] = tiny.shared_ffn
    if tiny.predicts:
        made["mtp_num_hidden_layers"] = 1
    return made


def modules(tiny: Tiny, layer: int) -> dict[str, str]:
    """The modules of a layer by the names of their tensors in the file."""
    assert isinstance(tiny, (Qwen3, Qwen35))
    qwen35 = isinstance(tiny, Qwen35)
    mixer = DELTA if isinstance(tiny, Qwen35) and not tiny.attends(layer) else ATTENTION
    after = "post_attention_norm" if qwen35 else "ffn_norm"
    feed_forward = {**MIXED, **(SHARED if qwen35 else {})} if tiny.experts else DENSE
    norms = {"attn_norm": "input_layernorm", after: "post_attention_layernorm"}
    return {**norms, **mixer, **feed_forward}


def inputs(tiny: Tiny, layer: int) -> dict[str, str]:
    """What goes into a module of a layer, by the name that golem has for it."""
    assert isinstance(tiny, (Qwen3, Qwen35))
    made = {"attn_residual": "post_attention_layernorm"}
    if isinstance(tiny, Qwen35) and tiny.attends(layer):
        made["gated"] = "self_attn.o_proj"
    elif isinstance(tiny, Qwen35):
        made |= {"delta": "linear_attn.norm", "gated": "linear_attn.out_proj"}
    if not tiny.experts:
        made["ffn_act"] = "mlp.down_proj"
    return made


def placed(tiny: Tiny, name: str, values: Floats) -> tuple[str, Floats]:
    """The name of a tensor in transformers, and its values there."""
    assert isinstance(tiny, (Qwen3, Qwen35))
    values = values.copy()
    qwen35 = isinstance(tiny, Qwen35)
    if qwen35 and "norm" in name and "ssm_norm" not in name:
        values -= 1
    if not name.startswith("blk."):
        base, kind = name.rsplit(".", 1)
        return f"{TOP[base]}.{kind}", values
    _, layer, part = name.split(".", 2)
    if part in PREDICTION:
        return PREDICTION[part], values
    if isinstance(tiny, Qwen35):
        values = _grouped(tiny, part, values)
    if part == "ssm_a":
        values = np.log(-values)
    if part == "ssm_conv1d.weight":
        values = values[:, None, :]
    at = f"model.layers.{layer}." if int(layer) < tiny.layers else "mtp.layers.0."
    if part in PARAMETERS:
        return at + PARAMETERS[part], values
    base, kind = part.rsplit(".", 1)
    return f"{at}{modules(tiny, int(layer))[base]}.{kind}", values


def joined(state: dict[str, Floats]) -> dict[str, Floats]:
    """The same with gate and up of experts as the one parameter that transformers has."""
    made = {}
    for name, values in state.items():
        if name.endswith(".experts.gate"):
            base = name.removesuffix(".gate")
            both = [values, state[f"{base}.up"]]
            made[f"{base}.gate_up_proj"] = np.concatenate(both, axis=1)
        elif not name.endswith(".experts.up"):
            made[name] = values
    return made


def _grouped(tiny: Qwen35, part: str, values: Floats) -> Floats:
    """A delta net's tensor with its value heads as transformers has them."""
    keys = 2 * tiny.key_heads * tiny.key_dim
    made: Floats = values.copy()
    if part in ("attn_qkv.weight", "ssm_conv1d.weight"):
        made[keys + tiny.grouped(tiny.value_dim)] = values[keys:]
    elif part == "attn_gate.weight":
        made[tiny.grouped(tiny.value_dim)] = values
    elif part in ("ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias"):
        made[tiny.grouped(1)] = values
    elif part == "ssm_out.weight":
        made[:, tiny.grouped(tiny.value_dim)] = values
    return made


def order(tiny: Tiny, name: str, elements: int) -> NDArray[np.int64] | None:
    """For each element of a waypoint of the file's order its place in transformers'; None: same."""
    if not isinstance(tiny, Qwen35) or not name.startswith("blk."):
        return None
    _, layer, part = name.split(".")
    if tiny.attends(int(layer)):
        return None
    wide = tiny.grouped(tiny.value_dim)
    if part in ("attn_qkv", "conv"):
        keys = elements - len(wide)
        return np.concatenate([np.arange(keys), keys + wide])
    if part in ("attn_gate", "delta", "gated"):
        return wide
    return tiny.grouped(1) if part in ("ssm_alpha", "ssm_beta", "decay", "beta") else None


def watch(source: ModuleType, model: Any, keep: Callable[[str, torch.Tensor], None]) -> None:
    """Looks at what a delta net's rule is given: `conv`, `decay` and `beta` of each.

    Replaces the rule in the module `source`, where the caller puts it back.
    """
    if not hasattr(source, "torch_chunk_gated_delta_rule"):
        return
    rule = source.torch_chunk_gated_delta_rule
    now: list[Any] = []
    for layer, block in enumerate(model.model.layers):
        if hasattr(block, "linear_attn"):
            block.linear_attn.register_forward_pre_hook(
                lambda module, *_given, layer=layer: now.append((layer, module)), with_kwargs=True
            )

    def watched(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **more: Any) -> Any:
        layer, module = now[-1]
        repeats = module.num_v_heads // module.num_k_heads
        parts = [q[:, :, ::repeats], k[:, :, ::repeats], v]
        mixed = torch.cat([part.flatten(2) for part in parts], dim=-1)
        keep(f"blk.{layer}.conv", mixed)
        keep(f"blk.{layer}.decay", more["g"].exp())
        keep(f"blk.{layer}.beta", more["beta"])
        return rule(q, k, v, **more)

    vars(source)["torch_chunk_gated_delta_rule"] = watched
