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
import sys
from pathlib import Path

import pytest
from ref.drawn_pocket import write
from ref.pocket_tts import recording

from golem_core import load_speaker
from golem_core.media.encode import write_file
from golem_core.speech import Delivery

PLACE = os.environ.get("GOLEM_TEST_TTS_PUBLISHED", "")
LISTENER = os.environ.get("GOLEM_TEST_TTS_LISTENER", "")
FOLDERS = sorted(p.parent for p in Path(PLACE).glob("*/model.safetensors")) if PLACE else []
TOKENIZER = Path(__file__).parent / "vectors" / "unigram.model"
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


def heard(folder: Path, text: str, listener: str, path: Path) -> list[str]:
    """The words that a listener finds in a text that a folder's model speaks."""
    with load_speaker(folder) as speaking:
        speech = speaking.speak(text, delivery=Delivery(seed=1))
        write_file(path, speech, speaking.sample_rate, "wav")
    done = subprocess.run(
        [*shlex.split(listener), str(path)], check=True, stdout=subprocess.PIPE, text=True
    )
    return words(done.stdout)


def test_a_listener_is_given_a_whole_file(tmp_path: Path) -> None:
    """The way of the test below, with drawn weights and somebody who only counts."""
    folder = write(tmp_path / "english", "tiny_lsd", eos=-5.0, tokenizer=TOKENIZER)
    (folder / "embeddings").mkdir()
    with load_speaker(folder) as speaking:
        speaking.voice(recording()).save(folder / "embeddings" / "alba.safetensors")
    counts = tmp_path / "counts.py"
    counts.write_text(
        "import sys, wave\n"
        "with wave.open(sys.argv[1]) as file:\n"
        "    frames = file.getnframes()\n"
        "    assert len(file.readframes(frames)) == 2 * frames == 2 * 1920 * (frames // 1920)\n"
        "    print('A', 'frame' if frames else 'nothing', 'of', file.getframerate(), 'Hertz.')\n"
    )
    listener = shlex.join([sys.executable, str(counts)])
    found = heard(folder, TEXTS[0], listener, tmp_path / "said.wav")
    assert found == ["a", "frame", "of", "hertz"]
    assert wrong(found, words(TEXTS[0])) == 1


@pytest.mark.slow
@pytest.mark.skipif(not FOLDERS, reason="GOLEM_TEST_TTS_PUBLISHED names no folder with models")
@pytest.mark.skipif(not LISTENER, reason="GOLEM_TEST_TTS_LISTENER names no command")
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_what_is_said_is_heard(folder: Path, text: str, tmp_path: Path) -> None:
    found = heard(folder, text, LISTENER, tmp_path / "said.wav")
    assert wrong(found, words(text)) <= 0.15, found
