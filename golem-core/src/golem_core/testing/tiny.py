"""Writes small GGUF files with seeded weights, so that a plugin's tests need no download.

A `Tiny` is a model by its keys and the shapes of its tensors; `decoder` makes the usual one, a
pre-norm decoder with llama.cpp's names. The file has a small byte-level BPE tokenizer and a chat
template, so everything from text to text can be tried on it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from golem_core.weights import FORMATS

Shape = tuple[int, ...]

# The letter that byte-level BPE writes for each byte (GPT-2): itself where it can be seen.
_SEEN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_UNSEEN = [byte for byte in range(256) if byte not in _SEEN]
LETTERS = [chr(byte if byte in _SEEN else 256 + _UNSEEN.index(byte)) for byte in range(256)]
MERGES = ("t h", "th e", "Ġ the", "i n", "e r", "a n", "Ġ a", "o u", "r e", "l l")
CONTROLS = ("<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
TOKENS = (*LETTERS, *(merge.replace(" ", "") for merge in MERGES), *CONTROLS)
VOCAB = len(TOKENS)
TEMPLATE = (
    "<|begin|>{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True)
class Tiny:
    """A model to be written: what it declares itself to be, its keys, its tensors' shapes.

    keys are those below the architecture's name, without it: int, float, bool, str, or a list.
    tensors maps a name to a shape in numpy's order, so a matrix is [out, in]. Weights of one seed
    are the same everywhere: a matrix has variance 1/in, a ``norm`` or ``scale`` lies around 1, a
    ``bias`` around 0, ``rope_freqs`` are 1 or more, an ``ssm_a`` is negative.
    """

    architecture: str
    keys: Mapping[str, object]
    tensors: Mapping[str, Shape]
    seed: int = 0

    def with_key(self, key: str, value: object) -> Tiny:
        """The same with one key changed or added; None leaves it out."""
        keys = {**self.keys, key: value}
        return replace(self, keys={k: v for k, v in keys.items() if v is not None})

    def with_tensor(self, name: str, shape: Shape | None) -> Tiny:
        """The same with one tensor reshaped or added; None leaves it out."""
        tensors = {k: v for k, v in self.tensors.items() if k != name or shape is not None}
        if shape is not None:
            tensors[name] = shape
        return replace(self, tensors=tensors)

    def draw(self, name: str) -> npt.NDArray[np.float32]:
        """The values of one tensor, float32."""
        shape = self.tensors[name]
        # The name is in the seed: a tensor's values do not depend on what else the file has.
        rng = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        drawn: npt.NDArray[Any] = rng.standard_normal(shape)
        if name.startswith("rope_freqs"):
            drawn = 1 + abs(drawn)
        elif "norm" in name or "scale" in name:
            drawn = drawn / 8 + 1
        elif name.endswith("ssm_a"):
            drawn = -abs(drawn)
        elif name.endswith(".bias"):
            drawn = drawn / 8
        else:
            drawn = drawn / np.sqrt(shape[-1])
        return drawn.astype(np.float32)

    def write(self, path: Path, form: str = "F32") -> Path:
        """Writes the file; matrices whose rows are whole blocks are stored as `form`."""
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.keys.items():
            _put(writer, f"{self.architecture}.{key}", value)
        _put_tokenizer(writer)
        for name, shape in self.tensors.items():
            drawn = np.ascontiguousarray(self.draw(name), "<f4")
            quantize, block = FORMATS[form].quantize, FORMATS[form].block
            if len(shape) < 2 or shape[-1] % block or quantize is None or form == "F32":
                writer.add_tensor(name, drawn)
            else:
                stored = quantize(drawn.reshape(-1, block)).reshape(*shape[:-1], -1)
                writer.add_tensor(name, stored, raw_dtype=gguf.GGMLQuantizationType[form])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def decoder(
    architecture: str,
    *,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    ffn: int = 96,
    context: int = 512,
    keys: Mapping[str, object] | None = None,
    block: Mapping[str, Shape] | None = None,
    leave: Sequence[str] = (),
    tensors: Mapping[str, Shape] | None = None,
    seed: int = 0,
) -> Tiny:
    """The usual pre-norm decoder with SwiGLU, under the names that llama.cpp's converter gives.

    keys are added to those of the geometry. block has tensors that every layer has besides, without
    their ``blk.N.``, and leave names those that this architecture's layers lack; tensors has those
    that the model has once. The output is tied to the embedding unless tensors has an
    ``output.weight``.
    """
    q, kv = heads * head_dim, kv_heads * head_dim
    each: dict[str, Shape] = {
        "attn_norm.weight": (width,),
        "attn_q.weight": (q, width),
        "attn_k.weight": (kv, width),
        "attn_v.weight": (kv, width),
        "attn_output.weight": (width, q),
        "ffn_norm.weight": (width,),
        "ffn_gate.weight": (ffn, width),
        "ffn_up.weight": (ffn, width),
        "ffn_down.weight": (width, ffn),
        **(block or {}),
    }
    each = {name: shape for name, shape in each.items() if name not in leave}
    geometry = {
        "context_length": context,
        "embedding_length": width,
        "block_count": layers,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    named = {f"blk.{i}.{name}": shape for i in range(layers) for name, shape in each.items()}
    return Tiny(
        architecture,
        {**geometry, **(keys or {})},
        {
            "token_embd.weight": (VOCAB, width),
            **named,
            "output_norm.weight": (width,),
            **(tensors or {}),
        },
        seed,
    )


def _put(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value) if value >= 0 else writer.add_int32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        raise TypeError(f"{key} is {value!r}, which a GGUF file does not hold")


def _put_tokenizer(writer: gguf.GGUFWriter) -> None:
    ordinary = VOCAB - len(CONTROLS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(TOKENS))
    normal, control = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
    writer.add_token_types([normal] * ordinary + [control] * len(CONTROLS))
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(TOKENS.index("<|begin|>"))
    writer.add_eos_token_id(TOKENS.index("<|end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
