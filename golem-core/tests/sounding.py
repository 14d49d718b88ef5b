"""A small graph of sound over seeded weights: inputs, layer norms, rows at several rates."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from golem_core.graph import Graph, Rope
from golem_core.graph.record import PICKED, Weight
from golem_core.weights import Weights, open_weights

WIDTH, HEAD, EPS = 24, 8, 1e-5
UP, DOWN = 5, 5
INNER, TAPS = 7, 3  # channels of the fast rows, an odd number of them


def write_sounding(path: Path, format: str) -> Weights:
    """Weights for `record_sounding`, matrices in F32 or F16."""
    rng = np.random.default_rng(7)
    file = gguf.GGUFWriter(path, "tiny")
    kind = gguf.GGMLQuantizationType[format]

    def matrix(name: str, outputs: int, inputs: int) -> None:
        values = rng.standard_normal((outputs, inputs), dtype=np.float32) / np.sqrt(inputs)
        file.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
        file.add_tensor(f"{name}.bias", 0.3 * rng.standard_normal(outputs).astype(np.float32))

    for name in ("q", "k", "v", "last"):
        matrix(name, WIDTH, WIDTH)
    for name in ("norm", "norm2"):
        file.add_tensor(f"{name}.weight", 1 + 0.3 * rng.standard_normal(WIDTH).astype(np.float32))
        file.add_tensor(f"{name}.bias", 0.3 * rng.standard_normal(WIDTH).astype(np.float32))
    matrix("wide", WIDTH, 7 * WIDTH)
    matrix("rise", UP * INNER, 2 * WIDTH)
    matrix("inside", INNER, TAPS * INNER)
    matrix("point", INNER, INNER)
    matrix("fall", WIDTH, 2 * DOWN * INNER)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return open_weights(path)


def record_sounding(weights: Weights) -> Graph:
    """A layer, a long convolution, a rise, a residual block between, a fall."""
    g = Graph(weights)

    def named(name: str, outputs: int, inputs: int) -> tuple[Weight, Weight]:
        return g.weight(f"{name}.weight", (outputs, inputs)), g.weight(f"{name}.bias", (outputs,))

    x = g.input("steps", (WIDTH,))
    h = g.layer_norm(x, g.weight("norm.weight", (WIDTH,)), g.weight("norm.bias", (WIDTH,)), EPS)
    rope = Rope(HEAD, 10000.0, "pairs")
    q, k, v = (g.heads(g.linear(h, *named(n, WIDTH, WIDTH), name=n), HEAD) for n in "qkv")
    q, k = g.rope(q, rope, name="q_rope"), g.rope(k, rope, name="k_rope")
    x = g.add(x, g.attend(q, k, v, g.cache(WIDTH // HEAD, HEAD, 40), HEAD**-0.5, name="attend"))
    x = g.convolve(x, *named("wide", WIDTH, 7 * WIDTH), g.state((6, WIDTH)), name="wide")
    x = g.convolve(
        g.activate(x, "elu", name="before_rise"), *named("rise", UP * INNER, 2 * WIDTH),
        g.state((1, WIDTH)), name="rise",
    )  # fmt: skip
    x = g.split(x, UP, name="fast")
    h = g.convolve(
        g.activate(x, "elu"), *named("inside", INNER, TAPS * INNER),
        g.state((TAPS - 1, INNER)), name="inside",
    )  # fmt: skip
    h = g.linear(g.activate(h, "elu", name="inside_act"), *named("point", INNER, INNER))
    x = g.add(h, x, name="block")
    x = g.activate(g.join(x, DOWN, name="slow"), "elu", name="before_fall")
    x = g.convolve(
        x, *named("fall", WIDTH, 2 * DOWN * INNER), g.state((1, DOWN * INNER)), name="fall"
    )
    x = g.layer_norm(g.pick(x), None, None, EPS, name="plain_norm")
    x = g.add(x, g.input("noise", (WIDTH,), rows=PICKED), name="noisy")
    x = g.layer_norm(x, g.weight("norm2.weight", (WIDTH,)), g.weight("norm2.bias", (WIDTH,)), EPS)
    x = g.activate(g.linear(x, *named("last", WIDTH, WIDTH), name="last"), "gelu_tanh")
    g.result = g.mul(x, x, name="result")
    return g
