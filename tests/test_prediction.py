"""The prediction block's guesses against the block in torch, float32, to 1e-4 of the largest logit.

The recordings are of `ref/prediction.py` (`python -m ref.record waypoints`). The guess at position
k is asked for after the trunk has read what comes before, so the keys and values that reading
filled in are held too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ref import tiny
from ref.replay import Piece, Replay
from ref.tiny_qwen35 import Qwen35

RECORDINGS = Path(__file__).parent / "recordings" / "waypoints"
TOLERANCE = 1e-4
PREDICTING = [
    name
    for name in tiny.WAYPOINTS
    if isinstance(model := tiny.TINY[name], Qwen35) and model.predicts
]


@pytest.fixture(params=PREDICTING)
def recorded(request, tiny_file):
    """The file of a model, its recording's ids, positions, guesses, and their largest value."""
    path, checksum = tiny_file(request.param)
    with np.load(RECORDINGS / f"{request.param}.npz") as recording:
        assert checksum == str(recording["in/checksum"])
        guesses = recording["in/guesses"]
        return path, recording["in/ids"], recording["in/rows"], guesses, np.abs(guesses).max()


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_guesses_after_one_pass(recorded, device):
    path, ids, rows, guesses, peak = recorded
    for row, guess in zip(rows, guesses, strict=True):
        with Replay(path, length=len(ids), device=device, kv="f32") as replay:
            if row:
                replay.run([Piece(0, 0, ids[:row])])
            (found,) = replay.draft([Piece(0, row, ids[row : row + 1])])
        assert np.abs(found - guess).max() <= TOLERANCE * peak, f"at {row}"


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_guesses_before_every_token(recorded, device):
    """Of three sequences in company, each read token by token, two tokens apart."""
    path, ids, rows, guesses, peak = recorded
    with Replay(path, length=len(ids), sequences=3, device=device, kv="f32") as replay:
        for step in range(len(ids) + 4):
            now = [
                Piece(sequence, at, ids[at : at + 1])
                for sequence in range(3)
                if 0 <= (at := step - 2 * sequence) < len(ids)
            ]
            for piece, found in zip(now, replay.draft(now), strict=True):
                if piece.start in rows:
                    guess = guesses[rows == piece.start][0]
                    assert np.abs(found - guess).max() <= TOLERANCE * peak, f"at {piece.start}"
            replay.run(now)
