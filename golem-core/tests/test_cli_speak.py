"""`golem speak`, with a model that speaks in tones."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import golem_core
from golem_core.cli.app import run
from golem_core.media import wave
from golem_core.media.audio import read
from golem_core.media.spectrogram import Spectrogram
from golem_core.testing.speaker import FRAME, RATE, install_tones, write_tones

soundfile = pytest.importorskip("soundfile")


GOLEM = (sys.executable, "-c", "from golem_core.cli import main; main()")


class Stdin(io.TextIOWrapper):
    """Standard input with some bytes in it, or a terminal."""

    def __init__(self, data: bytes | None = None) -> None:
        super().__init__(io.BytesIO(data or b""), encoding="utf-8")
        self._terminal = data is None

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(install_tones(tmp_path / "plugin"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", Stdin())
    monkeypatch.chdir(tmp_path)
    return str(write_tones(tmp_path / "tones"))


@pytest.fixture
def player(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program by the name of a player, which keeps what it is given in a file."""
    place = tmp_path / "bin"
    place.mkdir()
    script = f'#!/bin/sh\necho "$@" > {place}/arguments\nexec /bin/cat > {place}/heard\n'
    (place / "aplay").write_text(script)
    (place / "aplay").chmod(0o755)
    monkeypatch.setenv("PATH", str(place))
    return place


def pitch(samples: np.ndarray, rate: int = RATE) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * rate / len(samples))


def test_into_a_file(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["speak", model, "one", "three", "-o", "a.wav", "--seed", "5"]) == 0
    found = read("a.wav")
    assert (found.rate, len(found.samples)) == (RATE, 2 * FRAME)
    assert abs(pitch(found.samples[:FRAME]) - 110 * (1 + 3 / 8)) < 10
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("0.16 s of sound in 0.")
    assert "times real time), the first after 0." in err
    assert err.endswith("seed 5\n")


@pytest.mark.parametrize("ending", ["wav", "flac", "mp3", "ogg", "pcm"])
def test_formats_by_the_name_of_the_file(model: str, ending: str) -> None:
    assert run(["speak", model, *["word"] * 20, "-o", f"a.{ending}", "-q"]) == 0
    data = Path(f"a.{ending}").read_bytes()
    found = read(wave.header(RATE) + data if ending == "pcm" else data)
    assert len(found.samples) == 20 * FRAME


def test_into_a_pipe_while_it_is_made(model: str, tmp_path: Path) -> None:
    """The first sound can be read while the second text has not been written yet."""
    environment = {"PYTHONPATH": str(tmp_path / "plugin"), "PATH": "/usr/bin:/bin"}
    command = [*GOLEM, "speak", model, "-o", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment,
    ) as process:  # fmt: skip
        process.stdin.write(b"one two\n")
        process.stdin.flush()
        first = process.stdout.read(44 + 2 * 2 * FRAME)
        process.stdin.write("drei vier fünf\n\n".encode())
        process.stdin.close()
        rest = process.stdout.read()
        said = process.stderr.read().decode()
        assert process.wait() == 0, said
    assert first[:44] == wave.header(RATE)
    assert len(rest) == 3 * 2 * FRAME
    assert said.count("s of sound") == 2


def test_a_reader_that_leaves_ends_it(model: str, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(tmp_path / "plugin"), "PATH": "/usr/bin:/bin"}
    command = [*GOLEM, "speak", model, "-o", "-", "word " * 5000]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment,
    ) as process:  # fmt: skip
        assert len(process.stdout.read(1000)) == 1000
        process.stdout.close()
        assert process.wait(30) == 1
        assert b"Traceback" not in process.stderr.read()


