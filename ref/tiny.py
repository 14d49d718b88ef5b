"""Tiny seeded models of each family, written straight to GGUF.

The same numbers, drawn from a generator whose stream is fixed, become the GGUF file that golem
and llama.cpp read and (in `ref.hugging_face`) the transformers model that is the reference. So no
weights need to be stored: a test writes the file again with numpy and `gguf` and compares it with
the recording's checksum first. Tensors have the names and the layout of llama.cpp's converter;
`ref.record` checks that against the converter itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

from ref import tiny_gemma4, tiny_qwen3, tiny_qwen35, vocabulary
from ref.drawn import Llama3Scaling, Tiny, Yarn, matrix, normal, vector
from ref.quantise import Floats, dequantise, quantise

__all__ = ["FORMATS", "TINY", "WAYPOINTS", "WIDE", "normal", "prompt", "tensors", "write"]

# Families that are more than the plain decoder: a file each, with `MODELS`, `tensors` and `keys`.
FAMILIES = {
    "gemma4": tiny_gemma4,
    "qwen3": tiny_qwen3,
    "qwen3moe": tiny_qwen3,
    "qwen35": tiny_qwen35,
    "qwen35moe": tiny_qwen35,
}
TINY = {
    tiny.name: tiny
    for tiny in (
        # Waypoints. Tied and untied, plain and grouped heads, sizes that no block divides.
        Tiny("llama-tied", "llama", 64, 4, 4, 16, 160, 2, 320, True, 11),
        Tiny("llama-odd", "llama", 72, 3, 1, 24, 100, 2, 331, False, 12, eps=1e-5),
        Tiny(
            "llama-scaled", "llama", 64, 4, 2, 16, 96, 2, 320, False, 13, theta=500000.0,
            scaling=Llama3Scaling(8.0, 1.0, 4.0, 64),
        ),
        Tiny(
            "gemma3-window", "gemma3", 64, 4, 2, 24, 128, 7, 448, True, 14, theta=1e6, window=16
        ),
        Tiny(
            "gemma3-scaled", "gemma3", 48, 2, 1, 32, 72, 6, 448, True, 15, theta=1e6, window=8,
            local_theta=5000.0, scaling=8.0,
        ),
        Tiny("qwen2-tied", "qwen2", 64, 4, 2, 16, 160, 2, 320, True, 16, theta=1e6),
        Tiny("qwen2-untied", "qwen2", 96, 6, 1, 16, 104, 2, 331, False, 17, theta=1e6),
        # Closeness. Rows of whole super-blocks, so that every format fits.
        Tiny("llama-wide", "llama", 256, 4, 2, 64, 512, 3, 320, True, 21),
        Tiny("gemma3-wide", "gemma3", 256, 4, 1, 64, 512, 6, 448, True, 22, theta=1e6, window=16),
        Tiny("qwen2-wide", "qwen2", 256, 4, 2, 64, 512, 3, 320, False, 23, theta=1e6),
        *(model for family in dict.fromkeys(FAMILIES.values()) for model in family.MODELS),
    )
}  # fmt: skip
WAYPOINTS = [name for name in TINY if not name.endswith("-wide")]
WIDE = ["llama-wide", "gemma3-wide", "qwen2-wide"]  # measured together, in every format
ALONE = [name for name in TINY if name.endswith("-wide") and name not in WIDE]  # each by itself

# Every format that is multiplied, in the order of the tables that quote it.
FORMATS = (
    "F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0",
    "IQ4_NL", "IQ4_XS", "MXFP4", "Q3_K", "Q2_K",
)  # fmt: skip
FEW = ("BF16", "Q8_0", "Q4_K", "Q4_0")  # of them, those that ALONE are measured in

# Matrices that every file keeps in float32: llama.cpp's quantiser leaves them alone.
FLOAT = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "ssm_conv1d.weight")


def tensors(tiny: Tiny) -> Iterator[tuple[str, Floats]]:
    """The model's tensors under their names in the file, matrices [rows(out), columns(in)]."""
    if tiny.family in FAMILIES:
        yield from FAMILIES[tiny.family].tensors(tiny)
        return
    q, kv = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    yield matrix(tiny, "token_embd.weight", tiny.vocab, tiny.hidden, 1.0 if tiny.tied else 4.0)
    for layer in range(tiny.layers):
        at = f"blk.{layer}."
        yield vector(tiny, at + "attn_norm.weight", tiny.hidden)
        # The gain of 1.5 makes attention pick rather than average.
        yield matrix(tiny, at + "attn_q.weight", q, tiny.hidden, 1.5)
        yield matrix(tiny, at + "attn_k.weight", kv, tiny.hidden, 1.5)
        yield matrix(tiny, at + "attn_v.weight", kv, tiny.hidden)
        if tiny.family == "qwen2":
            yield vector(tiny, at + "attn_q.bias", q, 0.0)
            yield vector(tiny, at + "attn_k.bias", kv, 0.0)
            yield vector(tiny, at + "attn_v.bias", kv, 0.0)
        if tiny.family == "gemma3":
            yield vector(tiny, at + "attn_q_norm.weight", tiny.head_dim, 1.5)
            yield vector(tiny, at + "attn_k_norm.weight", tiny.head_dim, 1.5)
        yield matrix(tiny, at + "attn_output.weight", tiny.hidden, q)
        if tiny.family == "gemma3":
            yield vector(tiny, at + "post_attention_norm.weight", tiny.hidden)
        yield vector(tiny, at + "ffn_norm.weight", tiny.hidden)
        yield matrix(tiny, at + "ffn_gate.weight", tiny.ffn, tiny.hidden)
        yield matrix(tiny, at + "ffn_up.weight", tiny.ffn, tiny.hidden)
        yield matrix(tiny, at + "ffn_down.weight", tiny.hidden, tiny.ffn)
        if tiny.family == "gemma3":
            yield vector(tiny, at + "post_ffw_norm.weight", tiny.hidden)
    yield vector(tiny, "output_norm.weight", tiny.hidden)
    if not tiny.tied:
        yield matrix(tiny, "output.weight", tiny.vocab, tiny.hidden, 2.0)
    if isinstance(tiny.scaling, Llama3Scaling):
        yield "rope_freqs.weight", rope_factors(tiny)


