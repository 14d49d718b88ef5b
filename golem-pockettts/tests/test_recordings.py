"""Every kind of model speaks as the makers' own program does, from the same seed.

`python -m ref.pocket_tts` wrote the recordings, of weights that are written here again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ref.drawn_pocket import TINY, write
from ref.pocket_tts import (
    EOS,
    EVERY,
    MANY,
    MANY_EVERY,
    MANY_LATENTS,
    MANY_MOST,
    MOST,
    SEED,
    TEXT,
    USUAL_EOS,
    checksum,
    recording,
)  # fmt: skip

from golem_core.model import Options
from golem_core.speech import Delivery, Line, Voice
from golem_core.weights import open_weights
from golem_pockettts.drawing import Drawn
from golem_pockettts.languages import published_rules
from golem_pockettts.model import PocketTts
from golem_pockettts.speaking import PocketSpeaking

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=TINY)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def recorded(variant: str) -> dict[str, np.ndarray]:
    with np.load(HERE / "recordings" / f"{variant}.npz") as found:
        return dict(found)


@pytest.fixture(scope="module")
def folder(variant: str, recorded: dict, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = HERE / "vectors" / "unigram.model"
    made = tmp_path_factory.mktemp(variant)
    write(made, variant, eos=EOS.get(variant, USUAL_EOS), tokenizer=tokenizer)
    assert checksum(made) == str(recorded["weights"]), "these are not the recorded weights"
    return made


def opened(folder: Path, device: str = "cpu") -> PocketSpeaking:
    weights = open_weights(folder)
    return PocketTts.open(weights, Options()).speaking(weights, device=device, sequences=4)


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


def test_voice_latents_and_sound(folder: Path, recorded: dict, latents: list) -> None:
    with opened(folder) as speaking:
        voice = speaking.voice(recording())
        np.testing.assert_allclose(voice.kept[-1], recorded["voice"], atol=1e-5)
        lines = speaking.lines(TEXT, MOST)
        for line, ids, rest in zip(lines, recorded["ids"], recorded["rest"], strict=True):
            assert line.ids == tuple(ids[ids >= 0])
            assert line.rest == rest
        speech = speaking.speak(TEXT, voice, Delivery(seed=SEED, max_tokens=MOST))
        sound = speech.whole()
    assert len(sound) == 1920 * recorded["frames"].sum()
    np.testing.assert_allclose(np.array(latents), recorded["latents"], atol=1e-5)
    np.testing.assert_allclose(sound[::EVERY], recorded["sound"], atol=1e-4)


@pytest.fixture(scope="module")
def many(variant: str) -> dict[str, np.ndarray]:
    with np.load(HERE / "recordings" / f"many_{variant}.npz") as found:
        return dict(found)


@pytest.fixture(scope="module")
def spoken(folder: Path, many: dict) -> Iterator[PocketSpeaking]:
    assert checksum(folder) == str(many["weights"]), "these are not the recorded weights"
    with opened(folder) as speaking:
        yield speaking


@pytest.fixture(scope="module")
def cloned(spoken: PocketSpeaking) -> Voice:
    return spoken.voice(recording())


@pytest.mark.parametrize(
    "i", range(len(MANY)), ids=[f"{name}-{i}" for i, (name, _) in enumerate(MANY)]
)
def test_texts_of_six_languages(
    spoken: PocketSpeaking,
    cloned: Voice,
    many: dict,
    latents: list,
    i: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    language, text = MANY[i]
    rules = published_rules(language, spoken.config.text.tokenizer)
    monkeypatch.setattr(spoken, "config", replace(spoken.config, text=rules))
    sound = spoken.speak(text, cloned, Delivery(seed=i, max_tokens=MANY_MOST)).whole()
    frames = many[f"{i}.frames"]
    assert len(spoken.lines(text, MANY_MOST)) == len(frames)
    assert len(sound) == 1920 * frames.sum()
    np.testing.assert_allclose(
        np.array(latents)[::MANY_LATENTS], many[f"{i}.latents"], rtol=0, atol=1e-5
    )
    np.testing.assert_allclose(sound[::MANY_EVERY], many[f"{i}.sound"], rtol=0, atol=1e-4)


def test_the_reference_says_the_same(folder: Path, recorded: dict, latents: list) -> None:
    frames = int(recorded["frames"][0])
    ids = tuple(int(i) for i in recorded["ids"][0] if i >= 0)
    line = Line("", ids, int(recorded["rest"][0]))
    with opened(folder, "reference") as speaking:
        voice = speaking.voice(recording())
        sound = speaking.speak_lines([line], voice, Delivery(seed=SEED)).whole()
    assert len(sound) == 1920 * frames
    np.testing.assert_allclose(np.array(latents), recorded["latents"][:frames], atol=1e-5)
