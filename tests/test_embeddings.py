"""Encoders on real weights: torch's ids and vectors, and how far other precisions are from them.

ref/embeddings.py recorded what sentence-transformers makes of 200 texts.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import golem_core
from golem_core.embedding import Embedding

VECTORS = Path(__file__).parent / "vectors"
MODELS = ("all-MiniLM-L6-v2", "all-mpnet-base-v2")
# The least cosine of a text to its vector in float32. A text of one character 700 times, whose
# tokens all round the same way, is farther away: its own least stands beside.
FLOORS = {"bf16": (0.9998, 0.9995), "int8-weights": (0.998, 0.98), "int8": (0.99, 0.97)}

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def texts() -> list[str]:
    found: list[str] = json.loads((VECTORS / "encoders.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def folder(name: str) -> Path:
    weights = os.environ.get("GOLEM_TEST_WEIGHTS")
    if not weights or not (Path(weights) / name).is_dir():
        pytest.skip(f"{name} is not in GOLEM_TEST_WEIGHTS")
    return Path(weights) / name


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[Embedding]:
    with golem_core.load_embedder(folder) as loaded:
        yield loaded


def test_ids_and_vectors_are_torch_s(model: Embedding, texts: list[str], name: str) -> None:
    recorded = np.load(VECTORS / f"{name}.npz")
    made = [model.tokenize(text) for text in texts]
    assert [len(ids) for ids in made] == recorded["counts"].tolist()
    assert np.concatenate(made).tolist() == recorded["ids"].tolist()
    result = model.embed(texts)
    assert model.precision == "f32"
    assert result.cut == tuple(i for i, ids in enumerate(made) if len(ids) > model.length)
    assert result.cut
    difference = np.abs(result.vectors[:, : recorded["vectors"].shape[1]] - recorded["vectors"])
    assert difference.max() <= 1e-6


def test_ten_thousand_texts_have_the_ids_of_transformers(model: Embedding, folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    rng = random.Random(1)
    planes = ((32, 127), (32, 127), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x1FFF),
              (0x2000, 0x2BFF), (0x3000, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xFFFF),
              (0x1F300, 0x1FAFF), (0, 0x10FFFF))  # fmt: skip
    texts = []
    for _ in range(10_000):
        low, high = rng.choice(planes)
        drawn = (rng.randint(low, high) for _ in range(rng.randint(0, 40)))
        texts.append("".join(chr(c) if not 0xD800 <= c < 0xE000 else " " for c in drawn))
    wanted = theirs(texts, truncation=False)["input_ids"]
    assert [model.tokenize(text) for text in texts] == wanted


def test_neighbours_are_those_of_sentence_transformers(model: Embedding, name: str) -> None:
    """The nearest of 500 sentences; where two are as near, to rounding, either may be first."""
    sentences = json.loads((VECTORS / "neighbours.json").read_text(encoding="utf-8"))
    vectors = model.encode(sentences).astype(np.float64)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    recorded = np.load(VECTORS / f"{name}.npz")["nearest"].astype(np.int64)
    assert recorded.shape == (500, 5)
    assert all(len(set(row)) == 5 for row in recorded)
    theirs = np.take_along_axis(cosines, recorded, axis=1)
    assert (theirs >= -np.sort(-cosines, axis=1)[:, :5] - 2e-6).all()


def test_a_vector_is_the_same_alone(model: Embedding, texts: list[str]) -> None:
    together = model.embed(texts[:40]).vectors
    for i in range(0, 40, 7):
        assert np.array_equal(model.embed([texts[i]]).vectors[0], together[i])


@pytest.mark.slow
@pytest.mark.parametrize("precision", FLOORS)
def test_other_precisions_stay_near(
    model: Embedding, folder: Path, texts: list[str], precision: str
) -> None:
    plain = model.embed(texts).vectors
    with golem_core.load_embedder(folder, precision=precision) as rounded:
        assert rounded.precision == precision
        found = rounded.embed(texts).vectors
    assert np.abs(found - plain).max() > 1e-5  # or it would not be another precision
    cosines = (found * plain).sum(axis=1)
    odd = np.array([len(set(text)) == 1 and len(text) > 500 for text in texts])
    assert odd.sum() == 1
    least, least_odd = FLOORS[precision]
    assert cosines[~odd].min() >= least
    assert cosines[odd].min() >= least_odd
