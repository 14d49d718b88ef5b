"""The tiny models as transformers models in float32, and their waypoints.

The names of the waypoints are golem's: what each step of a block computes, in the layout of the
GGUF file. Llama's query and key rows stand there in another order than in transformers (the
converter interleaves the two halves of each head), so those values are put in that order.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from ref import hugging_face_gemma4, hugging_face_qwen
from ref.drawn import Llama3Scaling, Tiny
from ref.quantise import Floats
from ref.tiny import stored

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "gemma4": "Gemma4ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
    "qwen35": "Qwen3_5ForCausalLM",
    "qwen35moe": "Qwen3_5MoeForCausalLM",
}


class Family(Protocol):
    """What the file of a family says of it; `ref.hugging_face_qwen` describes each."""

    def settings(self, tiny: Tiny, /) -> dict[str, Any]:
        """What its config.json has besides."""

    def modules(self, tiny: Tiny, layer: int, /) -> dict[str, str]:
        """Modules by their tensors' names."""

    def inputs(self, tiny: Tiny, layer: int, /) -> dict[str, str]:
        """Modules by the waypoints that go into them."""

    def placed(self, tiny: Tiny, name: str, values: Floats, /) -> tuple[str, Floats]:
        """A tensor in transformers."""

    def joined(self, state: dict[str, Floats], /) -> dict[str, Floats]:
        """What transformers joins."""

    def order(self, tiny: Tiny, name: str, elements: int, /) -> NDArray[np.int64] | None:
        """Where a waypoint's elements stand."""

    def watch(
        self, source: ModuleType, model: Any, keep: Callable[[str, torch.Tensor], None], /
    ) -> None:
        """Waypoints that no module has."""


