"""A text while it is spoken: its lines, each with its noise and its places, and what listens.

`Spoken` is what a caller has in hand; the thread that draws puts sound into it. `Drawn` is one line
of it, from its first piece of text to its last frame.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from golem_core.speech import Delivery, Line, Samples, Speech, SpeechTimings
from golem_pockettts.derived import Array
from golem_pockettts.noise import Noise
from golem_pockettts.voice import PocketVoice

EARLIEST = 6  # frames before which no end is believed
AHEAD = 8.0  # seconds of sound that are made before somebody takes them


class Drawn:
    """One line under way.

    table     pages of its keys and values, the voice's first
    position  where its next column stands
    waiting   what its next columns are given: the rest of its text; then nothing
    steps     of the codec, [stride, outer] a frame, that are still to be decoded
    """

    def __init__(self, spoken: Spoken, line: Line, number: int, longest: int) -> None:
        self.spoken, self.line, self.number, self.longest = spoken, line, number, longest
        # One noise goes through the text, or every line has its own.
        apart = spoken.delivery.apart
        self.noise = Noise(spoken.seed + number) if apart else spoken.noise
        self.waiting: Array = np.zeros((0, 0), np.float32)
        self.table = np.zeros(0, np.int32)
        self.own: list[int] = []
        self.position = 0
        self.slot = -1
        self.heard: dict[int, int] = {}  # the decoder's pages, by place in its table
        self.at = 0  # where the decoder stands
        self.latent: Array | None = None  # of the frame before; None before the first
        self.scaled: Array | None = None
        self.steps: deque[Array] = deque()
        self.frames = 0  # drawn
        self.end: int | None = None  # the frame in which the end was found
        self.done = False  # no further frame
        self.began = False  # something of it was decoded

    def draw_noise(self, count: int) -> Array:
        """The next numbers of the noise, float32 [count]."""
        d = self.spoken.delivery
        assert d.temperature is not None
        return self.noise.draw(count, d.temperature**0.5, d.noise_clamp)

    def take(
        self, latent: Array, scaled: Array, eos: float, steps: Array, threshold: float
    ) -> None:
        """A frame: kept, unless it is the one after the last."""
        if self.end is None and self.frames >= EARLIEST and eos > threshold:
            self.end = self.frames
        if self.end is not None and self.frames >= self.end + self.line.rest:
            self.done = True
            return
        self.latent, self.scaled = latent, scaled
        self.steps.append(steps)
        self.frames += 1
        if self.frames == self.longest:
            self.done = True
            self.spoken.was_cut(self.line)


class Spoken(Speech):
    """See `Speech`. `lines` wait, `drawn` are under way; sound comes in the order of the lines."""

    def __init__(
        self,
        lines: list[Line],
        voice: PocketVoice,
        delivery: Delivery,
        seed: int,
        sample_rate: int,
        wake: Callable[[], None],
    ) -> None:
        self.voice, self.delivery, self.seed, self.sample_rate = voice, delivery, seed, sample_rate
        self.lines = deque(enumerate(lines))
        self.drawn: list[Drawn] = []
        self.noise = Noise(seed)
        self.cancelled = False
        self._wake = wake
        self._changed = threading.Condition()
        self._sound: deque[Samples] = deque()
        self._behind: dict[int, list[Samples]] = {}  # of lines whose turn has not come
        self._turn = 0
        self._held = 0  # samples that could be taken
        self._early = 0  # samples of lines whose turn has not come
        self._made = 0
        self._cut: list[Line] = []
        self._begun = time.monotonic()
        self._first = self._last = 0.0
        self._over = False
        self._error: BaseException | None = None

    # Whoever listens

    def __next__(self) -> Samples:
        with self._changed:
            while not self._sound:
                if self._error is not None:
                    raise self._error
                if self._over or self.cancelled:
                    raise StopIteration
                self._changed.wait()
            found = self._sound.popleft()
            full = self.full
            self._held -= len(found)
        if full:
            self._wake()
        return found

    def cancel(self) -> None:
        """See `Speech.cancel`."""
        with self._changed:
            if self._over:
                return
            self.cancelled = True
            self._sound.clear()
            self._changed.notify_all()
        self._wake()

    @property
    def timings(self) -> SpeechTimings:
        """See `Speech.timings`."""
        with self._changed:
            return SpeechTimings(self._first, self._last, self._made / self.sample_rate)

    @property
    def cut(self) -> tuple[Line, ...]:
        """See `Speech.cut`."""
        with self._changed:
            return tuple(self._cut)

    # The thread that draws

    @property
    def full(self) -> bool:
        """Whether enough is made ahead of who listens."""
        return self._held >= AHEAD * self.sample_rate

    def wants(self, number: int) -> bool:
        """Whether a line shall go on: the one whose turn it is always, until enough is made ahead.

        Lines behind it stop when they have as much for each line under way, which nobody can take
        before their turn.
        """
        room = AHEAD * self.sample_rate * len(self.drawn)
        return not self.full and (number == self._turn or self._early < room)

    @property
    def hurried(self) -> bool:
        """Whether sound is wanted as soon as it is there: as long as little is made ahead."""
        return self._made / self.sample_rate < self._last - self._first + 0.5

    def was_cut(self, line: Line) -> None:
        """A line reached its greatest length."""
        with self._changed:
            self._cut.append(line)

    def put(self, number: int, sound: Samples) -> None:
        """Sound of a line, given on in the order of the lines."""
        with self._changed:
            self._made += len(sound)
            self._last = time.monotonic() - self._begun
            if number == self._turn:
                self._first = self._first or self._last
                self._sound.append(sound)
                self._held += len(sound)
                self._changed.notify_all()
            else:
                self._behind.setdefault(number, []).append(sound)
                self._early += len(sound)

    def line_over(self, number: int) -> None:
        """A line has no more sound."""
        with self._changed:
            self._behind.setdefault(number, []).append(np.zeros(0, np.float32))
            over = {n for n, pieces in self._behind.items() if pieces and not len(pieces[-1])}
            while self._turn in over:
                self._behind.pop(self._turn)
                self._turn += 1
                waiting = [p for p in self._behind.get(self._turn, []) if len(p)]
                self._sound.extend(waiting)
                self._held += sum(map(len, waiting))
                self._early -= sum(map(len, waiting))
                if self._turn in self._behind:
                    self._behind[self._turn] = [p for p in self._behind[self._turn] if not len(p)]
            self._changed.notify_all()

    def finish(self, error: BaseException | None = None) -> None:
        """Nothing comes any more."""
        with self._changed:
            self._over, self._error = True, error
            self._changed.notify_all()
