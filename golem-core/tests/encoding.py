"""A small graph of an encoder over seeded weights: tables by place and kind, attention in texts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from golem_core.graph import Buckets, Graph
from golem_core.weights import Weights, open_weights

VOCABULARY, PLACES, KINDS = 50, 200, 3
HEADS, KV_HEADS = 6, 2


def write_encoder(path: Path, dim: int) -> Weights:
    """Weights for `record_encoder`."""
    rng = np.random.default_rng(dim)
    file = gguf.GGUFWriter(path, "tiny")
    width = HEADS * dim
    for name, rows in (("tokens", VOCABULARY), ("places", PLACES), ("kinds", KINDS)):
        file.add_tensor(f"{name}.weight", rng.standard_normal((rows, width), dtype=np.float32))
    file.add_tensor("bias.weight", rng.standard_normal((32, HEADS), dtype=np.float32))
    file.add_tensor("norm.weight", rng.standard_normal(width, dtype=np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return open_weights(path)


def record_encoder(weights: Weights, dim: int, mean: bool, **options: Any) -> Graph:
    """One attention, with the `options` of `Graph.attend_within`, and `biased`."""
    g = Graph(weights)
    width = HEADS * dim
    x = g.embed(g.weight("tokens.weight", (VOCABULARY, width)))
    x = g.add(x, g.embed(g.weight("places.weight", (PLACES, width)), by="positions", first=2))
    x = g.add(x, g.embed(g.weight("kinds.weight", (KINDS, width)), by="kinds", first=1))
    x = g.add(x, g.embed(g.weight("kinds.weight", (KINDS, width)), name="same", by=""))
    x = g.layer_norm(x, g.weight("norm.weight", (width,)), None, 1e-5)
    k = g.heads(g.slice(x, 0, KV_HEADS * dim), dim)
    v = g.heads(g.slice(x, width - KV_HEADS * dim, width), dim)
    if options.pop("biased", False):
        bias = g.weight("bias.weight", (32, HEADS))
        options.update(bias=bias, buckets=Buckets(32, 128))
    x = g.attend_within(g.heads(x, dim), k, v, 1 / math.sqrt(dim), name="attend", **options)
    g.result = g.pool(x, name="pooled") if mean else g.pick(x, name="picked")
    return g