def test_the_same_seed_is_the_same_sound(model: str) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert run(["speak", model, "hello there", "-o", f"{name}.wav", "--seed", seed, "-q"]) == 0
    a, b, c = (Path(f"{name}.wav").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_settings_of_texts_are_not_for_speech(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOLEM_TEMPERATURE", "9")
    monkeypatch.setenv("GOLEM_MAX_TOKENS", "1")
    assert run(["speak", model, "hello there", "-o", "a.wav", "-q"]) == 0
    assert run(["speak", model, "hello", "-o", "b.wav", "--temperature", "9"]) == 2
    assert capsys.readouterr().err == "golem: temperature is 9, not 0 to 2\n"
    assert not Path("b.wav").exists()


def test_voices(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["speak", model, "--voices"]) == 0
    out, err = capsys.readouterr()
    assert out == "high\nlow\n"
    assert err == "low speaks where no other is named\n"
    assert run(["speak", model, "eight888", "-o", "a.wav", "-q", "--voice", "high"]) == 0
    assert abs(pitch(read("a.wav").samples) - 440) < 13
    assert run(["speak", model, "x", "-o", "a.wav", "--voice", "nobody"]) == 3
    assert "no voice is named 'nobody'" in capsys.readouterr().err


def test_a_voice_is_made_of_a_recording_and_kept(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at = np.arange(44100 * 40) / 44100
    soundfile.write("me.flac", 0.3 * np.sin(2 * np.pi * np.where(at < 30, 700, 3000) * at), 44100)
    assert run(["speak", model, "--clone", "me.flac", "--save-voice", "me.voice"]) == 0
    assert abs(json.loads(Path("me.voice").read_text())["pitch"] - 700) < 2
    assert run(["speak", model, "eight888", "-q", "--voice", "me.voice", "-o", "a.wav"]) == 0
    assert abs(pitch(read("a.wav").samples) - 700) < 13
    assert run(["speak", model, "hi", "--clone", "none.wav", "-o", "a.wav"]) == 3
    assert run(["speak", model, "hi", "--clone", model + "/config.json", "-o", "a.wav"]) == 2
    assert "config.json is no recording that can be read" in capsys.readouterr().err
    assert run(["speak", model, "hi", "--voice", "me.flac", "-o", "a.wav"]) == 3
    assert "me.flac is no voice of tones" in capsys.readouterr().err


def test_played_without_being_asked(model: str, player: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run(["speak", model, "one two", "-q"]) == 0
    assert len((player / "heard").read_bytes()) == 2 * 2 * FRAME
    assert (player / "arguments").read_text() == "-q -t raw -f S16_LE -r 24000 -c 1 -\n"


def test_played_and_written(model: str, player: Path) -> None:
    assert run(["speak", model, "one two", "-q", "--play", "-o", "a.pcm"]) == 0
    assert (player / "heard").read_bytes() == Path("a.pcm").read_bytes()


def test_a_player_that_fails_says_why(
    model: str, player: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (player / "aplay").write_text("#!/bin/sh\necho no card >&2\nexit 3\n")
    assert run(["speak", model, "word " * 100, "-q", "--play"]) == 1
    assert capsys.readouterr().err == "golem: aplay ended with 3: no card\n"


def test_ffplay_without_a_card_is_no_success(
    model: str, player: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (player / "aplay").rename(player / "ffplay")
    said = "audio open failed\nFailed to open file 'fd:' or configure filtergraph"
    (player / "ffplay").write_text(f'#!/bin/sh\n/bin/cat > /dev/null\necho "{said}" >&2\n')
    assert run(["speak", model, "one two", "-q", "--play"]) == 1
    told = capsys.readouterr().err
    assert told == f"golem: ffplay ended with 0: {said.partition(chr(10))[2]}\n"


def test_without_a_player_it_is_said(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run(["speak", model, "hi", "--play"]) == 1
    assert "none of paplay, aplay, pw-play, ffplay is installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no text: give one, or pipe one"),
        (["x", "--voice", "a", "--clone", "b"], 2, "--voice and --clone exclude each other"),
        (["x", "-o", "a.txt"], 2, "a.txt has the ending 'txt', expected one of .wav"),
        (["x", "-o", "a", "--format", "ogv"], 2, "--format is 'ogv', expected one of wav"),
        (["...", "-o", "a.wav", "--save-voice", "v"], 2, "--save-voice needs --clone or --voice"),
        (["x", "-o", "a.wav", "--device", "reference"], 1, "tones are not drawn on reference"),
        (["x", "-o", "a.wav", "--weights", "Q8_0"], 1, "tones keep no weights as Q8_0"),
        ([" ", "-o", "a.wav"], 2, "there is nothing to speak in the text"),
        (["x", "-o", "none/a.wav"], 1, "none/a.wav"),
    ],
)
def test_what_is_refused(model, capsys, arguments, code, message) -> None:
    assert run(["speak", model, *arguments]) == code
    assert message in capsys.readouterr().err
    assert not Path("a.wav").exists()


def test_a_model_that_writes_text_does_not_speak(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    (tmp_path / "tones" / "config.json").write_text('{"model_type": "nothing"}')
    assert run(["speak", model, "hi", "-o", "a.wav"]) == 1
    assert "no installed plugin runs 'nothing'" in capsys.readouterr().err


def test_lines_with_no_end_are_told(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["speak", model, "x" * 60, "-o", "a.wav", "-q"]) == 0
    assert capsys.readouterr().err == f"no end was found in time of: {'x' * 60}\n"


def test_standard_input_that_is_no_text(model: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(b"good\n\xff\xfe\n"))
    assert run(["speak", model, "-o", "a.wav", "-q"]) == 2
    assert "line 2 of standard input is not UTF-8" in capsys.readouterr().err
    assert not Path("a.wav").exists()


def test_a_picture(model: str) -> None:
    image = pytest.importorskip("PIL.Image")
    text = ["eight888"] * 20
    assert run(["speak", model, *text, "-o", "a.wav", "--spectrogram", "a.png", "-q"]) == 0
    with image.open("a.png") as picture:
        assert picture.size[0] >= 320
        pixels = np.asarray(picture.convert("L"), float)
    # One bright line, where the tone is: 110 Hz of 12,000 is near the bottom of the picture.
    inside = pixels[10 : 10 + 384, 60:300]
    assert inside.mean(axis=1).argmax() > 370
    assert inside[:300].mean() < inside[372:].mean() / 2


def test_a_picture_of_silence_and_of_nothing(tmp_path: Path) -> None:
    taken = Spectrogram(RATE)
    with pytest.raises(golem_core.BadRequest, match="too little sound"):
        taken.levels()
    taken.add(np.zeros(RATE, np.float32))
    assert (taken.levels() == -80).all()
    tone = Spectrogram(RATE)
    for piece in np.split(np.sin(2 * np.pi * 3000 * np.arange(RATE) / RATE).astype("f4"), 40):
        tone.add(piece)
    levels = tone.levels()
    assert tone.seconds == 1.0
    assert levels.shape[0] == (RATE + 768 - 1024) // 256 + 1
    assert (levels[5:-5].argmax(axis=1) == 3000 * 1024 // RATE).all()


def test_from_python(model: str) -> None:
    with golem_core.load_speaker(model) as speaking:
        voice = speaking.voice("high")
        with speaking.speak("eight888 eight888", voice, golem_core.Delivery(seed=1)) as speech:
            first = next(speech)
            assert first.dtype == np.float32
            assert len(speech.whole()) == FRAME
            assert list(speech) == []
        assert speech.timings.sound == 2 / speaking.frame_rate
        begun = time.monotonic()
        with speaking.speak("word " * 10_000) as speech:
            next(speech)
        assert time.monotonic() - begun < 5
        assert speaking.speeches == set()
