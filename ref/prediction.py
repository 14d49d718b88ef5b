"""The prediction block of Qwen3.5 in torch: transformers leaves it out.

What the block is: of position k it reads the embedding of token k and the trunk's state behind its
last norm at k - 1 (zeros before the first), each normed, side by side through `fc`; then follow a
layer of gated attention as the trunk has them, over its own keys of all positions up to k with k's
rope, a norm, and the trunk's head. llama.cpp pairs them alike.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ref import hugging_face
from ref.quantise import Floats
from ref.tiny_qwen35 import Qwen35


def logits(tiny: Qwen35, ids: list[int]) -> Floats:
    """The guess at every position k from token k: float32 [positions, vocabulary]."""
    model = hugging_face.build(tiny)
    state = {
        name.removeprefix("mtp."): torch.from_numpy(values)
        for name, values in hugging_face.state_dict(tiny).items()
        if name.startswith("mtp.")
    }
    source: Any = importlib.import_module(type(model).__module__)
    kind = "Qwen3_5MoeDecoderLayer" if tiny.experts else "Qwen3_5DecoderLayer"
    attends = [tiny.attends(layer) for layer in range(tiny.layers)].index(True)
    layer = getattr(source, kind)(model.config, attends).float().eval()
    at = "layers.0."
    layer.load_state_dict(
        {name.removeprefix(at): value for name, value in state.items() if name.startswith(at)}
    )

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + tiny.eps)
        return x * scale * (1 + state[f"{name}.weight"])

    with torch.no_grad():
        given, count = torch.tensor([ids]), len(ids)
        trunk = model.model(input_ids=given, use_cache=False).last_hidden_state
        before = torch.cat([torch.zeros_like(trunk[:, :1]), trunk[:, :-1]], dim=1)
        embedded = model.get_input_embeddings()(given)
        parts = [norm(embedded, "pre_fc_norm_embedding"), norm(before, "pre_fc_norm_hidden")]
        x = torch.cat(parts, dim=-1) @ state["fc.weight"].T
        positions = torch.arange(count)[None, None].expand(3, 1, -1)
        mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
        turns = model.model.rotary_emb(x, positions)
        x = layer(x, position_embeddings=turns, attention_mask=mask)
        head = model.get_output_embeddings().weight
        found: Floats = (norm(x, "norm") @ head.T)[0].numpy()
    return found
