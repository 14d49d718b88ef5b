"""Two small graphs over seeded weights: a mixture of experts, and a model that carries states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np

from golem_core.graph import Cache, Graph, Rope, Tensor
from golem_core.weights import Weights, open_weights

VOCABULARY, WIDTH, EPS = 97, 64, 1e-6
EXPERTS, USED, FEED = 6, 3, 96
KEY_HEADS, HEADS, KEYS, VALUES, TAPS = 2, 6, 20, 40, 4
HEAD = 32


class _Writer:
    def __init__(self, path: Path, format: str) -> None:
        self.rng = np.random.default_rng(5)
        self.file = gguf.GGUFWriter(path, "tiny")
        self.kind = gguf.GGMLQuantizationType[format]

    def matrix(self, name: str, *shape: int, kind: str | None = None) -> None:
        values = self.rng.standard_normal(shape, dtype=np.float32) / np.sqrt(shape[-1])
        stored = self.kind if kind is None else gguf.GGMLQuantizationType[kind]
        self.file.add_tensor(name, gguf.quants.quantize(values, stored), raw_dtype=stored)

    def vector(self, name: str, size: int, middle: float = 0.0) -> None:
        drawn = middle + 0.3 * self.rng.standard_normal(size)
        self.file.add_tensor(name, drawn.astype(np.float32))

    def close(self) -> None:
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def write_mixture(path: Path, format: str) -> Weights:
    """Weights for `record_mixture`, the experts' in `format`."""
    made = _Writer(path, format)
    made.matrix("token_embd.weight", VOCABULARY, WIDTH, kind="F32")
    for i in range(2):
        made.matrix(f"blk.{i}.ffn_gate_inp.weight", EXPERTS, WIDTH, kind="F32")
        made.matrix(f"blk.{i}.ffn_gate_exps.weight", EXPERTS, FEED, WIDTH)
        made.matrix(f"blk.{i}.ffn_up_exps.weight", EXPERTS, FEED, WIDTH)
        made.matrix(f"blk.{i}.ffn_down_exps.weight", EXPERTS, WIDTH, FEED)
        made.vector(f"blk.{i}.ffn_down_exps.scale", EXPERTS, 1.0)
        made.vector(f"blk.{i}.out_scale.weight", 1, 1.0)
    made.close()
    return open_weights(path)


def record_mixture(weights: Weights) -> Graph:
    """Two mixtures, one that can be fused and one whose gate comes from a slice."""
    g = Graph(weights)
    table = g.weight("token_embd.weight", (VOCABULARY, WIDTH))
    x = g.embed(table)
    for i in range(2):
        with g.scope(f"blk.{i}"):
            h = g.rms_norm(x, None, EPS, name="ffn_norm")
            router = g.weight(f"blk.{i}.ffn_gate_inp.weight", (EXPERTS, WIDTH))
            routing = g.route(g.linear(h, router), USED, name="routing")
            into = (EXPERTS, FEED, WIDTH)
            gate = g.linear_experts(h, routing, g.weight(f"blk.{i}.ffn_gate_exps.weight", into))
            up = g.linear_experts(h, routing, g.weight(f"blk.{i}.ffn_up_exps.weight", into))
            if i:
                up = g.slice(up, 0, FEED, name="up_again")
            act = g.glu(gate, up, "silu", name="act")
            back = g.weight(f"blk.{i}.ffn_down_exps.weight", (EXPERTS, WIDTH, FEED))
            y = g.linear_experts(act, routing, back)
            scales = g.weight(f"blk.{i}.ffn_down_exps.scale", (EXPERTS,)) if i else None
            y = g.combine(y, routing, scales, name="mixture")
            y = g.scale(y, g.weight(f"blk.{i}.out_scale.weight", (1,)))
            x = g.add(x, y, name="out")
    g.result = g.linear(g.pick(x), table, name="logits")
    return g


CHANNELS = 2 * KEY_HEADS * KEYS + HEADS * VALUES


