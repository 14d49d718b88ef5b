"""The geometry of an encoder in a GGUF file.

The keys are llama.cpp's of `bert`, `nomic-bert`, `modern-bert`, `gemma-embedding` and of `qwen3`
with a pooling type.
"""

from __future__ import annotations

from golem_core.errors import Unsupported
from golem_core.weights import Keys, Weights
from golem_embed.config import Config
from golem_embed.recipe import Recipe

POOLINGS = {1: "mean", 2: "cls", 3: "last"}
RANK = 4  # scores instead of a vector
FAMILIES = {
    "bert": "bert",
    "nomic-bert": "nomic",
    "modern-bert": "modern",
    "gemma-embedding": "gemma",
    "qwen3": "qwen",
}


def read(weights: Weights, architecture: str) -> tuple[Config, Recipe]:
    """The geometry and how tokens become a vector. Raises BadWeights and Unsupported by key."""
    keys = Keys(weights, architecture)
    keys.one_of("rope.scaling.type", ("none",), "none")
    keys.absent("rope.scaling.factor", "expert_count", "moe_every_n_layers")
    keys.absent("attn_logit_softcapping", "final_logit_softcapping")
    pooling = keys.one_of("pooling_type", (*POOLINGS, RANK), _usual(weights, architecture))
    if pooling == RANK and "cls.weight" not in weights.tensors:
        raise Unsupported(
            "cls.weight is missing, the dense layer of its classification head: without it the "
            f"scores would not be the model's ({weights.path})"
        )
    config = _config(keys, FAMILIES[architecture], pooling == RANK)
    if pooling == RANK:
        return config, Recipe("")
    # llama.cpp brings every vector to length 1, and a file does not say otherwise.
    return config, Recipe(POOLINGS[pooling], normalises=True)


def _usual(weights: Weights, architecture: str) -> int | None:
    """The pooling of a file that says none: the converter leaves it out where there is a head."""
    if "cls.output.weight" in weights.tensors:
        return RANK
    return 1 if architecture == "gemma-embedding" else None


def _config(keys: Keys, family: str, ranks: bool) -> Config:
    tensors = keys.weights.tensors
    width, heads = keys.whole("embedding_length"), keys.whole("attention.head_count")
    length = keys.whole("context_length", least=2)
    kv_heads = keys.whole("attention.head_count_kv", heads)
    head = keys.whole("attention.key_length", width // heads)
    if heads % kv_heads:
        raise keys.bad("attention.head_count", f"no multiple of head_count_kv {kv_heads}")
    ffn = keys.whole("feed_forward_length")
    if family in ("bert", "nomic", "modern"):
        eps = keys.real("attention.layer_norm_epsilon", above=0)
    else:
        eps = keys.real("attention.layer_norm_rms_epsilon", above=0)
    causal = keys.truth("attention.causal", family == "qwen")
    if causal != (family == "qwen"):
        raise keys.bad("attention.causal", f"but golem runs {family} the other way")
    first = None
    if family == "bert":
        first = 0
        length = min(length, _rows(keys, "position_embd.weight"))
    scores = _rows(keys, "cls.output.weight") if ranks else 0
    base = keys.real("rope.freq_base", 10000.0, above=0)
    local = keys.real("rope.freq_base_swa", 10000.0, above=0)
    reach, period, anchor = None, 1, 0
    if family in ("modern", "gemma") and keys.has("attention.sliding_window"):
        window = keys.whole("attention.sliding_window")
        reach = window // 2
        period = 3 if family == "modern" else 6
        if keys.has("attention.sliding_window_pattern"):
            period = keys.whole("attention.sliding_window_pattern")
        anchor = 0 if family == "modern" else period - 1
    head_pools = "cls"
    if family == "modern":
        keys.one_of("hidden_activation", ("gelu", "geglu"), "gelu")
        head_pools = POOLINGS[keys.one_of("classifier.pooling_type", (1, 2), 1)]
    if family == "nomic" and "blk.0.ffn_gate.weight" not in tensors:
        raise Unsupported(f"blk.0.ffn_gate.weight is missing: no gated layer ({keys.weights.path})")
    cuts: dict[str, tuple[tuple[str, int], ...]] = {}
    if "blk.0.attn_qkv.weight" in tensors:
        for kind in ("weight", "bias"):
            cuts[f"attn_qkv.{kind}"] = tuple(
                (f"attn_{part}.{kind}", count * head)
                for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
            )
    if family == "modern":
        cuts["ffn_up.weight"] = (("ffn_gate.weight", ffn), ("ffn_up.weight", ffn))
    return Config(
        family=family,
        vocab=Keys(keys.weights, "tokenizer.ggml").length("tokens"),
        length=length,
        layers=keys.whole("block_count"),
        width=width,
        ffn=ffn,
        heads=heads,
        kv_heads=kv_heads,
        head=head,
        eps=eps,
        first=first,
        ropes=(0.0, 0.0) if family == "bert" else (base, local),
        reach=reach,
        period=period,
        anchor=anchor,
        scores=scores,
        head_pools=head_pools,
        cuts=cuts,
    )


def _rows(keys: Keys, name: str) -> int:
    stored = keys.weights.tensors.get(name)
    if stored is None:
        raise Unsupported(
            f"{name} is missing, without which golem does not run it ({keys.weights.path})"
        )
    return stored.shape[0] if len(stored.shape) == 2 else 1
