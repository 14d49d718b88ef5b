"""The geometry of a model from its yaml and from its tensors; what cannot be true is refused."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from ref.drawn_pocket import VARIANTS, shapes

from golem_core.errors import BadWeights, GolemError, Unsupported
from golem_core.weights import Weights
from golem_pockettts.config import Config
from golem_pockettts.reading import read_config

REAL = {
    "english": "english",
    "english_2026-01": "english_2026-01",
    "english_drifting": "english_drifting_26-09",
    "french_24l": "french_24l",
    "english_18m": "english_18m_2026-10",
    "english_7m": "english_7m_2026-10",
    "english_2m": "english_2m_2026-10",
}


def read(folder: Path, variant: str, document: dict[str, Any] | None) -> Config:
    """What is read of a variant's shapes, with a yaml beside them where one is given."""
    folder.mkdir(parents=True, exist_ok=True)
    if document is not None:
        (folder / "model.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    tensors = {name: SimpleNamespace(shape=shape) for name, shape in shapes(VARIANTS[variant])}
    return read_config(cast(Weights, SimpleNamespace(path=folder, tensors=tensors)))


@pytest.mark.parametrize("variant", REAL)
def test_tensors_alone_say_what_a_yaml_says(variant: str, tmp_path: Path) -> None:
    told = read(tmp_path / "told", variant, VARIANTS[variant])
    found = read(tmp_path / REAL[variant], variant, None)
    assert replace(found, text=told.text) == told
    assert told.samples == 1920
    assert found.text.pad_short == (variant == "english_2026-01")


def test_what_the_shapes_are(tmp_path: Path) -> None:
    found = read(tmp_path, "english_7m", VARIANTS["english_7m"])
    assert (found.model.heads, found.model.kv_heads, found.model.dim) == (8, 2, 64)
    assert (found.rank, found.z, found.projects, found.flow) == (64, 64, True, "drifting")
    assert (found.decoder_layers.window, found.encoder_layers.window) == (50, 250)
    assert (found.eos_threshold, found.temperature, found.ratios) == (-1.0, 0.3, (6, 5, 4))


@pytest.mark.parametrize(
    ("variant", "key", "value", "kind", "message"),
    [
        ("english", "flow_lm.flow.type", "rectified", Unsupported, "flow_lm.flow.type is 'rectif"),
        ("english", "flow_lm.flow.type", "drifting", BadWeights, "the head is told 2 times"),
        ("english", "flow_lm.insert_bos_before_voice", False, BadWeights, "is False, but flow_lm"),
        ("english", "flow_lm.lookup_table.n_bins", 8000, BadWeights, "n_bins is 8000, but"),
        ("english", "flow_lm.transformer.num_layers", 7, BadWeights, "num_layers is 7, but"),
        ("english", "flow_lm.transformer.num_heads", 15, BadWeights, "for each of 15 heads"),
        ("english", "flow_lm.transformer.num_heads", None, BadWeights, "num_heads is missing"),
        ("english_7m", "flow_lm.transformer.num_kv_heads", 4, BadWeights, "num_kv_heads is 4"),
        ("english", "mimi.seanet.ratios", [8, 5, 4], BadWeights, "ratios is [8, 5, 4], but"),
        ("english", "mimi.seanet.pad_mode", "reflect", Unsupported, "expected 'constant'"),
        ("english", "mimi.channels", 2, Unsupported, "mimi.channels is 2, expected 1"),
        ("english", "mimi.frame_rate", 25.0, BadWeights, "mimi.frame_rate is 25.0, but a frame"),
        ("english", "mimi.sample_rate", True, BadWeights, "mimi.sample_rate is True"),
    ],
)
def test_what_cannot_be_true_is_named(
    variant: str, key: str, value: Any, kind: type[GolemError], message: str, tmp_path: Path
) -> None:
    document = copy.deepcopy(VARIANTS[variant])
    at, *parts = document, *key.split(".")
    for part in parts[:-1]:
        at = at[part]
    if value is None:
        del at[parts[-1]]
    else:
        at[parts[-1]] = value
    with pytest.raises(kind) as error:
        read(tmp_path, variant, document)
    assert message in str(error.value)
    assert "model.yaml" in str(error.value)


def test_of_several_yamls_one_must_be_named(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / f"{name}.yaml").write_text("{}")
    with pytest.raises(BadWeights, match=r"several configurations \(one.yaml, other.yaml\)"):
        read(tmp_path, "english", None)
    assert read(tmp_path, "english", VARIANTS["english"]).model.layers == 6  # model.yaml is


def test_a_tensor_that_is_missing_is_named(tmp_path: Path) -> None:
    tensors = {name: SimpleNamespace(shape=shape) for name, shape in shapes(VARIANTS["english"])}
    del tensors["mimi.decoder.model.2.convtr.weight"]
    weights = cast(Weights, SimpleNamespace(path=tmp_path, tensors=tensors))
    with pytest.raises(BadWeights, match=r"mimi\.decoder\.model\.2\.convtr\.weight is missing"):
        read_config(weights)
