"""golem-llama passes the conformance suite, in each of the shapes that its files have."""

from __future__ import annotations

from golem_core.testing import VOCAB, GeneratorSuite, decoder


class TestTied(GeneratorSuite):
    tiny = decoder("llama")


class TestUntied(GeneratorSuite):
    """One key head for each query head, heads that are no part of the width, a linear factor."""

    tiny = decoder(
        "llama",
        heads=3,
        kv_heads=3,
        head_dim=24,
        keys={
            "attention.key_length": 24,
            "attention.value_length": 24,
            "rope.dimension_count": 24,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 4.0,
        },
        tensors={"output.weight": (VOCAB, 64)},
    )


class TestLlama3(GeneratorSuite):
    """Frequencies divided by rope_freqs, and every bias that a file may have."""

    optional = (*GeneratorSuite.optional, ".bias")
    tiny = decoder(
        "llama",
        keys={"rope.freq_base": 500000.0},
        block={
            "attn_q.bias": (64,),
            "attn_k.bias": (32,),
            "attn_v.bias": (32,),
            "attn_output.bias": (64,),
            "ffn_gate.bias": (96,),
            "ffn_up.bias": (96,),
            "ffn_down.bias": (64,),
        },
        tensors={"rope_freqs.weight": (8,)},
    )
