"""Encoders in GGUF files, as llama.cpp's converter writes them, make what both references make.

ref/encoders_gguf.py had the checkpoints of ref/encoders.py converted; golden.json has what
llama.cpp makes of texts, and the checkpoints' own golden.json what transformers makes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import golem_core
from golem_core.errors import Unsupported

FILES = Path(__file__).parent / "gguf"
CHECKPOINTS = Path(__file__).parent / "checkpoints"
LLAMA: dict[str, list[dict[str, Any]]] = json.loads(
    (FILES / "golden.json").read_text(encoding="utf-8")
)
# The farthest a number of llama.cpp may be. It looks GELU up in a table of half precision, by the
# formula of tanh; the architectures with SiLU have no such table.
BY_TABLE = 2e-4
FARTHEST = {
    "bert": BY_TABLE,
    "gemma3": BY_TABLE,
    "modernbert": BY_TABLE,
    "nomic": 1e-6,
    "qwen3": 1e-6,
}
# llama.cpp scales the queries of EmbeddingGemma by its heads' size, which is query_pre_attn_scalar
# in the published model and is not in the tiny checkpoint.
ITS_OWN = ("gemma3",)


def test_there_are_all_files() -> None:
    assert {path.stem for path in FILES.glob("*.gguf")} == set(LLAMA)
    assert {name for name in LLAMA if not name.startswith("cross-")} == set(FARTHEST)


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("name", FARTHEST)
def test_vectors_are_those_of_llama_cpp_and_of_transformers(name: str, device: str) -> None:
    golden = json.loads((CHECKPOINTS / name / "golden.json").read_text(encoding="utf-8"))["cases"]
    with golem_core.load_embedder(FILES / f"{name}.gguf", device=device, threads=1) as model:
        made = model.embed([case["text"] for case in LLAMA[name]]).vectors
        for i, case in enumerate(LLAMA[name]):
            assert model.tokenize(case["text"]) == case["ids"] == golden[i]["ids"]
            np.testing.assert_allclose(made[i], case["embedding"], rtol=0, atol=FARTHEST[name])
            if name not in ITS_OWN:
                wanted = np.asarray(golden[i]["embedding"])
                wanted /= np.linalg.norm(wanted)  # a file does not say that its model does not
                np.testing.assert_allclose(made[i], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["cross-modernbert", "cross-xlm-roberta"])
def test_scores_are_those_of_llama_cpp_and_of_transformers(name: str) -> None:
    golden = json.loads((CHECKPOINTS / name / "golden.json").read_text(encoding="utf-8"))["cases"]
    texts = [case["text"] for case in LLAMA[name]]
    with golem_core.load_embedder(FILES / f"{name}.gguf", threads=1) as model:
        scores = model.rank("the fox", texts).scores
    wanted = 1 / (1 + np.exp(-np.array([case["logit"] for case in golden[:5]])))
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-5)
    # The last text spells control tokens, which llama.cpp does not find in texts of pairs.
    assert "</s>" in texts[4]
    theirs = 1 / (1 + np.exp(-np.array([case["score"] for case in LLAMA[name]])))
    np.testing.assert_allclose(scores[:4], theirs[:4], rtol=0, atol=BY_TABLE)


def test_a_head_without_its_dense_layer_is_refused() -> None:
    # The converter leaves BERT's pooler out, and llama.cpp goes without.
    with pytest.raises(Unsupported, match=r"cls\.weight is missing"):
        golem_core.load_embedder(FILES / "cross-bert.gguf")
