"""What golem-embed does not run is refused by the key that asks for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import golem_core
from golem_core.errors import BadWeights, GolemError, NotFound, Unsupported

CHECKPOINTS = Path(__file__).parent / "checkpoints"


def changed(tmp_path: Path, name: str, file: str, **values: Any) -> Path:
    folder = tmp_path / name
    shutil.copytree(CHECKPOINTS / name, folder)
    found = json.loads((folder / file).read_text(encoding="utf-8"))
    (folder / file).write_text(json.dumps({**found, **values}), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "key", "value", "error"),
    [
        ("bert", "hidden_act", "relu", Unsupported),
        ("bert", "position_embedding_type", "relative_key", Unsupported),
        ("bert", "is_decoder", True, Unsupported),
        ("bert", "num_attention_heads", 5, BadWeights),
        ("bert", "intermediate_size", 64, BadWeights),
        ("bert", "num_hidden_layers", 2, Unsupported),
        ("mpnet", "relative_attention_num_buckets", 16, Unsupported),
        ("distilbert", "sinusoidal_pos_embds", True, Unsupported),
        ("modernbert", "mlp_bias", True, Unsupported),
        ("qwen3", "attention_bias", True, Unsupported),
        ("qwen3", "use_sliding_window", True, Unsupported),
        ("gemma3", "use_bidirectional_attention", False, Unsupported),
    ],
)
def test_config(
    tmp_path: Path, name: str, key: str, value: object, error: type[GolemError]
) -> None:
    folder = changed(tmp_path, name, "config.json", **{key: value})
    with pytest.raises(error) as caught:
        golem_core.load_embedder(folder)
    named = {
        "intermediate_size": "ffn_up",
        "num_hidden_layers": "blk.2",
        "num_attention_heads": "hidden_size",
    }
    assert named.get(key, key) in str(caught.value)


def test_pooling(tmp_path: Path) -> None:
    folder = changed(
        tmp_path, "bert", "1_Pooling/config.json", pooling_mode_mean_tokens=False,
        pooling_mode_max_tokens=True,
    )  # fmt: skip
    with pytest.raises(Unsupported, match="pooling_mode_max_tokens is asked for"):
        golem_core.load_embedder(folder)


def test_nothing_says_how_to_pool(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    shutil.copytree(CHECKPOINTS / "bert", folder)
    (folder / "modules.json").unlink()
    with pytest.raises(
        Unsupported, match=r"has no modules.json.*pooling is one of mean, cls, last"
    ):
        golem_core.load_embedder(folder)
    with golem_core.load_embedder(folder, pooling="mean") as model:
        assert model.pooling == "mean"
        assert not model.normalises


def test_no_tokenizer(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    shutil.copytree(CHECKPOINTS / "bert", folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(NotFound, match="has no tokenizer"):
        golem_core.load_embedder(folder)


def test_a_module_that_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    shutil.copytree(CHECKPOINTS / "bert", folder)
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    modules.append({"idx": 3, "name": "3", "path": "", "type": "sentence_transformers.models.LSTM"})
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    with pytest.raises(Unsupported, match=r"modules\.json has a LSTM"):
        golem_core.load_embedder(folder)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bert", "token_types: the device vulkan looks up rows by token ids alone"),
        ("modernbert", "token_embd_norm: the device vulkan has no shader for layer_norm"),
        ("qwen3", "blk.0.attend: the device vulkan has no shader for attend_within"),
    ],
)
def test_cards(name: str, says: str) -> None:
    with pytest.raises(Unsupported) as caught:
        golem_core.load_embedder(CHECKPOINTS / name, device="vulkan")
    assert str(caught.value) == says
