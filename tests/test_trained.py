"""The trained test models against transformers and llama.cpp: peaked logits, real conversations.

They are found through GOLEM_TEST_MODELS and are no part of the repository; the recordings beside
the tests are of `python -m ref.trained`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from ref.compare import grouped
from ref.expand import expand
from ref.replay import Piece, Replay

RECORDINGS = Path(__file__).parent / "recordings" / "trained"
CLOSENESS = [
    ("qwen3", "q8_0"),
    ("qwen35", "q8_0"),
    ("qwen35", "q4_k_m"),
    ("gemma4", "q8_0"),
    ("gemma4", "q4_k_m"),
    ("gemma4moe", "q8_0"),
]
MODELS = ("qwen3", "qwen35", "gemma4", "gemma4moe")
# Both engines round activations to eight bits; two right ones differ by chance.
CHANCE = 0.1
NEAR = 0.05  # a top-two gap at which two tokens tie
SPREAD = 4  # times the root mean square of what rounding does to llama.cpp's own gap


@pytest.fixture(scope="session")
def trained():
    """A function from a model's name and format to its file; skips where it is not here."""
    folder = os.environ.get("GOLEM_TEST_MODELS")

    def find(name, form="q8_0"):
        if not folder:
            pytest.skip("GOLEM_TEST_MODELS names no folder of trained models")
        path = Path(folder) / name / f"{name}-{form}.gguf"
        if not path.exists():
            pytest.skip(f"{path.name} is not in {folder}")
        return path

    return find


def recorded(name):
    return np.load(RECORDINGS / f"{name}.npz")


@pytest.mark.parametrize(("name", "form"), CLOSENESS)
def test_probabilities_are_as_close_to_transformers_as_the_peers(name, form, trained):
    path, kept = trained(name, form), recorded(name)
    peer = json.loads(str(kept["peer"]))[form.upper()]
    ids = kept["ids"].tolist()
    with Replay(path, length=len(ids)) as replay:
        logits = replay.read(ids)[kept["rows"]]
    ours = grouped(kept["logs"], kept["top"], kept["rest"], logits)
    print(f"{name} {form}: KL {ours:.3e}, llama.cpp {peer['kept']:.3e}, {peer['follow']:.3e}")
    # Where a router's scores nearly tie, a rounding chooses another expert, and a handful of such
    # positions is most of the mean: llama.cpp's own two ways of reading differ by half there.
    bound = 1 + CHANCE if name != "gemma4moe" else 1.5
    assert ours <= bound * max(peer["kept"], peer["follow"])


def partings(path, row, theirs, **options):
    """The gaps of the steps at which golem's likeliest token is another than llama.cpp's."""
    text = (row["prompt"] + theirs["ids"])[:-1]
    with Replay(path, length=len(text), **options) as replay:
        logits = replay.run([Piece(0, 0, text)])[0][len(row["prompt"]) - 1 :]
    top = np.sort(logits, axis=1)[:, -2:]
    found = []
    for step, token in enumerate(logits.argmax(axis=1)):
        if token != theirs["ids"][step]:
            gap = max(float(top[step, 1] - top[step, 0]), theirs["gaps"][step])
            print(f"{path.name} {row['text']!r} step {step}: gap {gap:.3f}")
            found.append(gap)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_exact_numbers_give_the_peers_text_or_part_at_a_tie(name, trained, tmp_path):
    path = tmp_path / "expanded.gguf"
    expand(trained(name), path)
    for row in json.loads(str(recorded(name)["greedy"])):
        assert all(gap < NEAR for gap in partings(path, row, row["exact"], kv="f32"))


@pytest.mark.parametrize("name", MODELS)
def test_the_shipped_file_parts_where_rounding_may_turn_the_gap(name, trained):
    rows = json.loads(str(recorded(name)["greedy"]))
    change = np.sqrt(np.mean([row["gap_change"] ** 2 for row in rows]))
    parted = [gap for row in rows for gap in partings(trained(name), row, row["shipped"])]
    print(
        f"{name}: {len(parted)} of {len(rows) * 48} tokens; rounding moves llama.cpp's gap by "
        f"{change:.3f}"
    )
    assert all(gap < max(NEAR, SPREAD * change) for gap in parted)
