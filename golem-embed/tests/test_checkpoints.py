"""Every architecture, on tiny checkpoints that transformers wrote, makes what transformers made.

ref/encoders.py wrote them; their ids and vectors stand in golden.json beside the weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import golem_core
from golem_core.embedding import Embedding
from golem_core.errors import BadRequest, ContextFull, Unsupported

CHECKPOINTS = Path(__file__).parent / "checkpoints"
EMBEDDERS = [p.name for p in sorted(CHECKPOINTS.iterdir()) if (p / "modules.json").exists()]
CROSS = [p.name for p in sorted(CHECKPOINTS.iterdir()) if not (p / "modules.json").exists()]


def opened(name: str, device: str = "cpu", **options: Any) -> Embedding:
    return golem_core.load_embedder(CHECKPOINTS / name, device=device, threads=2, **options)


def cases(name: str) -> list[dict[str, Any]]:
    found = json.loads((CHECKPOINTS / name / "golden.json").read_text(encoding="utf-8"))["cases"]
    return list(found)


def test_there_are_all_architectures() -> None:
    assert len(EMBEDDERS) == 10
    assert len(CROSS) == 3


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors_are_those_of_transformers(name: str, device: str) -> None:
    with opened(name, device) as model:
        result = model.embed([case["text"] for case in cases(name)])
        whole = model.token_vectors([case["text"] for case in cases(name)])
        for i, case in enumerate(cases(name)):
            assert model.tokenize(case["text"]) == case["ids"]
            np.testing.assert_allclose(result.vectors[i], case["embedding"], rtol=0, atol=1e-5)
            first = whole[i].vectors[0]
            np.testing.assert_allclose(first, case["first_token"], rtol=0, atol=2e-5)
        assert result.cut == (6,)
        assert max(result.tokens) == model.length == 96


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("name", CROSS)
def test_scores_are_those_of_transformers(name: str, device: str) -> None:
    with opened(name, device, length=128) as model:
        ranked = model.rank("the fox", [case["text"] for case in cases(name)[:5]])
        logits = np.array([case["logit"] for case in cases(name)[:5]])
        np.testing.assert_allclose(ranked.scores, 1 / (1 + np.exp(-logits)), rtol=0, atol=1e-5)
        with pytest.raises(Unsupported, match="makes no vectors"):
            model.embed(["a"])


@pytest.mark.parametrize("name", EMBEDDERS)
def test_a_vector_is_the_same_in_any_company(name: str) -> None:
    texts = [case["text"] for case in cases(name)] * 3
    with opened(name) as model, golem_core.load_embedder(CHECKPOINTS / name, threads=1) as single:
        together = model.embed(texts).vectors
        for i, text in enumerate(texts):
            assert np.array_equal(model.embed([text]).vectors[0], together[i])
            assert np.array_equal(single.embed([text]).vectors[0], together[i])
        assert np.array_equal(model.embed(texts[::-1]).vectors[::-1], together)


def test_prompts_dimensions_and_length() -> None:
    with opened("bert-cls") as model:
        assert model.prompts == {"query": "search: ", "document": ""}
        plain = model.embed(["search: fox"]).vectors
        assert np.array_equal(model.embed(["fox"], prompt="query").vectors, plain)
        assert np.array_equal(model.encode(["fox"], prompt_name="query"), plain)
        assert np.array_equal(model.encode("fox", prompt="search: "), plain[0])
        short = model.embed(["search: fox"], dimensions=8).vectors[0]
        np.testing.assert_allclose(np.linalg.norm(short), 1, atol=1e-6)
        np.testing.assert_allclose(short, plain[0, :8] / np.linalg.norm(plain[0, :8]), atol=1e-6)
        with pytest.raises(BadRequest, match="no prompt 'title'; this model has query, document"):
            model.embed(["fox"], prompt="title")
        with pytest.raises(BadRequest, match="dimensions is 33, expected 1 to 32"):
            model.embed(["fox"], dimensions=33)
        with pytest.raises(ContextFull, match="text 1 has 182 tokens, and bert-cls reads 96"):
            model.embed(["fox", "the lazy dog " * 60], truncate=False)
        with pytest.raises(BadRequest, match="text 0 has ids outside of 0 to"):
            model.embed([[100000]])
        ids = model.tokenize("the fox")
        assert np.array_equal(model.embed([ids]).vectors, model.embed(["the fox"]).vectors)
        with pytest.raises(Unsupported, match="scores no pairs"):
            model.rank("a", ["b"])


def test_similarity() -> None:
    a = np.array([[1, 0], [3, 4]], np.float32)
    found = Embedding.similarity(a, a)
    np.testing.assert_allclose(found, [[1, 0.6], [0.6, 1]], atol=1e-6)
