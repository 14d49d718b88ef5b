"""Tiny Qwen3.5 models: gated delta nets, gated attention, a prediction block; dense and mixed.

Everything is drawn as the file has it: norms that multiply by themselves (transformers stores them
less 1), value heads in tiled order (head h reads key head h modulo the key heads; in transformers
those of one key head stand together), `ssm_a` negative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import gguf
import numpy as np
from numpy.typing import NDArray

from ref.drawn import Tiny, experts, matrix, normal, vector
from ref.quantise import Floats

EVERY = 4  # each fourth layer is attention


@dataclass(frozen=True)
class Qwen35(Tiny):
    """Qwen3.5; with `experts` the feed-forward is a mixture beside a gated shared expert.

    `predicts` adds the prediction block behind the layers.
    """

    key_heads: int = 2
    value_heads: int = 4
    key_dim: int = 16
    value_dim: int = 16
    taps: int = 4
    rope_dims: int = 8
    sections: tuple[int, ...] = (2, 1, 1)  # axes of a picture's positions; text has one
    predicts: bool = False
    experts: int = 0
    used: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    router_gain: float = 1.5

    @property
    def blocks(self) -> int:
        """The layers, and the prediction block."""
        return self.layers + int(self.predicts)

    def attends(self, block: int) -> bool:
        """Whether a block is attention and not a delta net: each fourth, and the prediction's."""
        return block >= self.layers or (block + 1) % EVERY == 0

    def grouped(self, each: int) -> NDArray[np.int64]:
        """For each of the file's value rows, `each` a head, where transformers has that row."""
        repeats = self.value_heads // self.key_heads
        rows = np.arange(self.value_heads * each).reshape(self.key_heads, repeats, each)
        order: NDArray[np.int64] = rows.swapaxes(0, 1).reshape(-1)
        return order


MODELS = (
    Qwen35(
        "qwen35-mtp", "qwen35", 64, 4, 2, 16, 96, 4, 320, True, 41, theta=1e7, predicts=True,
    ),
    Qwen35(
        "qwen35-odd", "qwen35", 72, 3, 1, 24, 100, 4, 331, False, 42, theta=1e7,
        key_heads=2, value_heads=6, key_dim=12, value_dim=16, taps=3, rope_dims=12,
        sections=(2, 2, 2),
    ),
    Qwen35(
        "qwen35moe", "qwen35moe", 64, 4, 2, 16, 0, 4, 320, False, 43, theta=1e7, predicts=True,
        key_heads=2, value_heads=2, experts=6, used=3, expert_ffn=40, shared_ffn=56,
    ),
    Qwen35(
        "qwen35-wide", "qwen35", 256, 4, 2, 64, 512, 4, 320, True, 44, theta=1e7,
        key_dim=64, value_dim=64, rope_dims=16, sections=(3, 3, 2),
    ),
    # Its router is as decided as that of qwen3moe-wide, and for the same reason. In Q8_0 the
    # distances of golem and of llama.cpp have still a ratio of 0.88 to 1.10 by the seed, 1.00 in
    # the mean of eight; this seed is in the middle.
    Qwen35(
        "qwen35moe-wide", "qwen35moe", 256, 4, 2, 64, 0, 4, 320, False, 51, theta=1e7,
        key_dim=64, value_dim=64, rope_dims=16, sections=(3, 3, 2),
        experts=8, used=4, expert_ffn=256, shared_ffn=256, router_gain=4.0,
    ),
)  # fmt: skip


def tensors(tiny: Tiny) -> Iterator[tuple[str, Floats]]:
    """The model's tensors under their names in the file, matrices [rows(out), columns(in)]."""
    assert isinstance(tiny, Qwen35)
    yield matrix(tiny, "token_embd.weight", tiny.vocab, tiny.hidden, 1.0 if tiny.tied else 4.0)
    for block in range(tiny.blocks):
        at = f"blk.{block}."
        yield vector(tiny, at + "attn_norm.weight", tiny.hidden)
        yield from attention(tiny, at) if tiny.attends(block) else delta_net(tiny, at)
        yield vector(tiny, at + "post_attention_norm.weight", tiny.hidden)
        yield from feed_forward(tiny, at)
    yield vector(tiny, "output_norm.weight", tiny.hidden)
    if not tiny.tied:
        yield matrix(tiny, "output.weight", tiny.vocab, tiny.hidden, 2.0)
    if tiny.predicts:
        at = f"blk.{tiny.layers}.nextn."
        yield matrix(tiny, at + "eh_proj.weight", tiny.hidden, 2 * tiny.hidden)
        yield vector(tiny, at + "enorm.weight", tiny.hidden)
        yield vector(tiny, at + "hnorm.weight", tiny.hidden)
        yield vector(tiny, at + "shared_head_norm.weight", tiny.hidden)


