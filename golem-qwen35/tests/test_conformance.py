"""golem-qwen35 passes the conformance suite: dense and mixed, with and without a prediction."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core.errors import Unsupported
from golem_core.graph import Batch, Graph, Program, compile
from golem_core.model import Generator
from golem_core.testing import VOCAB, GeneratorSuite, Tiny
from golem_core.weights import Weights

Shape = tuple[int, ...]

WIDTH, HEADS, KV_HEADS, HEAD = 64, 4, 2, 16
KEY_HEADS, VALUE_HEADS, KEY, VALUE, TAPS = 2, 4, 16, 16, 4
MIXED = 2 * KEY_HEADS * KEY + VALUE_HEADS * VALUE

ATTENTION: dict[str, Shape] = {
    "attn_q.weight": (2 * HEADS * HEAD, WIDTH),
    "attn_k.weight": (KV_HEADS * HEAD, WIDTH),
    "attn_v.weight": (KV_HEADS * HEAD, WIDTH),
    "attn_q_norm.weight": (HEAD,),
    "attn_k_norm.weight": (HEAD,),
    "attn_output.weight": (WIDTH, HEADS * HEAD),
}
DELTA: dict[str, Shape] = {
    "attn_qkv.weight": (MIXED, WIDTH),
    "attn_gate.weight": (VALUE_HEADS * VALUE, WIDTH),
    "ssm_conv1d.weight": (MIXED, TAPS),
    "ssm_alpha.weight": (VALUE_HEADS, WIDTH),
    "ssm_beta.weight": (VALUE_HEADS, WIDTH),
    "ssm_a": (VALUE_HEADS,),
    "ssm_dt.bias": (VALUE_HEADS,),
    "ssm_norm.weight": (VALUE,),
    "ssm_out.weight": (WIDTH, VALUE_HEADS * VALUE),
}
DENSE: dict[str, Shape] = {
    "ffn_gate.weight": (96, WIDTH),
    "ffn_up.weight": (96, WIDTH),
    "ffn_down.weight": (WIDTH, 96),
}
MIXTURE: dict[str, Shape] = {
    "ffn_gate_inp.weight": (5, WIDTH),
    "ffn_gate_exps.weight": (5, 32, WIDTH),
    "ffn_up_exps.weight": (5, 32, WIDTH),
    "ffn_down_exps.weight": (5, WIDTH, 32),
    "ffn_gate_inp_shexp.weight": (WIDTH,),  # as llama.cpp's quantiser leaves it: no axis of one
    "ffn_gate_shexp.weight": (64, WIDTH),
    "ffn_up_shexp.weight": (64, WIDTH),
    "ffn_down_shexp.weight": (WIDTH, 64),
}
NORMS: dict[str, Shape] = {"attn_norm.weight": (WIDTH,), "post_attention_norm.weight": (WIDTH,)}
NEXT: dict[str, Shape] = {
    "nextn.eh_proj.weight": (WIDTH, 2 * WIDTH),
    "nextn.enorm.weight": (WIDTH,),
    "nextn.hnorm.weight": (WIDTH,),
}
DENSE_KEYS = {"feed_forward_length": 96}
MIXTURE_KEYS = {
    "expert_count": 5,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
    "expert_shared_feed_forward_length": 64,
}
PARTS = ("gated", "attn_residual", "out")
# The first rows of random weights ask a memory of a few keys for something else, and the norm makes
# a whole answer of what little is found, rounding included: over eight seeds the worst logit of
# eight-bit activations was off by 0.04 to 0.5 of the largest, 0.5 where experts change too. What
# other weights would say is off by more than 1.
ASTRAY = 0.6


def written(
    architecture: str,
    layers: str,
    feed_forward: dict[str, Shape],
    keys: dict[str, object],
    tensors: dict[str, Shape] | None = None,
    predicts: dict[str, Shape] | None = None,
) -> Tiny:
    """A tiny model; `layers` has a letter for each block: d, a delta net, or a, attention."""
    blocks = [
        {**NORMS, **(DELTA if letter == "d" else ATTENTION), **feed_forward} for letter in layers
    ]
    if predicts is not None:
        blocks.append({**NORMS, **ATTENTION, **feed_forward, **NEXT, **predicts})
        keys = {**keys, "nextn_predict_layers": 1}
    geometry = {
        "context_length": 512,
        "embedding_length": WIDTH,
        "block_count": len(blocks),
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e7,
        "rope.dimension_count": 8,
        "ssm.conv_kernel": TAPS,
        "ssm.state_size": KEY,
        "ssm.group_count": KEY_HEADS,
        "ssm.time_step_rank": VALUE_HEADS,
        "ssm.inner_size": VALUE_HEADS * VALUE,
    }
    named = {
        f"blk.{block}.{name}": shape
        for block, each in enumerate(blocks)
        for name, shape in each.items()
    }
    top: dict[str, Shape] = {"token_embd.weight": (VOCAB, WIDTH), "output_norm.weight": (WIDTH,)}
    return Tiny(architecture, {**geometry, **keys}, {**top, **named, **(tensors or {})})


class TestDense(GeneratorSuite):
    """Blocks in an order that no interval gives, and no prediction block."""

    tiny = written("qwen35", "add", DENSE, DENSE_KEYS, {"output.weight": (VOCAB, WIDTH)})
    astray = ASTRAY
    parts = (*PARTS, "ffn_down")


def batch(ids: np.ndarray, start: int) -> Batch:
    """Successive ids of one sequence, which goes on from the only slot unless it begins."""
    count = len(ids)
    keeps = np.full(count, -1, np.int32)
    keeps[-1] = 0
    return Batch(
        ids=ids,
        positions=np.arange(start, start + count, dtype=np.int32),
        sequence=np.zeros(count, np.int32),
        pages=(np.arange(2, dtype=np.int32)[None],),
        outputs=np.arange(count, dtype=np.int32),
        states=np.array([0 if start else -1], np.int32),
        keeps=keeps,
    )


class PredictionSuite(GeneratorSuite):
    """What a prediction block adds: a drafting pass, and nothing to what the trunk says."""

    ids = np.random.default_rng(3).integers(0, 256, 40).astype(np.int32)

    def program(self, model: Generator, weights: Weights, *, drafts: bool = True) -> Program:
        graph = Graph(weights, drafts=drafts)
        graph.result = model.forward(graph)
        pages = [2] * len(graph.windows)
        return compile(graph, "reference", width=40, outputs=40, pages=pages, states=1, kv="f32")

    def test_the_trunk_does_without(self, model, weights):
        """A record without drafts has neither the block's caches nor its state: same logits."""
        whole, plain = Graph(weights), Graph(weights, drafts=False)
        for graph in (whole, plain):
            model.forward(graph)
        assert plain.draft is None
        assert len(whole.caches) == len(plain.caches) + 1
        assert len(whole.states) == len(plain.states) + 1
        logits = [
            self.program(model, weights, drafts=drafts).run(batch(self.ids, 0))
            for drafts in (True, False)
        ]
        np.testing.assert_array_equal(*logits)

    @pytest.mark.parametrize("count", [0, 1, 31, 32, 39])
    def test_a_guess_is_the_same_however_the_text_was_read(self, model, weights, count):
        """In one pass, or token by token with a guess before each."""
        at_once, step_by_step = (self.program(model, weights) for _ in range(2))
        if count:
            at_once.run(batch(self.ids[:count], 0))
        for step in range(count):
            step_by_step.draft(batch(self.ids[step : step + 1], step))
            step_by_step.run(batch(self.ids[step : step + 1], step))
        new = batch(self.ids[count : count + 1], count)
        found = [np.array(program.draft(new)) for program in (at_once, step_by_step)]
        assert found[0].shape == (1, VOCAB)
        # numpy's sums have an order that depends on the rows.
        np.testing.assert_allclose(found[0], found[1], atol=1e-4 * np.abs(found[0]).max())

    @pytest.mark.parametrize("changed", [0, 29, 30])
    def test_every_token_counts_for_a_guess(self, model, weights, changed):
        """The first, the last that was read, and the one that was not."""
        other = self.ids.copy()
        other[changed] += 1 if other[changed] < 255 else -1
        guesses = []
        for ids in (self.ids, other):
            program = self.program(model, weights)
            program.run(batch(ids[:30], 0))
            guesses.append(np.array(program.draft(batch(ids[30:31], 30))))
        assert np.abs(guesses[0] - guesses[1]).max() > 1e-3 * np.abs(guesses[0]).max()

    def test_two_predictions_are_refused(self, tmp_path):
        with pytest.raises(Unsupported, match="nextn_predict_layers is 2; golem runs 0, 1"):
            self.open_tiny(self.tiny.with_key("nextn_predict_layers", 2), tmp_path)


class TestPrediction(PredictionSuite):
    tiny = written(
        "qwen35", "dda", DENSE, DENSE_KEYS, predicts={"nextn.shared_head_norm.weight": (WIDTH,)}
    )
    optional = (*GeneratorSuite.optional, "shared_head_norm")
    astray = ASTRAY
    parts = (*PARTS, "ffn_down")


class TestOwnPrediction(PredictionSuite):
    """A prediction block with an embedding and a head of its own, and a stretched rope."""

    tiny = written(
        "qwen35",
        "da",
        DENSE,
        {
            **DENSE_KEYS,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32,
        },
        predicts={
            "nextn.embed_tokens.weight": (VOCAB, WIDTH),
            "nextn.shared_head_head.weight": (VOCAB, WIDTH),
        },
    )
    optional = (*GeneratorSuite.optional, "embed_tokens", "shared_head_head")
    astray = ASTRAY
    parts = (*PARTS, "ffn_down")


class TestMixture(PredictionSuite):
    tiny = written("qwen35moe", "dda", MIXTURE, MIXTURE_KEYS, {"output.weight": (VOCAB, WIDTH)}, {})
    astray = ASTRAY
    parts = (*PARTS, "ffn_routing", "ffn_experts", "ffn_shexp")
