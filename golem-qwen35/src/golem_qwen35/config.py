"""The geometry of a Qwen3.5 file, dense or mixed; every size is the file's."""

from __future__ import annotations

from dataclasses import dataclass

from golem_core.graph import Rope, stretched_rope
from golem_core.weights import Keys, Weights


@dataclass(frozen=True)
class Experts:
    """A mixture: `used` of `count` experts of `ffn` each, beside a shared one of `shared`."""

    count: int
    used: int
    ffn: int
    shared: int


@dataclass(frozen=True)
class Config:
    """The geometry, as the file gives it."""

    vocab: int
    context: int
    layers: int  # without the prediction block
    predicts: bool  # whether a prediction block follows them
    width: int
    ffn: int  # 0 where there are experts
    experts: Experts | None
    heads: int  # of attention
    kv_heads: int
    head_dim: int
    key_heads: int  # of delta nets
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int  # of their convolution
    eps: float
    rope: Rope

    @classmethod
    def from_weights(cls, weights: Weights, architecture: str) -> Config:
        """Reads each key once; raises BadWeights and Unsupported by key.

        Which layers are delta nets is not read: each block holds the tensors of what it is. Nor are
        the rope's sections, which part the axes of a picture's positions; those of text are equal.
        """
        keys = Keys(weights, architecture)
        keys.absent("attention.sliding_window", "expert_group_count", "attention.scale")
        heads = keys.whole("attention.head_count")
        kv_heads = keys.whole("attention.head_count_kv", heads)
        if heads % kv_heads:
            raise keys.bad("attention.head_count", f"no multiple of head_count_kv {kv_heads}")
        head_dim = keys.whole("attention.key_length")
        keys.one_of("attention.value_length", (head_dim,), head_dim)
        turned = keys.whole("rope.dimension_count", head_dim, most=head_dim)
        if turned % 2:
            raise keys.bad("rope.dimension_count", "an odd number, which a rope cannot turn")
        key_heads, value_heads = keys.whole("ssm.group_count"), keys.whole("ssm.time_step_rank")
        if value_heads % key_heads:
            raise keys.bad("ssm.time_step_rank", f"no multiple of group_count {key_heads}")
        values = keys.whole("ssm.inner_size")
        if values % value_heads:
            raise keys.bad("ssm.inner_size", f"no multiple of time_step_rank {value_heads}")
        predictions = keys.one_of("nextn_predict_layers", (0, 1), 0)
        for name in weights.tensors:
            if ".nextn." in name and not predictions:
                raise keys.bad("nextn_predict_layers", f"but {name} is there")
        mixed = architecture == "qwen35moe"
        return cls(
            vocab=Keys(weights, "tokenizer.ggml").length("tokens"),
            context=keys.whole("context_length", least=2),
            layers=keys.whole("block_count", least=1 + predictions) - predictions,
            predicts=predictions == 1,
            width=keys.whole("embedding_length"),
            ffn=0 if mixed else keys.whole("feed_forward_length"),
            experts=experts(keys) if mixed else None,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            key_heads=key_heads,
            value_heads=value_heads,
            key_dim=keys.whole("ssm.state_size"),
            value_dim=values // value_heads,
            taps=keys.whole("ssm.conv_kernel", least=2),
            eps=keys.real("attention.layer_norm_rms_epsilon", above=0),
            rope=stretched_rope(keys, turned),
        )


def experts(keys: Keys) -> Experts:
    """The mixture of each block."""
    keys.one_of("expert_weights_scale", (1.0,), 1.0)
    count, ffn = keys.whole("expert_count"), keys.whole("expert_feed_forward_length")
    shared = keys.whole("expert_shared_feed_forward_length")
    return Experts(count, keys.whole("expert_used_count", most=count), ffn, shared)
