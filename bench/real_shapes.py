"""Writes a file in the shape of a published checkpoint, with drawn numbers in place of its weights.

    python -m bench.real_shapes NAME OUT.gguf --vocabularies FOLDER [--mixture Q4_K_M]
                                [--layers N]
    python -m bench.real_shapes --list

Memory and speed depend on shapes and formats, not on what was learned. The tokens are the family's
own, from the vocabulary files of llama.cpp in FOLDER (`tests/fetch_vocabularies.py` fetches them).
Every matrix is cut from one drawn block of its width, so a file of 15 GiB is written as fast as the
disk takes it; its logits are finite and mean nothing. `--layers` writes the first layers only, for
a machine that has no room or time for all of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from bench.shapes import MIXTURES, SHAPES, Shape, mixed, shortened
from ref.quantise import quantise

from golem_core.weights import Weights, open_weights

POOL = 2**21  # elements drawn for each width and format


class _Pool:
    """Rows of drawn numbers by width and format, repeated from another place for each tensor."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(7)
        self._rows: dict[tuple[int, str], np.ndarray] = {}

    def rows(self, shape: tuple[int, ...], format: str) -> np.ndarray:
        """Bytes [rows, bytes a row] of a matrix of `shape`, of variance 1 / width."""
        width, count = shape[-1], int(np.prod(shape[:-1]))
        if (width, format) not in self._rows:
            drawn = self._rng.standard_normal((max(1, POOL // width), width), dtype=np.float32)
            made = quantise(drawn / np.sqrt(width).astype(np.float32), format)
            self._rows[width, format] = made.reshape(len(drawn), -1)
        pool = self._rows[width, format]
        first = int(self._rng.integers(len(pool)))
        return np.resize(np.roll(pool, first, axis=0), (count, pool.shape[1]))


def vector(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """What a tensor in F32 that is no matrix holds, so that a pass stays finite."""
    size = int(np.prod(shape))
    if name == "rope_freqs.weight":  # a quarter of the pairs turns
        return np.where(np.arange(size) < size // 4, 1.0, 1e30).astype(np.float32)
    if name.endswith("ssm_a"):
        return -np.exp(np.linspace(-0.5, 2, size)).astype(np.float32)
    if name.endswith("ssm_dt.bias"):
        return np.full(size, -2, np.float32)
    return np.ones(size, np.float32)


def write(shape: Shape, vocabulary: Weights, out: Path) -> None:
    """Writes the file, a tensor at a time."""
    writer = gguf.GGUFWriter(out, shape.architecture)
    for key, value in shape.keys.items():
        _add(writer, f"{shape.architecture}.{key}", value)
    for key, value in vocabulary.metadata.items():
        if key.startswith("tokenizer."):
            _add(writer, key, _filled(key, value, shape.tokens))
    types = gguf.GGMLQuantizationType
    for name, dims, format in shape.rows:
        block, size = gguf.GGML_QUANT_SIZES[types[format]]
        nbytes = int(np.prod(dims)) // block * size
        dtype = np.dtype(np.float32 if format == "F32" else np.uint8)
        stored = dims if format == "F32" else (*dims[:-1], dims[-1] // block * size)
        writer.add_tensor_info(name, stored, dtype, nbytes, raw_dtype=types[format])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    pool = _Pool()
    for name, dims, format in shape.rows:
        drawn = len(dims) > 1
        data = pool.rows(dims, format) if drawn else vector(name, dims)
        writer.write_tensor_data(data.view(np.float32) if format == "F32" else data)
    writer.close()


def _filled(key: str, value: Any, tokens: int) -> Any:
    """Token lists as long as the table of embeddings."""
    if key == "tokenizer.ggml.tokens":
        words = [value.raw(i) for i in range(len(value))]
        return words + [f"[PAD{i}]".encode() for i in range(len(words), tokens)]
    if key == "tokenizer.ggml.token_type":
        return [*value.tolist(), *[5] * (tokens - len(value))]  # 5: unused
    if key == "tokenizer.ggml.scores":
        return [*value.tolist(), *[-1000.0] * (tokens - len(value))]
    return value


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, (str, bytes)):
        writer.add_string(key, value if isinstance(value, str) else value.decode())
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, np.ndarray):
        writer.add_array(key, value.tolist())
    elif hasattr(value, "raw"):
        writer.add_array(key, [value.raw(i) for i in range(len(value))])
    else:
        writer.add_array(key, list(value))


def main() -> None:
    """The command of the module's first lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=SHAPES)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--vocabularies", type=Path)
    parser.add_argument("--mixture", choices=MIXTURES, default="Q4_0")
    parser.add_argument("--layers", type=int, help="only the first so many")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        for name, shape in SHAPES.items():
            elements = sum(int(np.prod(dims)) for _, dims, _ in shape.rows)
            print(f"{name}: {shape.architecture}, {elements / 1e9:.2f} billion elements")
        return
    if not (args.name and args.out and args.vocabularies):
        parser.error("NAME, OUT.gguf and --vocabularies are needed")
    shape = SHAPES[args.name]
    try:
        shape = mixed(shortened(shape, args.layers) if args.layers else shape, args.mixture)
    except ValueError as wrong:
        parser.error(f"--layers: {wrong}")
    source = args.vocabularies / f"ggml-vocab-{shape.vocabulary}.gguf"
    if not source.exists():
        sys.exit(f"real_shapes: {source} is absent; tests/fetch_vocabularies.py fetches it")
    with open_weights(source) as vocabulary:
        write(shape, vocabulary, args.out)
    print(f"{args.out}: {args.out.stat().st_size / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