def stored(tiny: Tiny, form: str) -> Iterator[tuple[str, Floats]]:
    """The tensors as a file of the format `form` holds them: matrices rounded, vectors not."""
    for name, values in tensors(tiny):
        if stays(name, values, form):
            yield name, values
        else:
            rows = dequantise(quantise(values.reshape(-1, values.shape[-1]), form), form)
            yield name, rows.reshape(values.shape)


def stays(name: str, values: Floats, form: str) -> bool:
    """Whether a file of the format `form` has this tensor in float32."""
    return values.ndim == 1 or form == "F32" or name.endswith(FLOAT)


def rope_factors(tiny: Tiny) -> Floats:
    """What each frequency of Llama 3's rope is divided by, [head_dim / 2].

    As `transformers.modeling_rope_utils` defines it: 1 for wavelengths under original / high,
    `factor` for those over original / low, and between them a blend of the two.
    """
    scaling = tiny.scaling
    assert isinstance(scaling, Llama3Scaling)
    powers = np.arange(0, tiny.head_dim, 2, dtype=np.float32) / np.float32(tiny.head_dim)
    wavelength = 2 * np.pi * tiny.theta**powers
    blend = (scaling.original / wavelength - scaling.low) / (scaling.high - scaling.low)
    middle = 1 / ((1 - blend) / scaling.factor + blend)
    long = np.where(wavelength > scaling.original / scaling.low, scaling.factor, middle)
    return np.where(wavelength < scaling.original / scaling.high, 1.0, long).astype(np.float32)


def write(tiny: Tiny, path: Path, form: str = "F32") -> str:
    """Writes the model with its matrices in the ggml format `form`; returns a checksum.

    The checksum covers names and bytes of all tensors, not the header, which may carry a version
    of the `gguf` package. Vectors stay F32, as llama.cpp's own quantiser leaves them.
    """
    writer = gguf.GGUFWriter(path, tiny.family)
    writer.add_name(f"golem tiny {tiny.name}")
    writer.add_context_length(tiny.context)
    writer.add_embedding_length(tiny.hidden)
    writer.add_block_count(tiny.blocks)
    if tiny.ffn and tiny.family != "gemma4":  # which may have another in each layer
        writer.add_feed_forward_length(tiny.ffn)
    writer.add_head_count(tiny.heads)
    if tiny.family != "gemma4":
        writer.add_head_count_kv(tiny.kv_heads)
    writer.add_layer_norm_rms_eps(tiny.eps)
    writer.add_rope_freq_base(tiny.theta)
    if tiny.family != "qwen2":
        writer.add_key_length(tiny.head_dim)
        writer.add_value_length(tiny.head_dim)
    if tiny.family == "llama":
        writer.add_vocab_size(tiny.vocab)
        writer.add_rope_dimension_count(tiny.head_dim)
    if tiny.window is not None:
        writer.add_sliding_window(tiny.window)
    if tiny.local_theta is not None:
        writer.add_rope_freq_base_swa(tiny.local_theta)
    if isinstance(tiny.scaling, float):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(tiny.scaling)
    if isinstance(tiny.scaling, Yarn):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(tiny.scaling.factor)
        writer.add_rope_scaling_orig_ctx_len(tiny.scaling.original)
    if tiny.family in FAMILIES:
        FAMILIES[tiny.family].keys(writer, tiny)
    vocabulary.add(writer, tiny.family, tiny.vocab)

    digest = hashlib.sha256()
    for name, values in tensors(tiny):
        if stays(name, values, form):
            stored = np.ascontiguousarray(values, "<f4")
            writer.add_tensor(name, stored)
        else:
            rows = quantise(values.reshape(-1, values.shape[-1]), form)
            stored = rows.reshape(*values.shape[:-1], -1)
            writer.add_tensor(name, stored, raw_dtype=gguf.GGMLQuantizationType[form])
        digest.update(name.encode() + stored.tobytes())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return digest.hexdigest()


def prompt(tiny: Tiny, length: int) -> list[int]:
    """`length` token ids drawn from the ordinary vocabulary, after <bos> for Gemma."""
    first, last = vocabulary.ordinary(tiny.family, tiny.vocab)
    draws = np.random.PCG64([tiny.seed, length]).random_raw(length)
    ids = [first + int(draw % (last - first)) for draw in draws]
    return [vocabulary.GEMMA_BOS, *ids[1:]] if tiny.family.startswith("gemma") else ids
