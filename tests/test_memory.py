"""`golem show` predicts what a process takes once a conversation has filled its context."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from golem_core.api import open_generator
from golem_core.cli.show import describe
from golem_core.testing import decoder
from golem_core.weights import open_weights

# What a process says of its own memory: bytes that no file backs, before and after.
RUN = """
import json, sys
from golem_core.api import open_generator
from golem_core.engine import Request, start_engine
from golem_core.sampling import Sampling
from golem_core.weights import open_weights

def taken():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {name: 1024 * int(fields[name].split()[0]) for name in ("RssAnon", "VmRSS")}

path, context, draft = sys.argv[1], int(sys.argv[2]), sys.argv[3]
weights = open_weights(path)
model = open_generator(weights)
tokenizer = model.tokenizer(weights)
tokenizer.prepare()  # as the text of a whole context does
before = taken()
with start_engine(
    model, weights, tokenizer=tokenizer, context=context, max_sequences=1, draft=draft
) as engine:
    greedy = Sampling(temperature=0.0)
    ids = [i * 7 % 256 for i in range(context - 64)]
    engine.submit(Request(ids, greedy, 60, ignore_eos=True)).result()
    after = taken()
print(json.dumps({"grown": after["RssAnon"] - before["RssAnon"], "whole": after["VmRSS"]}))
"""


def run(path: Path, context: int, draft: str = "auto") -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path), str(context), draft],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, int] = json.loads(done.stdout)
    return found


def predicted(path: Path, context: int) -> dict[str, int]:
    with open_weights(path) as weights:
        assert open_generator(weights).context >= context
        return next(row for row in describe(weights)["memory"] if row["context"] == context)


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux says what a process takes"
)


def test_of_a_seeded_model(tmp_path: Path) -> None:
    """Large enough that what the tape takes for itself does not count: 29 MB of weights."""
    tiny = decoder(
        "llama", layers=8, width=512, heads=8, kv_heads=4, head_dim=64, ffn=1536, context=4096
    )
    path = tiny.write(tmp_path / "some.gguf", "Q8_0")
    needs = predicted(path, 4096)
    found = run(path, 4096)
    parts = sum(needs[part] for part in ("weights", "pages", "states", "passes"))
    assert needs["states"] == 0
    assert parts == pytest.approx(found["grown"], rel=0.05)


def test_of_a_trained_model_with_states_and_a_prediction_block() -> None:
    folder = os.environ.get("GOLEM_TEST_MODELS")
    if not folder:
        pytest.skip("GOLEM_TEST_MODELS names no folder of trained models")
    path = Path(folder) / "qwen35" / "qwen35-q8_0.gguf"
    needs = predicted(path, 4096)
    found = run(path, 4096, "mtp")  # room for states after guesses is taken when they are made
    print(f"predicted {needs}, found {found}")
    # A small model, so the interpreter and its libraries are most of it.
    assert needs["states"] > 0
    assert needs["total"] == pytest.approx(found["whole"], rel=0.08)


@pytest.mark.weights
@pytest.mark.parametrize(
    "name",
    [
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "gemma-3-270m-q4_k_m.gguf",
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    ],
)
def test_of_a_real_model(name: str, real_file) -> None:
    path = real_file(name)
    needs = predicted(path, 4096)
    found = run(path, 4096)
    print(f"predicted {needs}, found {found}")
    assert needs["total"] == pytest.approx(found["whole"], rel=0.05)