def attention(tiny: Qwen35, at: str) -> Iterator[tuple[str, Floats]]:
    """Gated attention: of each head the query, then its gate."""
    q, kv = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    yield matrix(tiny, at + "attn_q.weight", 2 * q, tiny.hidden)
    yield matrix(tiny, at + "attn_k.weight", kv, tiny.hidden)
    yield matrix(tiny, at + "attn_v.weight", kv, tiny.hidden)
    yield vector(tiny, at + "attn_q_norm.weight", tiny.head_dim, 1.5)
    yield vector(tiny, at + "attn_k_norm.weight", tiny.head_dim, 1.5)
    yield matrix(tiny, at + "attn_output.weight", tiny.hidden, q)


def delta_net(tiny: Qwen35, at: str) -> Iterator[tuple[str, Floats]]:
    """A gated delta net: queries, keys and values in one matrix, and one row of taps for each."""
    values = tiny.value_heads * tiny.value_dim
    mixed = 2 * tiny.key_heads * tiny.key_dim + values
    yield matrix(tiny, at + "attn_qkv.weight", mixed, tiny.hidden)
    yield matrix(tiny, at + "attn_gate.weight", values, tiny.hidden)
    yield matrix(tiny, at + "ssm_conv1d.weight", mixed, tiny.taps, 2.0)
    yield matrix(tiny, at + "ssm_alpha.weight", tiny.value_heads, tiny.hidden)
    yield matrix(tiny, at + "ssm_beta.weight", tiny.value_heads, tiny.hidden)
    # From about -1 to -1/16: what the heads keep fades within one position or within many.
    drawn = normal((tiny.value_heads,), tiny.seed, at + "ssm_a")
    yield at + "ssm_a", -np.exp2(np.rint(drawn * 8) / 8 - 2).astype(np.float32)
    yield vector(tiny, at + "ssm_dt.bias", tiny.value_heads, 0.0)
    yield vector(tiny, at + "ssm_norm.weight", tiny.value_dim)
    yield matrix(tiny, at + "ssm_out.weight", tiny.hidden, values)


def feed_forward(tiny: Qwen35, at: str) -> Iterator[tuple[str, Floats]]:
    """SwiGLU, or the router, the experts and the shared expert with its gate."""
    if not tiny.experts:
        yield matrix(tiny, at + "ffn_gate.weight", tiny.ffn, tiny.hidden)
        yield matrix(tiny, at + "ffn_up.weight", tiny.ffn, tiny.hidden)
        yield matrix(tiny, at + "ffn_down.weight", tiny.hidden, tiny.ffn)
        return
    count, ffn, shared = tiny.experts, tiny.expert_ffn, tiny.shared_ffn
    yield matrix(tiny, at + "ffn_gate_inp.weight", count, tiny.hidden, tiny.router_gain)
    yield experts(tiny, at + "ffn_gate_exps.weight", count, ffn, tiny.hidden)
    yield experts(tiny, at + "ffn_up_exps.weight", count, ffn, tiny.hidden)
    yield experts(tiny, at + "ffn_down_exps.weight", count, tiny.hidden, ffn)
    yield matrix(tiny, at + "ffn_gate_inp_shexp.weight", 1, tiny.hidden)
    yield matrix(tiny, at + "ffn_gate_shexp.weight", shared, tiny.hidden)
    yield matrix(tiny, at + "ffn_up_shexp.weight", shared, tiny.hidden)
    yield matrix(tiny, at + "ffn_down_shexp.weight", tiny.hidden, shared)


def keys(writer: gguf.GGUFWriter, tiny: Tiny) -> None:
    """Adds the keys that the plain decoder has not."""
    assert isinstance(tiny, Qwen35)
    writer.add_rope_dimension_count(tiny.rope_dims)
    writer.add_rope_dimension_sections([*tiny.sections, 0])
    writer.add_ssm_conv_kernel(tiny.taps)
    writer.add_ssm_state_size(tiny.key_dim)
    writer.add_ssm_group_count(tiny.key_heads)
    writer.add_ssm_time_step_rank(tiny.value_heads)
    writer.add_ssm_inner_size(tiny.value_heads * tiny.value_dim)
    family = tiny.family
    writer.add_uint32(f"{family}.full_attention_interval", EVERY)
    recurrent = [not tiny.attends(block) for block in range(tiny.blocks)]
    writer.add_array(f"{family}.attention.recurrent_layers", recurrent)
    if tiny.predicts:
        writer.add_uint32(f"{family}.nextn_predict_layers", 1)
    if tiny.experts:
        writer.add_expert_count(tiny.experts)
        writer.add_expert_used_count(tiny.used)
        writer.add_expert_feed_forward_length(tiny.expert_ffn)
        writer.add_expert_shared_feed_forward_length(tiny.shared_ffn)
