"""Tiny Qwen3 models, dense and mixed: norms of each head's query and key, experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import gguf

from ref.drawn import Tiny, Yarn, experts, matrix, vector
from ref.quantise import Floats


@dataclass(frozen=True)
class Qwen3(Tiny):
    """Qwen3; with `experts` the feed-forward is a mixture, of which `used` are asked."""

    experts: int = 0
    used: int = 0
    expert_ffn: int = 0
    router_gain: float = 1.5


MODELS = (
    Qwen3("qwen3-tied", "qwen3", 64, 4, 2, 24, 96, 2, 320, True, 31, theta=1e6),
    Qwen3(
        "qwen3-yarn", "qwen3", 72, 3, 1, 32, 100, 2, 331, False, 32, theta=1e6,
        scaling=Yarn(4.0, 16), context=64,
    ),
    Qwen3(
        "qwen3moe", "qwen3moe", 64, 4, 2, 16, 96, 2, 320, False, 33, theta=1e6,
        experts=6, used=3, expert_ffn=40,
    ),
    Qwen3("qwen3-wide", "qwen3", 256, 4, 2, 64, 512, 3, 320, True, 34, theta=1e6),
    # A router so decided that the last of the chosen hardly counts: where rounding puts another
    # in its place, that costs little, and the distance is the engines' own.
    Qwen3(
        "qwen3moe-wide", "qwen3moe", 256, 4, 2, 64, 512, 3, 320, False, 35, theta=1e6,
        experts=8, used=4, expert_ffn=256, router_gain=4.0,
    ),
)  # fmt: skip


def tensors(tiny: Tiny) -> Iterator[tuple[str, Floats]]:
    """The model's tensors under their names in the file, matrices [rows(out), columns(in)]."""
    assert isinstance(tiny, Qwen3)
    q, kv = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    yield matrix(tiny, "token_embd.weight", tiny.vocab, tiny.hidden, 1.0 if tiny.tied else 4.0)
    for layer in range(tiny.layers):
        at = f"blk.{layer}."
        yield vector(tiny, at + "attn_norm.weight", tiny.hidden)
        yield matrix(tiny, at + "attn_q.weight", q, tiny.hidden)
        yield matrix(tiny, at + "attn_k.weight", kv, tiny.hidden)
        yield matrix(tiny, at + "attn_v.weight", kv, tiny.hidden)
        # Around 1.5, so that attention picks rather than averages.
        yield vector(tiny, at + "attn_q_norm.weight", tiny.head_dim, 1.5)
        yield vector(tiny, at + "attn_k_norm.weight", tiny.head_dim, 1.5)
        yield matrix(tiny, at + "attn_output.weight", tiny.hidden, q)
        yield vector(tiny, at + "ffn_norm.weight", tiny.hidden)
        if tiny.experts:
            yield from mixture(tiny, at)
        else:
            yield matrix(tiny, at + "ffn_gate.weight", tiny.ffn, tiny.hidden)
            yield matrix(tiny, at + "ffn_up.weight", tiny.ffn, tiny.hidden)
            yield matrix(tiny, at + "ffn_down.weight", tiny.hidden, tiny.ffn)
    yield vector(tiny, "output_norm.weight", tiny.hidden)
    if not tiny.tied:
        yield matrix(tiny, "output.weight", tiny.vocab, tiny.hidden, 2.0)


def mixture(tiny: Qwen3, at: str) -> Iterator[tuple[str, Floats]]:
    """The router and the experts of the block `at`."""
    count, ffn = tiny.experts, tiny.expert_ffn
    yield matrix(tiny, at + "ffn_gate_inp.weight", count, tiny.hidden, tiny.router_gain)
    yield experts(tiny, at + "ffn_gate_exps.weight", count, ffn, tiny.hidden)
    yield experts(tiny, at + "ffn_up_exps.weight", count, ffn, tiny.hidden)
    yield experts(tiny, at + "ffn_down_exps.weight", count, tiny.hidden, ffn)


def keys(writer: gguf.GGUFWriter, tiny: Tiny) -> None:
    """Adds the keys that the plain decoder has not."""
    assert isinstance(tiny, Qwen3)
    if tiny.experts:
        writer.add_expert_count(tiny.experts)
        writer.add_expert_used_count(tiny.used)
        writer.add_expert_feed_forward_length(tiny.expert_ffn)
