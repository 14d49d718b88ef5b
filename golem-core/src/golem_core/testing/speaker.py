"""A small model that speaks: a tone for each word. For tests of whatever speaks with a model.

It is real in all that does not concern how speech sounds: it is opened from a file of weights,
found through an entry point, makes voices of recordings, saves and opens them, cuts texts into
lines, draws by a seed, is cancelled, and counts who is speaking.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from pathlib import Path

import numpy as np

from golem_core.errors import BadRequest, BadWeights, NotFound, Unsupported
from golem_core.model import Options, Speaker
from golem_core.speech import Delivery, Line, Samples, Speaking, Speech, SpeechTimings, Voice
from golem_core.weights import Weights

__all__ = ["ToneSpeaking", "ToneSpeech", "Tones", "install_tones", "write_tones"]

RATE, FRAMES = 24000, 12.5
FRAME = int(RATE / FRAMES)
VOICES = {"high": 440.0, "low": 110.0}


def write_tones(folder: Path) -> Path:
    """Writes the weights, a folder of safetensors; gives it back."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "tones"}), encoding="utf-8")
    head = json.dumps({"gain": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    data = struct.pack("<Q", len(head)) + head + struct.pack("<f", 0.3)
    (folder / "model.safetensors").write_bytes(data)
    return folder


def install_tones(folder: Path) -> Path:
    """Writes what makes `Tones` an installed plugin once the folder is on the path of imports."""
    info = folder / "golem_tones-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: golem-tones\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[golem.models]\ntones = {__name__}:Tones\n")
    return folder


class Tones(Speaker):
    """The model of `write_tones`."""

    sample_rate = RATE
    frame_rate = FRAMES

    @classmethod
    def open(cls, weights: Weights, options: Options) -> Tones:
        """Checks that the one tensor is there."""
        if "gain" not in weights.tensors:
            raise BadWeights(f"gain is missing ({weights.path})")
        return cls()

    def speaking(
        self,
        weights: Weights,
        *,
        device: str = "cpu",
        threads: int = 1,
        sequences: int = 8,
        kept: str | None = None,
    ) -> ToneSpeaking:
        """Speaks on the processor."""
        if device != "cpu":
            raise Unsupported(f"tones are not drawn on {device}")
        if kept is not None:
            raise Unsupported(f"tones keep no weights as {kept}")
        return ToneSpeaking(weights)


class ToneVoice(Voice):
    """A pitch, in hertz."""

    positions = 1

    def __init__(self, pitch: float) -> None:
        self.pitch = pitch

    def save(self, path: Path) -> None:
        """One number as JSON."""
        path.write_text(json.dumps({"pitch": self.pitch}), encoding="utf-8")


class ToneSpeaking(Speaking):
    """Speaks in tones.

    delay     seconds that a frame takes
    speeches  those that have not ended
    """

    sample_rate = RATE
    frame_rate = FRAMES
    clones = True
    default_voice = "low"

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.delay = 0.0
        self.closed = False
        self.speeches: set[ToneSpeech] = set()

    def voices(self) -> tuple[str, ...]:
        """Two."""
        return tuple(sorted(VOICES))

    def voice(self, source: str | Path | Samples) -> ToneVoice:
        """By its name, its file, or as high as a recording crosses zero."""
        if isinstance(source, str):
            if source not in VOICES:
                raise NotFound(f"no voice is named {source!r}; there are high, low")
            return ToneVoice(VOICES[source])
        if isinstance(source, Path):
            try:
                return ToneVoice(float(json.loads(source.read_text(encoding="utf-8"))["pitch"]))
            except OSError as error:
                raise NotFound(f"{source} cannot be read: {error.strerror}") from None
            except (ValueError, LookupError, TypeError):
                raise BadWeights(f"{source} is no voice of tones") from None
        crossings = np.count_nonzero(np.diff(np.signbit(source)))
        return ToneVoice(RATE * crossings / 2 / len(source))

    def lines(self, text: str, max_tokens: int = 50) -> list[Line]:
        """So many words each."""
        words = text.split()
        if not words:
            raise BadRequest("there is nothing to speak in the text", "input")
        cut = [words[i : i + max_tokens] for i in range(0, len(words), max_tokens)]
        return [Line(" ".join(line), tuple(map(len, line)), 1) for line in cut]

    def speak(
        self, text: str, voice: Voice | None = None, delivery: Delivery | None = None
    ) -> ToneSpeech:
        """A frame for each word."""
        how = delivery or Delivery()
        if how.temperature is not None and not 0 <= how.temperature <= 2:
            raise BadRequest(f"temperature is {how.temperature:g}, not 0 to 2", "temperature")
        who = voice if isinstance(voice, ToneVoice) else ToneVoice(VOICES["low"])
        return ToneSpeech(self, self.lines(text, how.max_tokens), who.pitch, how)

    def close(self) -> None:
        """Ends all that is spoken."""
        for speech in list(self.speeches):
            speech.cancel()
        self.closed = True
        self.weights.close()


class ToneSpeech(Speech):
    """Draws a frame whenever one is taken."""

    sample_rate = RATE

    def __init__(self, of: ToneSpeaking, lines: list[Line], pitch: float, how: Delivery) -> None:
        self.seed = how.seed if how.seed is not None else time.monotonic_ns() & 0xFFFFFFFF
        self._of, self._lines, self._pitch = of, lines, pitch
        self._words = iter([n for line in lines for n in line.ids])
        self._noise = np.random.default_rng(self.seed & 0xFFFFFFFF)
        self._loud = 0.02 * (0.3 if how.temperature is None else how.temperature)
        self._begun = time.perf_counter()
        self._first, self._last, self._frames = 0.0, 0.0, 0
        self._lock = threading.Lock()
        of.speeches.add(self)

    def __next__(self) -> Samples:
        with self._lock:
            length = next(self._words, None) if self in self._of.speeches else None
            if length is None:
                self._of.speeches.discard(self)
                raise StopIteration
            time.sleep(self._of.delay)
            tone = self._pitch * (1 + length % 8 / 8)
            at = np.arange(FRAME) / RATE
            noise = self._noise.normal(0, self._loud, FRAME)
            self._frames += 1
            self._last = time.perf_counter() - self._begun
            self._first = self._first or self._last
            return (0.3 * np.sin(2 * np.pi * tone * at) + noise).astype(np.float32)

    def cancel(self) -> None:
        """Ends it."""
        self._of.speeches.discard(self)

    @property
    def timings(self) -> SpeechTimings:
        """Until now."""
        return SpeechTimings(self._first, self._last, self._frames / FRAMES)

    @property
    def cut(self) -> tuple[Line, ...]:
        """Lines with a word of more than 40 letters."""
        return tuple(line for line in self._lines if max(line.ids) > 40)
