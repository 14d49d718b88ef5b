"""Gemma 4 in transformers: its settings, where each tensor of the file stands there, and what is
looked at on the way."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ref.drawn import Tiny
from ref.quantise import Floats
from ref.tiny_gemma4 import PARTIAL, Gemma4

MODULES = {  # the tensor's name in the file: in transformers
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_output": "self_attn.o_proj",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}
OWN = {  # of layers that share nobody's keys and values
    "attn_k": "self_attn.k_proj",
    "attn_k_norm": "self_attn.k_norm",
    "v_norm": "self_attn.v_norm",
}
PER_LAYER = {
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
}
MIXTURE = {
    "ffn_gate_inp": "router.proj",
    "experts": "experts",
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
}
PARAMETERS = {  # what is no module with a weight of its own
    "ffn_gate_inp.scale": "router.scale",
    "ffn_gate_up_exps.weight": "experts.gate_up_proj",
    "ffn_down_exps.weight": "experts.down_proj",
    "ffn_down_exps.scale": "router.per_expert_scale",
    "layer_output_scale.weight": "layer_scalar",
}
TOP = {
    "token_embd": "model.embed_tokens",
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
    "output_norm": "model.norm",
}


def settings(tiny: Tiny) -> dict[str, Any]:
    """What the family's config.json has besides the plain decoder's; keys of the rope included."""
    assert isinstance(tiny, Gemma4)
    kinds = {"s": "sliding_attention", "f": "full_attention"}
    return {
        "model_type": "gemma4_text",
        "head_dim": tiny.local_dim,
        "global_head_dim": tiny.head_dim,
        "attention_k_eq_v": tiny.keyed,
        "num_global_key_value_heads": tiny.global_kv_heads if tiny.keyed else None,
        "num_kv_shared_layers": tiny.shared,
        "use_double_wide_mlp": tiny.shared > 0,
        "hidden_size_per_layer_input": tiny.per_layer,
        "vocab_size_per_layer_input": tiny.vocab,
        "layer_types": [kinds[each] for each in tiny.pattern],
        "sliding_window": tiny.window,
        "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "partial_rotary_factor": PARTIAL,
                "rope_theta": tiny.theta,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": tiny.local_theta},
        },
        "enable_moe_block": tiny.experts > 0,
        "num_experts": tiny.experts or None,
        "top_k_experts": tiny.used or None,
        "moe_intermediate_size": tiny.expert_ffn or None,
    }


def modules(tiny: Tiny, layer: int) -> dict[str, str]:
    """The modules of a layer by the names of their tensors in the file."""
    assert isinstance(tiny, Gemma4)
    made = dict(MODULES)
    if tiny.owns(layer):
        made |= OWN
        if not (tiny.keyed and tiny.is_global(layer)):
            made["attn_v"] = "self_attn.v_proj"
    if tiny.per_layer:
        made |= PER_LAYER
    if tiny.experts:
        made |= MIXTURE
    return made


def inputs(tiny: Tiny, layer: int) -> dict[str, str]:
    """What goes into a module of a layer, by the name that golem has for it."""
    assert isinstance(tiny, Gemma4)
    made = {"attn_residual": "pre_feedforward_layernorm", "ffn_act": "mlp.down_proj"}
    if tiny.per_layer:
        made |= {"ffn_residual": "per_layer_input_gate", "inp_act": "per_layer_projection"}
    if tiny.experts:
        made |= {"router_in": "router.proj", "ffn_both": "post_feedforward_layernorm"}
    return made


def placed(tiny: Tiny, name: str, values: Floats) -> tuple[str, Floats]:
    """The name of a tensor in transformers, and its values there."""
    if name == "rope_freqs.weight":
        return name, values  # `joined` leaves it out: transformers derives them from the config
    if not name.startswith("blk."):
        base, kind = name.rsplit(".", 1)
        return f"{TOP[base]}.{kind}", values
    _, layer, part = name.split(".", 2)
    at = f"model.layers.{layer}."
    if part in PARAMETERS:
        return at + PARAMETERS[part], values
    base, kind = part.rsplit(".", 1)
    return f"{at}{modules(tiny, int(layer))[base]}.{kind}", values


def joined(state: dict[str, Floats]) -> dict[str, Floats]:
    """The same without what transformers has not."""
    return {name: values for name, values in state.items() if name != "rope_freqs.weight"}


def order(tiny: Tiny, name: str, elements: int) -> NDArray[np.int64] | None:
    """None: every waypoint's elements stand as in the file."""
    return None


def watch(source: ModuleType, model: Any, keep: Callable[[str, torch.Tensor], None]) -> None:
    """Looks at the embeddings for each layer, and at whom the routers choose."""
    inner = model.model
    if hasattr(inner, "embed_tokens_per_layer"):
        project = inner.project_per_layer_inputs

        def projected(*given: Any) -> torch.Tensor:
            made: torch.Tensor = project(*given)
            keep("per_layer_inputs", made)
            return made

        inner.project_per_layer_inputs = projected
        for name, module in (
            ("per_layer_token", inner.embed_tokens_per_layer),
            ("per_layer_model_proj", inner.per_layer_model_projection),
            ("per_layer_proj_norm", inner.per_layer_projection_norm),
        ):
            module.register_forward_hook(
                lambda _module, _inputs, output, name=name: keep(name, output)
            )
    for layer, block in enumerate(inner.layers):
        if hasattr(block, "router"):

            def routed(router: Any, _inputs: Any, output: Any, layer: int = layer) -> None:
                _, weights, chosen = output  # the weights are those of golem times the scale
                weights = weights / router.per_expert_scale[chosen]
                keep(f"blk.{layer}.route", torch.cat([chosen.float(), weights], dim=1))

            block.router.register_forward_hook(routed)
