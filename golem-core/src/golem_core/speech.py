"""Speech from Python and from plugins: what a loaded model that speaks offers.

    with golem_core.load_speaker("pocket-tts/english") as speaking:
        voice = speaking.voice("me.wav")
        for sound in speaking.speak("Hello there.", voice):
            ...  # float32 samples, speaking.sample_rate of them a second

A plugin's `golem_core.model.Speaker` is opened from weights and makes a `Speaking`, which owns the
programs. A `Speaking` may be asked from several threads: what is spoken at the same time shares its
passes, and nothing that is spoken depends on what else is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from golem_core.closing import Closing

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Line:
    """A piece of a text that is spoken in one go, by itself.

    text   as it is spoken, prepared
    ids    its tokens
    rest   frames that follow the one in which the model finds that it has ended
    """

    text: str
    ids: tuple[int, ...]
    rest: int


@dataclass(frozen=True)
class Delivery:
    """How a text is spoken; None is as the model recommends.

    seed              of the noise that speech is made from; None: another one each time
    temperature       of that noise, 0 for none at all
    noise_clamp       noise beyond it is drawn anew
    eos_threshold     a logit above it ends a line
    frames_after_eos  frames that follow the end
    max_tokens        tokens of a line; a longer text is spoken in several
    apart             every line has a noise of its own, so that the lines of a text are drawn in
                      the same passes; otherwise one noise goes through the text, line by line
    """

    seed: int | None = None
    temperature: float | None = None
    noise_clamp: float | None = None
    eos_threshold: float | None = None
    frames_after_eos: int | None = None
    max_tokens: int = 50
    apart: bool = False


@dataclass(frozen=True)
class SpeechTimings:
    """Seconds from when a text was handed over: to its first sound, to its last; and of sound."""

    first: float
    total: float
    sound: float


class Voice(ABC):
    """Who speaks: what a model has made of a recording. Valid with the weights that made it."""

    @property
    @abstractmethod
    def positions(self) -> int:
        """Positions that it takes of the model's past."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Writes it as the model's own makers do, to be opened by `Speaking.voice`."""


class Speech(Iterator[Samples]):
    """Sound as it is made: float32 [samples] a time, mono.

    Whoever stops listening calls `cancel`, or uses it as a context manager, which does. Sound is
    made a bounded time ahead of who takes it. Raises what the making raised.
    """

    seed: int
    sample_rate: int

    @abstractmethod
    def __next__(self) -> Samples: ...

    def __iter__(self) -> Speech:
        return self

    @abstractmethod
    def cancel(self) -> None:
        """Stops within one pass and gives everything back; iterating ends."""

    @property
    @abstractmethod
    def timings(self) -> SpeechTimings:
        """Of what was made until now."""

    @property
    @abstractmethod
    def cut(self) -> tuple[Line, ...]:
        """Lines that reached their greatest length with no end found."""

    def whole(self) -> Samples:
        """What is still to come, in one piece."""
        pieces = list(self)
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)

    def __enter__(self) -> Speech:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()


class Speaking(Closing):
    """A model that is loaded and speaks; made by `Speaker.speaking`.

    sample_rate    samples a second
    frame_rate     frames a second: what one pass makes
    clones         whether these weights can make a voice of a recording
    default_voice  name of the voice to take where nobody says; None if there is none
    """

    sample_rate: int
    frame_rate: float
    clones: bool
    default_voice: str | None

    @abstractmethod
    def voices(self) -> tuple[str, ...]:
        """Names that `voice` knows, in alphabetical order: those that lie beside the weights."""

    @abstractmethod
    def voice(self, source: str | Path | Samples) -> Voice:
        """A voice by its name, by a file of a voice, or made of a recording.

        A recording is float32 [samples] at `sample_rate`, mono, as it was read: what the model's
        makers do to it first (a trailing pause) is done here. Text is a name of `voices`; a path
        is a voice's file. Raises `NotFound`, `BadWeights` for a file that is no voice of these
        weights, and `Unsupported` where they cannot clone.
        """

    @abstractmethod
    def lines(self, text: str, max_tokens: int = 50) -> list[Line]:
        """How a text would be spoken. Raises `BadRequest` for one that has nothing to speak."""

    @abstractmethod
    def speak(
        self, text: str, voice: Voice | None = None, delivery: Delivery | None = None
    ) -> Speech:
        """Begins to speak; without a voice the default one.

        Raises `BadRequest` for a text with nothing to speak or a number out of its range.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends what is being spoken and gives all memory back."""
