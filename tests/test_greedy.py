"""Greedy ids on real weights against llama.cpp's on the same file: 12 prompts, 64 tokens each.

The recordings are llama.cpp's (`python -m ref.record greedy`), with the top-two gap of its logits
at each step. Each prompt is read twice: by the engine, whose ids must be llama.cpp's to the first
end of a text, and with llama.cpp's ids given, so that every one of the 64 steps is compared even
after the two parted. Where they part, the two likeliest tokens must be nearly as likely for both:
the gap under 0.05 in either engine's logits. The places are printed (`pytest -rP`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from ref.prompts import PROMPTS
from ref.replay import Piece, Replay, open_model

from golem_core.engine import Request, start_engine
from golem_core.sampling import Sampling

RECORDINGS = Path(__file__).parent / "recordings" / "greedy"
NEAR = 0.05
CASES = [(file, prompt.name) for file, prompts in PROMPTS.items() for prompt in prompts]

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def recording(real_file):
    """A function from a model's file to its path and its recorded prompts by name."""
    made = {}

    def read(file):
        path = real_file(file)
        if file not in made:
            packed = (RECORDINGS / f"{path.stem}.json.gz").read_bytes()
            found = json.loads(gzip.decompress(packed))
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert digest == found["sha256"], f"{path} is not the file that was recorded"
            made[file] = path, {row["name"]: row for row in found["prompts"]}
        return made[file]

    return read


@pytest.fixture(scope="module")
def engines():
    """A function from a path to a running engine and its tokenizer; one model at a time."""
    running = {}

    def close():
        for engine, weights, _ in running.values():
            engine.close()
            weights.close()
        running.clear()

    def start(path):
        if path not in running:
            close()
            weights, model = open_model(path)
            tokenizer = model.tokenizer(weights)
            engine = start_engine(
                model, weights, tokenizer=tokenizer, context=2048, max_sequences=2
            )
            running[path] = engine, weights, tokenizer
        return running[path][0], running[path][2]

    yield start
    close()


def parted(row, step, logits):
    """A line for a step at which golem's token is not llama.cpp's, and whether both were near."""
    ours = logits.argsort()[-2:]
    gap = float(logits[ours[1]] - logits[ours[0]])
    line = (
        f"{row['name']} step {step}: llama.cpp {row['ids'][step]} (gap {row['gaps'][step]:.4f}), "
        f"golem {ours[1]} (gap {gap:.4f})"
    )
    return line, row["gaps"][step] < NEAR and gap < NEAR


@pytest.mark.parametrize(("file", "name"), CASES)
def test_the_prompt_has_the_ids_that_the_peer_gives_it(file, name, recording, engines):
    path, rows = recording(file)
    row = rows[name]
    _, tokenizer = engines(path)
    ids = tokenizer.encode(row["text"], special=row["special"], bos=tokenizer.add_bos)
    assert ids == row["prompt_ids"]


@pytest.mark.parametrize(("file", "name"), CASES)
def test_every_step_is_the_peers(file, name, recording):
    path, rows = recording(file)
    row = rows[name]
    ids = row["prompt_ids"] + row["ids"]
    first = len(row["prompt_ids"]) - 1  # the row whose logits give the first token
    with Replay(path, length=len(ids), width=256, every=False) as replay:
        replay.read(ids[:first], piece=256) if first else None
        lines = [
            replay.run([Piece(0, position, [ids[position]])])[0][0]
            for position in range(first, len(ids) - 1)
        ]
    found = [
        parted(row, step, logits)
        for step, logits in enumerate(lines)
        if int(np.argmax(logits)) != row["ids"][step]
    ]
    for line, _ in found:
        print(f"{file}: {line}")
    assert [line for line, near in found if not near] == []


@pytest.mark.parametrize(("file", "name"), CASES)
def test_the_engine_draws_the_peers_text(file, name, recording, engines):
    path, rows = recording(file)
    row = rows[name]
    engine, tokenizer = engines(path)
    expected = row["ids"]
    ends = [step for step, token in enumerate(expected) if token in tokenizer.end_ids]
    expected = expected[: ends[0]] if ends else expected
    request = Request(row["prompt_ids"], Sampling(temperature=0.0), max_tokens=len(row["ids"]))
    got = list(engine.submit(request).result().ids)
    if got == expected:
        return
    step = next(
        (i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b),
        min(len(got), len(expected)),
    )
    print(f"{file}: {name} parts at step {step}, llama.cpp's gap {row['gaps'][step]:.4f}")
    assert row["gaps"][step] < NEAR  # golem's own gap there: test_every_step_is_the_peers
