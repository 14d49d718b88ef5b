"""The tensors of a checkpoint under one set of names, whoever wrote it.

The names are GGUF's. A table an architecture says what Hugging Face's names become; a matrix that
holds several (q, k and v in one, gate and up in one) is cut into its rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from golem_core.errors import BadWeights
from golem_core.weights import Stored, Weights

# What stands before the tensors of the encoder in a checkpoint that also has a head.
PREFIXES = ("bert.", "distilbert.", "mpnet.", "roberta.", "model.", "nomic_bert.")

_BERT = {
    r"embeddings\.word_embeddings": "token_embd",
    r"embeddings\.position_embeddings": "position_embd",
    r"embeddings\.token_type_embeddings": "token_types",
    r"embeddings\.LayerNorm": "token_embd_norm",
    r"encoder\.layer\.(\d+)\.attention\.self\.query": r"blk.\1.attn_q",
    r"encoder\.layer\.(\d+)\.attention\.self\.key": r"blk.\1.attn_k",
    r"encoder\.layer\.(\d+)\.attention\.self\.value": r"blk.\1.attn_v",
    r"encoder\.layer\.(\d+)\.attention\.output\.dense": r"blk.\1.attn_output",
    r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm": r"blk.\1.attn_output_norm",
    r"encoder\.layer\.(\d+)\.intermediate\.dense": r"blk.\1.ffn_up",
    r"encoder\.layer\.(\d+)\.output\.dense": r"blk.\1.ffn_down",
    r"encoder\.layer\.(\d+)\.output\.LayerNorm": r"blk.\1.layer_output_norm",
    r"pooler\.dense": "cls",
    r"classifier": "cls.output",
}
_ROBERTA = {
    **_BERT,
    r"classifier\.dense": "cls",
    r"classifier\.out_proj": "cls.output",
    r"pooler\.dense": "pooler",
}
_MPNET = {
    **_ROBERTA,
    r"encoder\.layer\.(\d+)\.attention\.attn\.([qkv])": r"blk.\1.attn_\2",
    r"encoder\.layer\.(\d+)\.attention\.attn\.o": r"blk.\1.attn_output",
    r"encoder\.layer\.(\d+)\.attention\.LayerNorm": r"blk.\1.attn_output_norm",
    r"encoder\.relative_attention_bias": "relative_bias",
}
_DISTILBERT = {
    **_BERT,
    r"transformer\.layer\.(\d+)\.attention\.([qkv])_lin": r"blk.\1.attn_\2",
    r"transformer\.layer\.(\d+)\.attention\.out_lin": r"blk.\1.attn_output",
    r"transformer\.layer\.(\d+)\.sa_layer_norm": r"blk.\1.attn_output_norm",
    r"transformer\.layer\.(\d+)\.ffn\.lin1": r"blk.\1.ffn_up",
    r"transformer\.layer\.(\d+)\.ffn\.lin2": r"blk.\1.ffn_down",
    r"transformer\.layer\.(\d+)\.output_layer_norm": r"blk.\1.layer_output_norm",
}
_MODERNBERT = {
    r"embeddings\.tok_embeddings": "token_embd",
    r"embeddings\.norm": "token_embd_norm",
    r"layers\.(\d+)\.attn_norm": r"blk.\1.attn_norm",
    r"layers\.(\d+)\.attn\.Wqkv": r"blk.\1.attn_qkv",
    r"layers\.(\d+)\.attn\.Wo": r"blk.\1.attn_output",
    r"layers\.(\d+)\.mlp_norm": r"blk.\1.ffn_norm",
    r"layers\.(\d+)\.mlp\.Wi": r"blk.\1.ffn_gate_up",
    r"layers\.(\d+)\.mlp\.Wo": r"blk.\1.ffn_down",
    r"final_norm": "output_norm",
    r"head\.dense": "cls",
    r"head\.norm": "cls.norm",
    r"classifier": "cls.output",
}
_NOMIC = {
    r"embeddings\.word_embeddings": "token_embd",
    r"embeddings\.token_type_embeddings": "token_types",
    r"emb_ln": "token_embd_norm",
    r"encoder\.layers\.(\d+)\.attn\.Wqkv": r"blk.\1.attn_qkv",
    r"encoder\.layers\.(\d+)\.attn\.out_proj": r"blk.\1.attn_output",
    r"encoder\.layers\.(\d+)\.norm1": r"blk.\1.attn_output_norm",
    r"encoder\.layers\.(\d+)\.mlp\.fc11": r"blk.\1.ffn_up",
    r"encoder\.layers\.(\d+)\.mlp\.fc12": r"blk.\1.ffn_gate",
    r"encoder\.layers\.(\d+)\.mlp\.fc2": r"blk.\1.ffn_down",
    r"encoder\.layers\.(\d+)\.norm2": r"blk.\1.layer_output_norm",
}
_DECODER = {
    r"embed_tokens": "token_embd",
    r"layers\.(\d+)\.input_layernorm": r"blk.\1.attn_norm",
    r"layers\.(\d+)\.self_attn\.([qkv])_proj": r"blk.\1.attn_\2",
    r"layers\.(\d+)\.self_attn\.([qk])_norm": r"blk.\1.attn_\2_norm",
    r"layers\.(\d+)\.self_attn\.o_proj": r"blk.\1.attn_output",
    r"layers\.(\d+)\.mlp\.(gate|up|down)_proj": r"blk.\1.ffn_\2",
    r"norm": "output_norm",
}
_QWEN3 = {**_DECODER, r"layers\.(\d+)\.post_attention_layernorm": r"blk.\1.ffn_norm"}
_GEMMA3 = {
    **_DECODER,
    r"layers\.(\d+)\.post_attention_layernorm": r"blk.\1.post_attention_norm",
    r"layers\.(\d+)\.pre_feedforward_layernorm": r"blk.\1.ffn_norm",
    r"layers\.(\d+)\.post_feedforward_layernorm": r"blk.\1.post_ffw_norm",
}

TABLES: Mapping[str, Mapping[str, str]] = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "mpnet": _MPNET,
    "distilbert": _DISTILBERT,
    "modernbert": _MODERNBERT,
    "nomic_bert": _NOMIC,
    "qwen3": _QWEN3,
    "gemma3_text": _GEMMA3,
}

# What a checkpoint may hold beside its encoder, and an embedding does without.
_LEFT = re.compile(
    r"(.*\.)?position_ids|cls\.(predictions|seq_relationship)\..*|lm_head\..*|vocab_\w+\..*"
    r"|decoder\.(weight|bias)|(.*\.)?rotary_emb\.inv_freq"
)


def named(
    weights: Weights, architecture: str, cuts: Mapping[str, Sequence[tuple[str, int]]]
) -> Weights:
    """`weights` under GGUF's names, without what an encoder does without.

    `cuts` says which matrices hold several: the end of a name to the parts' ends and their rows.
    """
    tensors: dict[str, Stored] = {}
    table = TABLES.get(architecture)
    for name, stored in weights.tensors.items():
        known = name if weights.container == "gguf" or table is None else _known(name, table)
        if known is None:
            continue
        parts = next((parts for end, parts in cuts.items() if known.endswith(end)), None)
        pieces = {known: stored} if parts is None else _cut(known, stored, parts, cuts)
        for piece, lies in pieces.items():
            if piece in tensors:
                raise BadWeights(f"{name} and another tensor are both {piece} ({weights.path})")
            tensors[piece] = lies
    return replace(weights, tensors=MappingProxyType(tensors))


def _known(name: str, table: Mapping[str, str]) -> str | None:
    """GGUF's name of a tensor, its own if the table does not know it, None if it is left out."""
    if _LEFT.fullmatch(name):
        return None
    for prefix in ("", *PREFIXES):
        if not name.startswith(prefix):
            continue
        stem, _, kind = name[len(prefix) :].rpartition(".")
        kind = {"gamma": "weight", "beta": "bias"}.get(kind, kind)
        for pattern, said in table.items():
            match = re.fullmatch(pattern, stem)
            if match is not None:
                return f"{match.expand(said)}.{kind}"
    return name


def _cut(
    name: str,
    stored: Stored,
    parts: Sequence[tuple[str, int]],
    cuts: Mapping[str, Sequence[tuple[str, int]]],
) -> dict[str, Stored]:
    """The rows of a matrix, or the elements of its bias, as tensors of their own."""
    end = next(end for end in cuts if name.endswith(end))
    rows = sum(count for _, count in parts)
    if stored.shape[0] != rows:
        raise BadWeights(f"{name} has shape {list(stored.shape)}, expected {rows} rows")
    made, at, each = {}, stored.offset, stored.nbytes // rows
    for part, count in parts:
        piece = name[: -len(end)] + part
        shape = (count, *stored.shape[1:])
        made[piece] = replace(stored, name=piece, shape=shape, offset=at)
        at += count * each
    return made
