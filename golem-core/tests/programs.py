"""A small graph with every operation, over seeded weights of any format, for the tests."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from golem_core.graph import Batch, Graph, Rope, Tensor
from golem_core.weights import Weights, open_weights

VOCABULARY, WIDTH, FEED, HEADS, KV_HEADS, DIM, WINDOW = 211, 256, 512, 8, 4, 32, 40
BLOCKS = 4
EPS = 1e-5


def write(path: Path, format: str = "F32", seed: int = 1, vocabulary: int = VOCABULARY) -> Weights:
    """A file of seeded weights whose matrices are of `format`, opened."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "tiny")
    kind = gguf.GGMLQuantizationType[format]

    def matrix(name: str, rows: int, cols: int) -> None:
        values = rng.standard_normal((rows, cols), dtype=np.float32) / np.sqrt(cols)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def vector(name: str, size: int, middle: float) -> None:
        writer.add_tensor(name, (middle + 0.1 * rng.standard_normal(size)).astype(np.float32))

    matrix("token_embd.weight", vocabulary, WIDTH)
    vector("output_norm.weight", WIDTH, 1.0)
    vector("rope_freqs.weight", DIM // 2, 1.5)
    for i in range(BLOCKS):
        vector(f"blk.{i}.attn_norm.weight", WIDTH, 1.0)
        matrix(f"blk.{i}.attn_q.weight", HEADS * DIM, WIDTH)
        matrix(f"blk.{i}.attn_k.weight", KV_HEADS * DIM, WIDTH)
        matrix(f"blk.{i}.attn_v.weight", KV_HEADS * DIM, WIDTH)
        vector(f"blk.{i}.attn_q.bias", HEADS * DIM, 0.0)
        vector(f"blk.{i}.attn_q_norm.weight", DIM, 1.0)
        matrix(f"blk.{i}.attn_output.weight", WIDTH, HEADS * DIM)
        vector(f"blk.{i}.ffn_norm.weight", WIDTH, 1.0)
        matrix(f"blk.{i}.ffn_gate.weight", FEED, WIDTH)
        matrix(f"blk.{i}.ffn_up.weight", FEED, WIDTH)
        matrix(f"blk.{i}.ffn_down.weight", WIDTH, FEED)
        vector(f"blk.{i}.ffn_post_norm.weight", WIDTH, 1.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return open_weights(path)


def record(weights: Weights, vocabulary: int = VOCABULARY) -> Graph:
    """Blocks that take turns in window, rope layout, activation and norm places."""
    g = Graph(weights)
    embedding = g.weight("token_embd.weight", (vocabulary, WIDTH))
    x = g.scale(g.embed(embedding), WIDTH**0.5 * 0.5, name="scaled")
    ropes = [
        Rope(DIM, 10000.0, "half", factors=g.weight("rope_freqs.weight", (DIM // 2,))),
        Rope(DIM - 8, 500.0, "pairs", scale=0.5),
    ]
    for i in range(BLOCKS):
        with g.scope(f"blk.{i}"):
            x = _block(g, x, i, ropes[i % 2])
    x = g.rms_norm(g.pick(x), g.weight("output_norm.weight", (WIDTH,)), EPS)
    g.result = g.softcap(g.linear(x, embedding, name="head"), 30.0, name="logits")
    return g


def _block(g: Graph, x: Tensor, i: int, rope: Rope) -> Tensor:
    def w(name: str, *shape: int):
        return g.weight(f"blk.{i}.{name}", shape)

    h = g.rms_norm(x, w("attn_norm.weight", WIDTH), EPS)
    bias = w("attn_q.bias", HEADS * DIM) if i % 2 else None
    q = g.heads(g.linear(h, w("attn_q.weight", HEADS * DIM, WIDTH), bias), DIM)
    k = g.heads(g.linear(h, w("attn_k.weight", KV_HEADS * DIM, WIDTH)), DIM)
    v = g.heads(g.linear(h, w("attn_v.weight", KV_HEADS * DIM, WIDTH)), DIM)
    q = g.rms_norm(q, w("attn_q_norm.weight", DIM), EPS)
    if i % 2 == 0:
        k = g.rms_norm(k, None, EPS, name="k_unit")
    cache = g.cache(KV_HEADS, DIM, window=WINDOW if i < 2 else None)
    out = g.attend(
        g.rope(q, rope, name="q_rope"),
        g.rope(k, rope, name="k_rope"),
        v,
        cache,
        scale=DIM**-0.5,
        softcap=20.0 if i == 1 else 0.0,
        name="attend",
    )
    y = g.linear(out, w("attn_output.weight", WIDTH, HEADS * DIM))
    x = g.add(x, y, name="attn_residual")
    h = g.rms_norm(x, w("ffn_norm.weight", WIDTH), EPS)
    gate = g.linear(h, w("ffn_gate.weight", FEED, WIDTH))
    up = g.linear(h, w("ffn_up.weight", FEED, WIDTH))
    if i == 3:
        gate = g.mul(gate, up, name="gate_up")  # not the shape of a GLU: nothing to fuse
    act = g.glu(gate, up, ("silu", "gelu_tanh", "gelu_erf")[i % 3], name="ffn_act")
    y = g.linear(act, w("ffn_down.weight", WIDTH, FEED))
    if i % 2:
        y = g.rms_norm(y, w("ffn_post_norm.weight", WIDTH), EPS)
    return g.add(y, x, name="out")


def batch(
    spans: list[tuple[list[int], int, list[int]]], groups: int = 2, last_only: bool = False
) -> Batch:
    """Columns of several sequences: for each (ids, first position, its pages)."""
    ids, positions, sequence, outputs = [], [], [], []
    for index, (tokens, start, _pages) in enumerate(spans):
        ids += tokens
        positions += range(start, start + len(tokens))
        sequence += [index] * len(tokens)
        outputs += [len(ids) - 1] if last_only else range(len(ids) - len(tokens), len(ids))
    longest = max(len(pages) for _, _, pages in spans)
    table = np.full((len(spans), longest), -1, np.int32)
    for index, (_, _, pages) in enumerate(spans):
        table[index, : len(pages)] = pages
    return Batch(
        np.array(ids, np.int32),
        np.array(positions, np.int32),
        np.array(sequence, np.int32),
        tuple(table.copy() for _ in range(groups)),
        np.array(outputs, np.int32),
    )
