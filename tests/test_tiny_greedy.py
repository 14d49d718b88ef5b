"""Greedy text of every tiny model in float32: llama.cpp's, or parted at a tie.

Nothing is rounded but llama.cpp's table of GELU, which is in half precision: two engines have no
excuse for another token, except where the two likeliest are closer than NEAR. What is compared is
every step of llama.cpp's text (`python -m ref.record tinies`), not only up to the first parting.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ref.replay import Piece, Replay

RECORDED = json.loads((Path(__file__).parent / "recordings" / "tinies.json").read_text())
NEAR = 0.05  # of logits whose deviation is about 1; the table of GELU moves them by up to 0.01


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("name", RECORDED)
def test_greedy_text_is_the_peers_or_parts_at_a_tie(name, device, tiny_file):
    row = RECORDED[name]
    path, checksum = tiny_file(name)
    assert checksum == row["checksum"], f"{name} is written with other numbers"
    text = (row["prompt"] + row["ids"])[:-1]
    with Replay(path, length=len(text), device=device, kv="f32") as replay:
        logits = replay.run([Piece(0, 0, text)])[0][len(row["prompt"]) - 1 :]
    top = np.sort(logits, axis=1)[:, -2:]
    parted = {
        step: max(float(top[step, 1] - top[step, 0]), row["gaps"][step])
        for step, token in enumerate(logits.argmax(axis=1))
        if token != row["ids"][step]
    }
    assert all(gap < NEAR for gap in parted.values()), parted
    assert len(logits) == len(row["ids"]) == 48