# Families that are more than the plain decoder have a file each.
FAMILIES: dict[str, Family] = {
    "gemma4": hugging_face_gemma4,
    "qwen3": hugging_face_qwen,
    "qwen3moe": hugging_face_qwen,
    "qwen35": hugging_face_qwen,
    "qwen35moe": hugging_face_qwen,
}
MODULES = {  # the tensor's name in the file: in transformers
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def _modules(tiny: Tiny, layer: int) -> dict[str, str]:
    """MODULES as this family has them: Gemma's norm before the feed-forward has its own name."""
    if tiny.family in FAMILIES:
        return FAMILIES[tiny.family].modules(tiny, layer)
    if tiny.family == "gemma3":
        return {**MODULES, "ffn_norm": "pre_feedforward_layernorm"}
    absent = ("attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm")
    return {file: module for file, module in MODULES.items() if file not in absent}


def _inputs(tiny: Tiny, layer: int) -> dict[str, str]:
    """Waypoints that are what goes into a module of the layer."""
    if tiny.family in FAMILIES:
        return FAMILIES[tiny.family].inputs(tiny, layer)
    return {"ffn_act": "mlp.down_proj", "attn_residual": _modules(tiny, layer)["ffn_norm"]}


def config(tiny: Tiny) -> dict[str, Any]:
    """The model's config.json, as a published checkpoint of the family would have it."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": tiny.theta}
    if isinstance(tiny.scaling, Llama3Scaling):
        rope |= {
            "rope_type": "llama3",
            "factor": tiny.scaling.factor,
            "low_freq_factor": tiny.scaling.low,
            "high_freq_factor": tiny.scaling.high,
            "original_max_position_embeddings": tiny.scaling.original,
        }
    elif isinstance(tiny.scaling, float):
        rope |= {"rope_type": "linear", "factor": tiny.scaling}
    made: dict[str, Any] = {
        "architectures": [ARCHITECTURES[tiny.family]],
        "model_type": {"gemma3": "gemma3_text"}.get(tiny.family, tiny.family),
        "vocab_size": tiny.vocab,
        "hidden_size": tiny.hidden,
        "intermediate_size": tiny.ffn,
        "num_hidden_layers": tiny.layers,
        "num_attention_heads": tiny.heads,
        "num_key_value_heads": tiny.kv_heads,
        "rms_norm_eps": tiny.eps,
        "max_position_embeddings": tiny.context,
        "tie_word_embeddings": tiny.tied,
        "rope_parameters": rope,
        "pad_token_id": 0,
        "dtype": "float32",
    }
    if not tiny.ffn:  # all feed-forwards are mixtures
        del made["intermediate_size"]
    if tiny.family in FAMILIES:
        made |= FAMILIES[tiny.family].settings(tiny)
    elif tiny.family != "qwen2":
        made["head_dim"] = tiny.head_dim
    if tiny.family == "gemma3":
        made["rope_parameters"] = {
            "full_attention": rope,
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": tiny.local_theta or 10000.0,
            },
        }
        made["query_pre_attn_scalar"] = tiny.head_dim
        made["sliding_window"] = tiny.window
        made["hidden_activation"] = "gelu_pytorch_tanh"
    return made


def _order(tiny: Tiny, heads: int) -> NDArray[np.int64]:
    """For each row of the file's query or key matrix, the row that transformers has there."""
    rows: NDArray[np.int64] = np.arange(heads * tiny.head_dim)
    if tiny.family != "llama":
        return rows
    pairs: NDArray[np.int64] = rows.reshape(heads, 2, tiny.head_dim // 2).swapaxes(1, 2)
    return pairs.reshape(-1)


def build(tiny: Tiny, form: str = "F32") -> Any:
    """The transformers model, float32, eager attention, with the numbers of a file in `form`."""
    model_class = getattr(transformers, ARCHITECTURES[tiny.family])
    settings = {key: value for key, value in config(tiny).items() if key != "architectures"}
    made = model_class(model_class.config_class(**settings, attn_implementation="eager"))
    made = made.float().eval()
    state = made.state_dict()
    filled = {"lm_head.weight"} if tiny.tied else set()
    for target, values in state_dict(tiny, form).items():
        if not target.startswith("mtp."):  # which transformers has not
            state[target].copy_(torch.from_numpy(values))
            filled.add(target)
    absent = set(state) - filled
    if absent:
        raise ValueError(f"{tiny.name}: nothing was drawn for {sorted(absent)}")
    return made


def state_dict(tiny: Tiny, form: str = "F32") -> dict[str, Floats]:
    """Every tensor of a file in `form` as a published checkpoint has it, `mtp.*` included."""
    given = stored(tiny, form)
    if tiny.family in FAMILIES:
        family = FAMILIES[tiny.family]
        return family.joined(dict(family.placed(tiny, name, values) for name, values in given))
    made = {}
    for name, values in given:
        if name == "rope_freqs.weight":
            continue  # transformers derives them from the config
        base, kind = name.rsplit(".", 1)
        if base.startswith("blk."):
            _, layer, part = base.split(".")
            target = f"model.layers.{layer}.{_modules(tiny, int(layer))[part]}.{kind}"
        else:
            plain = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
            target = f"{plain.get(base, 'lm_head')}.{kind}"
        values = values.copy()
        if base.endswith(("attn_q", "attn_k")):
            order = _order(tiny, tiny.heads if base.endswith("_q") else tiny.kv_heads)
            values[order] = values.copy()
        if tiny.family == "gemma3" and base.endswith("norm"):
            values -= 1  # Gemma multiplies by 1 + w
        made[target] = values
    return made


def run(tiny: Tiny, ids: list[int], form: str = "F32") -> dict[str, Floats]:
    """Every waypoint of one pass over ids, each [positions, elements], logits included."""
    model = build(tiny, form)
    seen: dict[str, Floats] = {}

    def keep(name: str, value: torch.Tensor) -> None:
        flat = value.detach()
        flat = flat if flat.ndim == 2 else flat[0]  # the text is the only one
        if flat.ndim == 3:  # per head: [heads, positions, dim], or positions first
            flat = flat.transpose(0, 1) if flat.shape[0] != len(ids) else flat
        rows = flat.reshape(len(ids), -1).numpy().copy()
        llama = tiny.family == "llama"
        if llama and name.endswith(("attn_q", "q_rope", "attn_k", "k_rope")):
            rows = rows[:, _order(tiny, rows.shape[1] // tiny.head_dim)]
        if tiny.family in FAMILIES:
            order = FAMILIES[tiny.family].order(tiny, name, rows.shape[1])
            rows = rows if order is None else rows[:, order]
        seen[name] = rows

    def output_of(name: str) -> Callable[..., None]:
        return lambda _module, _inputs, output: keep(
            name, output[0] if isinstance(output, tuple) else output
        )

    def input_of(name: str) -> Callable[..., None]:
        return lambda _module, inputs: keep(name, inputs[0])

    inner = model.model
    inner.embed_tokens.register_forward_hook(output_of("token_embd"))
    inner.norm.register_forward_hook(output_of("output_norm"))
    for layer, block in enumerate(inner.layers):
        at = f"blk.{layer}."
        modules = dict(block.named_modules())
        for name, module in _modules(tiny, layer).items():
            modules[module].register_forward_hook(output_of(at + name))
        for name, module in _inputs(tiny, layer).items():
            modules[module].register_forward_pre_hook(input_of(at + name))
        block.register_forward_hook(output_of(at + "out"))

    source: Any = importlib.import_module(type(model).__module__)
    own = dict(vars(source))

    def attend(module: Any, query: torch.Tensor, key: torch.Tensor, *rest: Any, **more: Any) -> Any:
        keep(f"blk.{module.layer_idx}.q_rope", query)
        if not getattr(module, "is_kv_shared_layer", False):  # whose keys are another layer's
            keep(f"blk.{module.layer_idx}.k_rope", key)
        seen_by, weights = own["eager_attention_forward"](module, query, key, *rest, **more)
        keep(f"blk.{module.layer_idx}.attend", seen_by)
        return seen_by, weights

    source.eager_attention_forward = attend
    if tiny.family in FAMILIES:
        FAMILIES[tiny.family].watch(source, model, keep)
    try:
        with torch.no_grad():
            keep("logits", model(input_ids=torch.tensor([ids]), use_cache=False).logits)
    finally:
        vars(source).update(own)
    return seen
