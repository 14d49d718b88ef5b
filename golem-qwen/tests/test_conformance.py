"""golem-qwen passes the conformance suite, tied and untied."""

from __future__ import annotations

from golem_core.testing import VOCAB, GeneratorSuite, decoder

BIAS = {"attn_q.bias": (64,), "attn_k.bias": (32,), "attn_v.bias": (32,)}


class TestTied(GeneratorSuite):
    tiny = decoder("qwen2", block=BIAS)


class TestUntied(GeneratorSuite):
    tiny = decoder(
        "qwen2",
        keys={"rope.freq_base": 1e6},
        block=BIAS,
        tensors={"output.weight": (VOCAB, 64), "output.bias": (VOCAB,)},
    )
    optional = (*GeneratorSuite.optional, "output.bias")
