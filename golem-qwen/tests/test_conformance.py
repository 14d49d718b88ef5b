"""golem-qwen passes the conformance suite: tied and untied, dense and mixed, stretched ropes."""

from __future__ import annotations

from golem_core.testing import VOCAB, GeneratorSuite, decoder

BIAS = {"attn_q.bias": (64,), "attn_k.bias": (32,), "attn_v.bias": (32,)}
NORMS = {"attn_q_norm.weight": (16,), "attn_k_norm.weight": (16,)}
HEADS = {"attention.key_length": 16, "attention.value_length": 16, "rope.freq_base": 1e6}
YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32,
}
EXPERTS = {"expert_count": 5, "expert_used_count": 2, "expert_feed_forward_length": 32}


class TestTied(GeneratorSuite):
    tiny = decoder("qwen2", block=BIAS)


class TestUntied(GeneratorSuite):
    tiny = decoder(
        "qwen2",
        keys={"rope.freq_base": 1e6, **YARN},
        block=BIAS,
        tensors={"output.weight": (VOCAB, 64), "output.bias": (VOCAB,)},
    )
    optional = (*GeneratorSuite.optional, "output.bias")


class TestQwen3(GeneratorSuite):
    """Heads that are not the width divided, as those of 0.6B."""

    tiny = decoder(
        "qwen3",
        head_dim=32,
        keys={**HEADS, "attention.key_length": 32, "attention.value_length": 32},
        block={"attn_q_norm.weight": (32,), "attn_k_norm.weight": (32,)},
    )


class TestQwen3Untied(GeneratorSuite):
    """A stretched rope, every key of it read."""

    tiny = decoder(
        "qwen3",
        keys={
            **HEADS,
            **YARN,
            "rope.scaling.yarn_beta_fast": 16.0,
            "rope.scaling.yarn_beta_slow": 2.0,
            "rope.scaling.yarn_ext_factor": 0.9,
            "rope.scaling.yarn_attn_factor": 1.1,
            "rope.scaling.attn_factor": 0.9,
        },
        block=NORMS,
        tensors={"output.weight": (VOCAB, 64)},
    )


class TestQwen3Moe(GeneratorSuite):
    tiny = decoder(
        "qwen3moe",
        keys={**HEADS, **EXPERTS},
        leave=("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"),
        block={
            **NORMS,
            "ffn_gate_inp.weight": (5, 64),
            "ffn_gate_exps.weight": (5, 32, 64),
            "ffn_up_exps.weight": (5, 32, 64),
            "ffn_down_exps.weight": (5, 64, 32),
        },
        tensors={"output.weight": (VOCAB, 64)},
    ).with_key("feed_forward_length", None)
    parts = ("attend", "attn_output", "attn_residual", "ffn_routing", "ffn_experts", "out")
