"""Published weights say what they are given, where weights and somebody who listens are at hand.

GOLEM_TEST_TTS_PUBLISHED  a folder of folders as `golem pull pocket-tts:NAME` leaves them, each with
                          weights, vocabulary and voices of a model that speaks English
GOLEM_TEST_TTS_LISTENER   a command that is given the path of a WAV and prints what is said in it
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from golem_core import load_speaker
from golem_core.media.encode import open_encoder
from golem_core.speech import Delivery

PLACE = os.environ.get("GOLEM_TEST_TTS_PUBLISHED", "")
LISTENER = os.environ.get("GOLEM_TEST_TTS_LISTENER", "")
FOLDERS = sorted(p.parent for p in Path(PLACE).glob("*/model.safetensors")) if PLACE else []
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Please call me tomorrow morning, before the train leaves for the city.",
)


def words(text: str) -> list[str]:
    """In small letters, without what only stands in writing."""
    return re.findall(r"[a-z']+", text.lower().replace("\u2019", "'"))


def wrong(heard: list[str], said: list[str]) -> float:
    """Words that were added, lost or changed, for each that was said."""
    row = list(range(len(said) + 1))
    for i, word in enumerate(heard, 1):
        before, row = row, [i]
        for j, other in enumerate(said, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (word != other)))
    return row[-1] / len(said)


def test_words_are_counted() -> None:
    said = words("It\u2019s a Test, a small one!")
    assert said == ["it's", "a", "test", "a", "small", "one"]
    assert wrong(said, said) == 0
    assert wrong(words("it's a test, one small"), said) == pytest.approx(2 / 6)
    assert wrong([], said) == 1


@pytest.mark.slow
@pytest.mark.skipif(not FOLDERS, reason="GOLEM_TEST_TTS_PUBLISHED names no folder with models")
@pytest.mark.skipif(not LISTENER, reason="GOLEM_TEST_TTS_LISTENER names no command")
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_what_is_said_is_heard(folder: Path, text: str, tmp_path: Path) -> None:
    path = tmp_path / "said.wav"
    with load_speaker(folder) as speaking:
        sound = speaking.speak(text, delivery=Delivery(seed=1)).whole()
        encoder = open_encoder("wav", speaking.sample_rate)
        path.write_bytes(encoder.write(sound) + encoder.finish())
        encoder.close()
    done = subprocess.run(
        [*shlex.split(LISTENER), str(path)], check=True, stdout=subprocess.PIPE, text=True
    )
    assert wrong(words(done.stdout), words(text)) <= 0.15, done.stdout
