"""golem-olmo2 passes the conformance suite."""

from __future__ import annotations

from golem_core.testing import VOCAB, GeneratorSuite, decoder


class TestOlmo2(GeneratorSuite):
    optional = ()
    tiny = decoder(
        "olmo2",
        leave=("attn_norm.weight", "ffn_norm.weight"),
        block={
            "attn_q_norm.weight": (64,),
            "attn_k_norm.weight": (32,),
            "post_attention_norm.weight": (64,),
            "post_ffw_norm.weight": (64,),
        },
        tensors={"output.weight": (VOCAB, 64)},
    )
