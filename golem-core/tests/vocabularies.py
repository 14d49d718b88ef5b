"""Small vocabularies in memory, and the metadata of files, for the tests of text."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from golem_core.text import Tokenizer
from golem_core.text.bytelevel import BYTE_OF
from golem_core.weights import open_weights

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True, eq=False)
class InMemory:
    """Weights that are nothing but metadata."""

    metadata: Mapping[str, object]


@cache
def real(name: str) -> InMemory:
    """A real model's file in GOLEM_TEST_WEIGHTS; the test is skipped where it is not here."""
    return _in_folder("GOLEM_TEST_WEIGHTS", name)


@cache
def vocabulary(name: str) -> InMemory:
    """llama.cpp's ggml-vocab-NAME.gguf in GOLEM_TEST_VOCABS, its folder `models`; or a skip."""
    return _in_folder("GOLEM_TEST_VOCABS", f"ggml-vocab-{name}.gguf")


@cache
def trained(name: str) -> Path:
    """The folder of a trained model in GOLEM_TEST_MODELS; or a skip."""
    folder = os.environ.get("GOLEM_TEST_MODELS")
    if not folder:
        pytest.skip("GOLEM_TEST_MODELS names no folder")
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"{name} is not in {folder}")
    return path


def _in_folder(variable: str, name: str) -> InMemory:
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} names no folder")
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"{name} is not in {folder}")
    with open_weights(path) as weights:
        return InMemory(_copied(weights.metadata))


def _copied(metadata: Mapping[str, object]) -> dict[str, object]:
    """The values themselves, which the mapped file need not outlive."""
    return {
        key: np.array(value)
        if isinstance(value, np.ndarray)
        else list(value)
        if isinstance(value, Sequence) and not isinstance(value, str)
        else value
        for key, value in metadata.items()
    }


@cache
def tokenizer_of(weights: InMemory) -> Tokenizer:
    return Tokenizer.from_weights(weights)


def scored(
    words: Mapping[str, float], extra: Mapping[str, int] | None = None, **keys: object
) -> InMemory:
    """A SentencePiece vocabulary: <unk>, <s>, </s>, 256 bytes, words with scores, then `extra`
    texts with kinds. `keys` are put under ``tokenizer.ggml.``."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    scores = [0.0] * len(tokens)
    for word, score in words.items():
        tokens.append(word)
        kinds.append(NORMAL)
        scores.append(score)
    for text, kind in (extra or {}).items():
        tokens.append(text)
        kinds.append(kind)
        scores.append(-1000.0)
    return InMemory(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": np.array(scores, np.float32),
            "tokenizer.ggml.token_type": np.array(kinds, np.int32),
            "tokenizer.ggml.add_space_prefix": False,
            **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
        }
    )


def byte_level(
    merges: list[str], extra: Mapping[str, int] | None = None, pre: str = "gpt-2", **keys: object
) -> InMemory:
    """A byte-level vocabulary: 256 bytes, what the merges make, then `extra` texts with kinds."""
    tokens = [*BYTE_OF, *(merge.replace(" ", "") for merge in merges)]
    kinds = [NORMAL] * len(tokens)
    for text, kind in (extra or {}).items():
        tokens.append(text)
        kinds.append(kind)
    return InMemory(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.token_type": np.array(kinds, np.int32),
            **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
        }
    )


def characters(
    merges: list[str], extra: Mapping[str, int] | None = None, **keys: object
) -> InMemory:
    """A vocabulary as Gemma 4's: <unk>, <bos>, 256 bytes, the merges' characters and what they
    make, then `extra` texts with kinds."""
    tokens = ["<unk>", "<bos>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [UNKNOWN, CONTROL, *[BYTE] * 256]
    made = [merge.replace(" ", "") for merge in merges]
    for text in dict.fromkeys([*"".join(made), *made]):
        tokens.append(text)
        kinds.append(NORMAL)
    for text, kind in (extra or {}).items():
        tokens.append(text)
        kinds.append(kind)
    return InMemory(
        {
            "tokenizer.ggml.model": "gemma4",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.token_type": np.array(kinds, np.int32),
            "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.bos_token_id": 1,
            **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
        }
    )
