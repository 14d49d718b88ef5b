"""Models of the real shapes beside the makers' own program, where both are at hand.

GOLEM_TEST_TTS            a folder of folders, each with a model.yaml and its weights, such as
                          `python -m ref.drawn_pocket FOLDER english --eos=-5 --pieces 420
                          --tokenizer golem-pockettts/tests/vectors/unigram.model` writes
GOLEM_TEST_TTS_PUBLISHED  a folder of folders as `golem pull pocket-tts:NAME` leaves them
GOLEM_TEST_TTS_PYTHON     an interpreter with pocket-tts, by default the one that runs the tests
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ref.pocket_tts import (
    EVERY,
    MANY,
    MANY_EVERY,
    MANY_LATENTS,
    MANY_MOST,
    MOST,
    SEED,
    TEXT,
    recording,
)

from golem_core.model import Options
from golem_core.speech import Delivery, Voice
from golem_core.weights import open_weights
from golem_pockettts.drawing import Drawn
from golem_pockettts.languages import published_rules
from golem_pockettts.model import PocketTts
from golem_pockettts.speaking import PocketSpeaking

ROOT = Path(__file__).parent.parent.parent
PLACES = {"GOLEM_TEST_TTS": "model.yaml", "GOLEM_TEST_TTS_PUBLISHED": "model.safetensors"}
PYTHON = os.environ.get("GOLEM_TEST_TTS_PYTHON", sys.executable)
FOLDERS = sorted(
    path.parent
    for variable, file in PLACES.items()
    if (place := os.environ.get(variable))
    for path in Path(place).glob(f"*/{file}")
)


def makers() -> bool:
    """Whether there is the makers' program."""
    return not subprocess.run([PYTHON, "-c", "import pocket_tts"], capture_output=True).returncode


of_each = pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
where_named = pytest.mark.skipif(
    not FOLDERS, reason=f"neither of {', '.join(PLACES)} names a folder with models in it"
)


def theirs(kind: str, folder: Path, out: Path) -> dict[str, np.ndarray]:
    """What the makers' program makes of a model: `--of` or `--many` of ref.pocket_tts."""
    if not makers():
        pytest.skip(f"{PYTHON} has no pocket-tts; GOLEM_TEST_TTS_PYTHON may name another one")
    command = [PYTHON, "-m", "ref.pocket_tts", kind, str(folder), str(out)]
    subprocess.run(command, check=True, cwd=ROOT)
    with np.load(out) as found:
        return dict(found)


def voiced(speaking: PocketSpeaking) -> Voice:
    """The voice of `recording`, or where the weights make none the folder's first."""
    return speaking.voice(recording() if speaking.clones else speaking.voices()[0])


@pytest.fixture
def latents(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What is drawn and spoken, in the order in which it is."""
    found: list[np.ndarray] = []
    take = Drawn.take

    def taking(self: Drawn, latent: np.ndarray, *rest) -> None:
        frames = self.frames
        take(self, latent, *rest)
        if self.frames > frames:
            found.append(latent)

    monkeypatch.setattr(Drawn, "take", taking)
    return found


@pytest.mark.slow
@where_named
@of_each
def test_as_the_makers(folder: Path, tmp_path: Path, latents: list) -> None:
    wanted = theirs("--of", folder, tmp_path / "theirs.npz")
    weights = open_weights(folder)
    with PocketTts.open(weights, Options()).speaking(weights, threads=2) as speaking:
        voice = voiced(speaking)
        np.testing.assert_allclose(voice.kept[-1], wanted["voice"], atol=1e-5)
        delivery = Delivery(seed=SEED, max_tokens=MOST)
        sound = speaking.speak(TEXT, voice, delivery).whole()
    assert len(sound) == 1920 * wanted["frames"].sum()
    np.testing.assert_allclose(np.array(latents), wanted["latents"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(sound[::EVERY], wanted["sound"], rtol=0, atol=1e-4)


@pytest.mark.slow
@where_named
@of_each
def test_twenty_texts_as_the_makers(
    folder: Path, tmp_path: Path, latents: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = theirs("--many", folder, tmp_path / "many.npz")
    weights = open_weights(folder)
    with PocketTts.open(weights, Options()).speaking(weights, threads=2) as speaking:
        voice, config = voiced(speaking), speaking.config
        for i, (language, text) in enumerate(MANY):
            rules = published_rules(language, config.text.tokenizer)
            monkeypatch.setattr(speaking, "config", replace(config, text=rules))
            latents.clear()
            sound = speaking.speak(text, voice, Delivery(seed=i, max_tokens=MANY_MOST)).whole()
            assert len(sound) == 1920 * wanted[f"{i}.frames"].sum(), text
            np.testing.assert_allclose(
                np.array(latents)[::MANY_LATENTS], wanted[f"{i}.latents"], rtol=0, atol=1e-5
            )
            np.testing.assert_allclose(sound[::MANY_EVERY], wanted[f"{i}.sound"], rtol=0, atol=1e-4)
