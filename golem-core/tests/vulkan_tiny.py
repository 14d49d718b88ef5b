"""A tiny llama with seeded weights, and passes over it, for the tests of the Vulkan backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import pytest

from golem_core.errors import DeviceError
from golem_core.graph import Batch, Graph, Program, Rope, Tensor
from golem_core.vulkan import memory
from golem_core.weights import Weights

VOCABULARY, WIDE, HEADS, KV_HEADS, DIM, FEED, LAYERS = 96, 64, 4, 2, 16, 96, 2


def missing() -> str | None:
    """Why nothing can run on Vulkan here, or None."""
    try:
        memory.Device(0).close()
    except DeviceError as error:
        return str(error)
    return None


MISSING = missing()


def on_device(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs a device, and skips it, saying why, where there is none."""
    skip = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
    marked: Callable[..., None] = pytest.mark.vulkan(skip(test))
    return marked


@dataclass(frozen=True)
class Tiny:
    """A llama of two layers with seeded weights in one format, and how it is run."""

    weights: Weights

    def graph(self, window: int | None = None, softcap: float = 0.0) -> Graph:
        """The forward pass of a llama, with the embedding as the output matrix too."""
        g = Graph(self.weights)
        table = g.weight("token_embd.weight", (VOCABULARY, WIDE))
        rope = Rope(DIM, 10000.0, "pairs")
        x = g.embed(table)
        for layer in range(LAYERS):
            with g.scope(f"blk.{layer}"):
                x = self._block(g, f"blk.{layer}", x, rope, window, softcap)
        x = g.pick(g.rms_norm(x, g.weight("output_norm.weight", (WIDE,)), 1e-5))
        g.result = g.linear(x, table, name="logits")
        return g

    @staticmethod
    def _block(
        g: Graph, at: str, x: Tensor, rope: Rope, window: int | None, softcap: float
    ) -> Tensor:
        def matrix(name: str, rows: int, columns: int, x: Tensor) -> Tensor:
            return g.linear(x, g.weight(f"{at}.{name}.weight", (rows, columns)))

        h = g.rms_norm(x, g.weight(f"{at}.attn_norm.weight", (WIDE,)), 1e-5)
        q = g.rope(g.heads(matrix("attn_q", HEADS * DIM, WIDE, h), DIM), rope, name="q_rope")
        k = g.rope(g.heads(matrix("attn_k", KV_HEADS * DIM, WIDE, h), DIM), rope, name="k_rope")
        v = g.heads(matrix("attn_v", KV_HEADS * DIM, WIDE, h), DIM)
        cache = g.cache(KV_HEADS, DIM, window)
        a = g.attend(q, k, v, cache, DIM**-0.5, softcap, name="attend")
        x = g.add(x, matrix("attn_output", WIDE, HEADS * DIM, a), name="attn_residual")
        h = g.rms_norm(x, g.weight(f"{at}.ffn_norm.weight", (WIDE,)), 1e-5)
        gate, up = matrix("ffn_gate", FEED, WIDE, h), matrix("ffn_up", FEED, WIDE, h)
        down = matrix("ffn_down", WIDE, FEED, g.glu(gate, up, "silu", name="ffn_act"))
        return g.add(x, down, name="out")


def write(path: Path, tensors: dict[str, np.ndarray], kind: str) -> Path:
    """A GGUF file with the tensors' matrices in format `kind` and their vectors in F32."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    for name, values in tensors.items():
        number = gguf.GGMLQuantizationType[kind if values.ndim == 2 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(values, number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(0, 1.5 / np.sqrt(shape[-1]), shape).astype(np.float32)

    made = {"token_embd.weight": normal(VOCABULARY, WIDE), "output_norm.weight": 1 + normal(WIDE)}
    for layer in range(LAYERS):
        shapes = {
            "attn_norm": (WIDE,),
            "attn_q": (HEADS * DIM, WIDE),
            "attn_k": (KV_HEADS * DIM, WIDE),
            "attn_v": (KV_HEADS * DIM, WIDE),
            "attn_output": (WIDE, HEADS * DIM),
            "ffn_norm": (WIDE,),
            "ffn_gate": (FEED, WIDE),
            "ffn_up": (FEED, WIDE),
            "ffn_down": (WIDE, FEED),
        }
        for name, shape in shapes.items():
            made[f"blk.{layer}.{name}.weight"] = normal(*shape)
    made["bias"] = np.linspace(-3, 3, FEED, dtype=np.float32)
    made["factors"] = np.linspace(1, 9, DIM // 2, dtype=np.float32)
    return made


def batch(
    parts: Sequence[tuple[Sequence[int], int, Sequence[int]]],
    outputs: Sequence[int],
    groups: int = 1,
) -> Batch:
    """A pass of sequences, each (ids, first position, pages)."""
    longest = max(len(pages) for _, _, pages in parts)
    table = np.full((len(parts), longest), -1, np.int32)
    for row, (_, _, pages) in enumerate(parts):
        table[row, : len(pages)] = pages
    return Batch(
        ids=np.concatenate([np.asarray(ids, np.int32) for ids, _, _ in parts]),
        positions=np.concatenate(
            [np.arange(first, first + len(ids), dtype=np.int32) for ids, first, _ in parts]
        ),
        sequence=np.repeat(np.arange(len(parts), dtype=np.int32), [len(p[0]) for p in parts]),
        pages=(table,) * groups,
        outputs=np.asarray(outputs, np.int32),
    )


def read(
    made: Program, ids: Sequence[int], pages: Sequence[int], pieces: int, start: int = 0
) -> np.ndarray:
    """The logits after each of `ids`, from position `start`, `pieces` at a time."""
    rows = []
    for at in range(0, len(ids), pieces):
        part = ids[at : at + pieces]
        rows.append(made.run(batch([(part, start + at, pages)], range(len(part)))))
    return np.concatenate(rows)


def close(found: np.ndarray, expected: np.ndarray, within: float, what: str = "") -> None:
    """Compares relative to the largest magnitude."""
    assert found.shape == expected.shape, what
    worst = np.abs(found - expected).max(initial=0.0)
    assert worst <= within * np.abs(expected).max(initial=1e-30), f"{what}: {worst}"
