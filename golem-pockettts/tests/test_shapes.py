"""Models of the real shapes beside the makers' own program, where both are at hand.

GOLEM_TEST_TTS         a folder of folders, each with a model.yaml and its weights, such as
                       `python -m ref.drawn_pocket FOLDER english --eos=-5 --pieces 420
                       --tokenizer golem-pockettts/tests/vectors/unigram.model` writes
GOLEM_TEST_TTS_PYTHON  an interpreter with pocket-tts, by default the one that runs the tests
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ref.pocket_tts import EVERY, MOST, SEED, TEXT, recording

from golem_core.model import Options
from golem_core.speech import Delivery
from golem_core.weights import open_weights
from golem_pockettts.drawing import Drawn
from golem_pockettts.model import PocketTts

ROOT = Path(__file__).parent.parent.parent
PLACE = os.environ.get("GOLEM_TEST_TTS", "")
PYTHON = os.environ.get("GOLEM_TEST_TTS_PYTHON", sys.executable)
FOLDERS = sorted(path.parent for path in Path(PLACE).glob("*/model.yaml")) if PLACE else []


def makers() -> bool:
    """Whether there is the makers' program."""
    return not subprocess.run([PYTHON, "-c", "import pocket_tts"], capture_output=True).returncode


@pytest.mark.slow
@pytest.mark.skipif(not FOLDERS, reason="GOLEM_TEST_TTS names no folder with models in it")
@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_as_the_makers(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not makers():
        pytest.skip(f"{PYTHON} has no pocket-tts; GOLEM_TEST_TTS_PYTHON may name another one")
    out = tmp_path / "theirs.npz"
    command = [PYTHON, "-m", "ref.pocket_tts", "--of", str(folder), str(out)]
    subprocess.run(command, check=True, cwd=ROOT)
    with np.load(out) as found:
        theirs = dict(found)
    latents: list[np.ndarray] = []
    take = Drawn.take

    def taking(self: Drawn, latent: np.ndarray, *rest) -> None:
        frames = self.frames
        take(self, latent, *rest)
        if self.frames > frames:
            latents.append(latent)

    monkeypatch.setattr(Drawn, "take", taking)
    weights = open_weights(folder)
    with PocketTts.open(weights, Options()).speaking(weights, threads=2) as speaking:
        voice = speaking.voice(recording())
        np.testing.assert_allclose(voice.kept[-1], theirs["voice"], atol=1e-5)
        delivery = Delivery(seed=SEED, max_tokens=MOST)
        sound = speaking.speak(TEXT, voice, delivery).whole()
    assert len(sound) == 1920 * theirs["frames"].sum()
    np.testing.assert_allclose(np.array(latents), theirs["latents"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(sound[::EVERY], theirs["sound"], rtol=0, atol=1e-4)
