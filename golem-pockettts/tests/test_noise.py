"""Noise that equals PyTorch's, as recorded by ref/pocket_text.py; and recordings made ready."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from golem_core.errors import BadRequest
from golem_pockettts.noise import Noise
from golem_pockettts.prompt import end_on_pause

VECTORS = Path(__file__).parent / "vectors"
ROWS = json.loads((VECTORS / "noise.json").read_text(encoding="utf-8"))
PROMPTS = json.loads((VECTORS / "prompts.json").read_text(encoding="utf-8"))


def wave(rate: int, seconds: float) -> np.ndarray:
    """As ref/pocket_text.py draws it."""
    t = np.arange(int(rate * seconds)) / rate
    tones = (110.0, 220.0, 1500.0, 3400.0)
    sound = sum(np.sin(2 * np.pi * f * t * (1 + 0.05 * t)) / f for f in tones)
    return (20 * sound * np.exp(-3 * t)).astype(np.float32)


@pytest.mark.parametrize("one", ROWS, ids=lambda one: f"{one['seed']}-{one['width']}")
def test_numbers_are_pytorch_s(one: dict) -> None:
    noise = Noise(one["seed"])
    for row in one["rows"]:
        found = noise.draw(one["width"], one["std"], one["clamp"])
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, row, rtol=0, atol=2.5e-7 * max(1, one["std"]))


def test_no_temperature_takes_as_many_words_as_any_other() -> None:
    first, second = Noise(3), Noise(3)
    assert not first.draw(32, 0.0).any()
    assert not second.draw(32, 0.0, 0.5).any()
    assert (first.draw(32, 1.0) == second.draw(32, 1.0)).all()


def test_noise_stays_within_its_bounds() -> None:
    for std, clamp in ((1.0, 0.5), (1.0, 0.01), (0.1, 3.0)):
        found = np.concatenate([Noise(seed).draw(32, std, clamp) for seed in range(50)])
        assert np.abs(found).max() <= np.float32(clamp)
        assert len(np.unique(found)) > 1500
    with pytest.raises(BadRequest, match="noise_clamp is 0"):
        Noise(1).draw(32, 1.0, 0.0)


@pytest.mark.parametrize("one", PROMPTS, ids=lambda one: f"{one['seconds']}-{one['silence']}")
def test_recordings_end_on_a_pause(one: dict) -> None:
    silence = np.zeros(int(24000 * one["silence"]), np.float32)
    given = np.concatenate([wave(24000, one["seconds"]), silence])
    kept = given.copy()
    found = end_on_pause(given, 24000)
    assert len(found) == one["samples"]
    np.testing.assert_allclose(found[one["places"]], one["values"], rtol=0, atol=1e-7)
    assert (given == kept).all()
