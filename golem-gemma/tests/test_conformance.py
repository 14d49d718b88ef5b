"""golem-gemma passes the conformance suite, with windows and without."""

from __future__ import annotations

from golem_core.testing import GeneratorSuite, decoder

NORMS = {
    "attn_q_norm.weight": (16,),
    "attn_k_norm.weight": (16,),
    "post_attention_norm.weight": (64,),
    "post_ffw_norm.weight": (64,),
}
HEADS = {"attention.key_length": 16, "attention.value_length": 16}


class TestWindows(GeneratorSuite):
    """Seven layers, so that one sees everything; a stretched rope; a cap on the logits."""

    tiny = decoder(
        "gemma3",
        layers=7,
        keys={
            **HEADS,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
            "attention.sliding_window": 16,
            "final_logit_softcapping": 30.0,
        },
        block=NORMS,
    )


class TestNoWindow(GeneratorSuite):
    tiny = decoder("gemma3", keys=HEADS, block=NORMS)


class TestPattern(GeneratorSuite):
    """The file itself says which layers have a window, and what they turn by."""

    tiny = decoder(
        "gemma3",
        keys={
            **HEADS,
            "attention.sliding_window": 8,
            "attention.sliding_window_pattern": [False, True],
            "rope.freq_base_swa": 5000.0,
        },
        block=NORMS,
    )