def write_recurrent(path: Path, format: str) -> Weights:
    """Weights for `record_recurrent`, its matrices in `format`."""
    made = _Writer(path, format)
    made.matrix("token_embd.weight", VOCABULARY, WIDTH, kind="F32")
    for i in range(2):
        made.matrix(f"blk.{i}.in.weight", CHANNELS, WIDTH)
        made.matrix(f"blk.{i}.z.weight", HEADS * VALUES, WIDTH)
        made.matrix(f"blk.{i}.beta.weight", HEADS, WIDTH)
        made.matrix(f"blk.{i}.alpha.weight", HEADS, WIDTH)
        made.matrix(f"blk.{i}.conv.weight", CHANNELS, TAPS, kind="F32")
        made.vector(f"blk.{i}.a", HEADS, -0.5)
        made.vector(f"blk.{i}.dt", HEADS)
        made.matrix(f"blk.{i}.back.weight", WIDTH, HEADS * VALUES, kind="F32")
    made.matrix("next.weight", WIDTH, 2 * WIDTH)
    made.matrix("next.qkv.weight", 3 * HEAD, WIDTH)
    made.matrix("next.out.weight", WIDTH, HEAD)
    made.close()
    return open_weights(path)


def record_recurrent(weights: Weights) -> Graph:
    """Two delta nets, and a block that guesses ahead with keys and values of its own."""
    g = Graph(weights)
    table = g.weight("token_embd.weight", (VOCABULARY, WIDTH))
    x = g.embed(table)
    for i in range(2):
        with g.scope(f"blk.{i}"):
            x = g.add(x, _delta_net(g, x, f"blk.{i}"), name="out")
    state = g.state((WIDTH,))
    cache = g.cache(1, HEAD)
    _ahead(g, g.embed(table, name="again"), g.previous(x, state, name="before"), cache)
    g.result = g.linear(g.pick(x), table, name="logits")
    with g.drafting():
        h, q = _ahead(g, g.embed(table, name="again"), g.recall(state, name="before"), cache)
        seen = g.attend(q, None, None, cache, HEAD**-0.5, name="attend")
        out = g.weight("next.out.weight", (WIDTH, HEAD))
        y = g.add(h, g.linear(seen, out))
        g.pass_on(y, state)
        g.draft = g.linear(y, table, name="logits")
    return g


def _ahead(g: Graph, x: Tensor, h: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
    both = g.linear(g.concat(x, h, name="beside"), g.weight("next.weight", (WIDTH, 2 * WIDTH)))
    y = g.linear(both, g.weight("next.qkv.weight", (3 * HEAD, WIDTH)))
    q, k, v = (g.heads(g.slice(y, HEAD * i, HEAD * (i + 1)), HEAD) for i in range(3))
    k = g.rope(k, Rope(HEAD, 100.0, magnitude=1.1), name="ahead_k")
    g.store(k, v, cache)
    return both, g.rope(q, Rope(HEAD, 100.0, magnitude=1.1), name="ahead_q")


def _delta_net(g: Graph, x: Tensor, block: str) -> Tensor:
    def w(name: str, *shape: int):
        return g.weight(f"{block}.{name}", shape)

    h = g.rms_norm(x, None, EPS, name="norm")
    mixed = g.linear(h, w("in.weight", CHANNELS, WIDTH))
    mixed = g.conv(mixed, w("conv.weight", CHANNELS, TAPS), g.state((TAPS - 1, CHANNELS)))
    mixed = g.activate(mixed, "silu", name="conv_silu")
    size = KEY_HEADS * KEYS
    q = g.l2_norm(g.heads(g.slice(mixed, 0, size), KEYS), EPS, name="q")
    k = g.l2_norm(g.heads(g.slice(mixed, size, 2 * size), KEYS), EPS, name="k")
    v = g.heads(g.slice(mixed, 2 * size, CHANNELS, name="v"), VALUES)
    beta = g.activate(g.linear(h, w("beta.weight", HEADS, WIDTH)), "sigmoid", name="beta_sigmoid")
    alpha = g.linear(h, w("alpha.weight", HEADS, WIDTH))
    decay = g.decay(alpha, w("a", HEADS), w("dt", HEADS), name="decay")
    y = g.delta(q, k, v, decay, beta, g.state((HEADS, KEYS, VALUES)), name="delta")
    z = g.linear(h, w("z.weight", HEADS * VALUES, WIDTH))
    y = g.reshape(g.rms_norm(y, None, EPS, name="y_norm"), (HEADS * VALUES,))
    y = g.glu(z, y, "sigmoid", name="gated")
    if block == "blk.1":
        y = g.glu(g.slice(z, 3, 4, name="single"), y, "sigmoid", name="gated_again")
    return g.linear(y, w("back.weight", WIDTH, HEADS * VALUES))


def cut(rows: Sequence[int], pieces: Sequence[int]) -> list[list[int]]:
    """The rows in pieces of these lengths, and what is left."""
    found, at = [], 0
    for length in (*pieces, len(rows)):
        if at < len(rows):
            found.append(list(rows[at : at + length]))
            at += length
    return found
