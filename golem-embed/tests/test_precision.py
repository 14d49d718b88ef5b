"""Matrices kept in fewer bits: what runs is what is said, the same on every layer of kernels."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import golem_core
from golem_core.cpu import dispatch
from golem_core.errors import BadRequest, Unsupported
from golem_core.graph import Graph, compile
from golem_core.weights import FORMATS, open_weights
from golem_embed.model import Encoder
from golem_embed.precision import PRECISIONS, Rounded, keep

TINY = Path(__file__).parent / "checkpoints" / "bert-cls"
WIDTH, FEED = 128, 384
TEXTS = ["the quick brown fox", "", "a lazy dog " * 20, "über 東京", "jumps over " * 9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of seeded weights whose rows are whole runs of 128."""
    made = tmp_path_factory.mktemp("models") / "seeded"
    shutil.copytree(TINY, made)
    config = json.loads((made / "config.json").read_text(encoding="utf-8"))
    config |= {"hidden_size": WIDTH, "intermediate_size": FEED}
    (made / "config.json").write_text(json.dumps(config), encoding="utf-8")
    pooling = made / "1_Pooling" / "config.json"
    said = json.loads(pooling.read_text(encoding="utf-8"))
    said = {k: WIDTH if k.endswith("dimension") else v for k, v in said.items()}
    pooling.write_text(json.dumps(said), encoding="utf-8")
    rng = np.random.default_rng(5)
    sizes = {32: WIDTH, 48: FEED}
    tensors = {}
    with open_weights(TINY) as weights:
        for name, stored in weights.tensors.items():
            shape = tuple(sizes.get(size, size) for size in stored.shape)
            values = rng.standard_normal(shape).astype(np.float32) / np.sqrt(shape[-1])
            norm = "LayerNorm.weight" in name
            tensors[name] = (1 + 0.1 * values if norm else values).astype(np.float32)
    save_file(tensors, made / "model.safetensors")
    return made


@pytest.fixture(params=dispatch.LAYERS)
def layer(request: pytest.FixtureRequest) -> Any:
    before = dispatch.layer()
    dispatch.use(request.param)
    yield request.param
    dispatch.use(before)


def vectors(folder: Path, precision: str, **options: Any) -> np.ndarray:
    with golem_core.load_embedder(folder, precision=precision, **options) as model:
        assert model.precision == precision
        return model.embed(TEXTS).vectors


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_layer_gives_the_same_bits_in_any_company(
    folder: Path, precision: str, layer: str
) -> None:
    with golem_core.load_embedder(folder, precision=precision, threads=2) as model:
        together = model.embed(TEXTS).vectors
        for text, vector in zip(TEXTS, together, strict=True):
            assert np.array_equal(model.embed([text]).vectors[0], vector)
    assert np.array_equal(vectors(folder, precision, threads=1), together)
    dispatch.use("generic")
    assert np.array_equal(vectors(folder, precision, threads=2), together)


def test_weights_alone_are_rounded(folder: Path, layer: str) -> None:
    """The reference multiplies float32 columns with the values that the codes stand for."""
    found = vectors(folder, "int8-weights", threads=2)
    wanted = vectors(folder, "int8-weights", device="reference")
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)
    plain = vectors(folder, "f32", threads=2)
    assert np.abs(found - plain).max() > 1e-5
    assert (found * plain).sum(1).min() > 0.9995


def test_columns_are_rounded_too(folder: Path) -> None:
    found, plain = vectors(folder, "int8", threads=2), vectors(folder, "f32", threads=2)
    # The reference rounds weights alone.
    alone = vectors(folder, "int8", device="reference")
    assert np.abs(found - alone).max() > 1e-4
    assert 0.998 < (found * plain).sum(1).min() < 0.99999


def test_matrices_are_in_the_formats_that_docs_say(folder: Path) -> None:
    with open_weights(folder) as weights:
        model = Encoder.open(weights, golem_core.model.Options())
        names = [
            name for name in model.weights.tensors if "attn_q.w" in name or "ffn_down.w" in name
        ]
        for precision, format in (("int8-weights", "W8"), ("int8", "W8A8"), ("bf16", "BF16")):
            kept, said = keep(model.weights, precision, names)
            assert said == precision
            assert {kept.tensors[name].format.name for name in names} == {format}
        narrow = replace(weights.tensors["pooler.dense.weight"], shape=(WIDTH, 96))
        lone = replace(weights, tensors=MappingProxyType({"x": narrow}))
        assert keep(lone, "int8", ["x"])[0].tensors["x"].format.name == "Q8_0"


def test_runs_of_both_lengths_are_not_read_of_one_value(folder: Path) -> None:
    with open_weights(folder) as weights:
        model = Encoder.open(weights, golem_core.model.Options())
        tensors = dict(model.weights.tensors)
        for name, format in (("blk.0.attn_q.weight", "W8A8"), ("blk.0.attn_k.weight", "Q8_0")):
            old = tensors[name]
            tensors[name] = Rounded(name, FORMATS[format], old.shape, old.file, old.offset, old)
        graph = Graph(replace(model.weights, tensors=MappingProxyType(tensors)))
        assert model.recipe is not None
        model.forward(graph, model.recipe)
        with pytest.raises(Unsupported, match="W8A8 is not multiplied beside Q4_0"):
            compile(graph, "cpu", width=64, outputs=8, threads=1)


@pytest.mark.parametrize("precision", ["int8", "int8-weights"])
def test_what_cannot_be_kept_is_refused(precision: str) -> None:
    with pytest.raises(Unsupported, match=f"has rows of 48, no multiple of 32.*made {precision}"):
        golem_core.load_embedder(TINY, precision=precision)
    with pytest.raises(BadRequest, match="precision is 'int4', expected f32, bf16, int8-weights"):
        golem_core.load_embedder(TINY, precision="int4")
