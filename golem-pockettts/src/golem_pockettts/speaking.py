"""Speaks: one thread draws the frames of all lines in the same passes and decodes them.

A pass of the flow model (`flow_pass.py`) has one column for each line that is drawn, and the text
of lines that begin. What it gives is decoded by the next pass of the codec's decoder
(`decoder_pass.py`). Lines whose sound nobody takes wait. `places.py` knows which pages and slots
lines have.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from golem_core.errors import BadRequest, NoMemory, NotFound, Unsupported
from golem_core.graph.program import PAGE
from golem_core.speech import Delivery, Line, Samples, Speaking, Voice
from golem_pockettts.asked import checked
from golem_pockettts.chunks import lines as spoken_lines
from golem_pockettts.decoder_pass import FRAMES, DecoderPass, heard_pages
from golem_pockettts.drawing import Drawn, Spoken
from golem_pockettts.encoding import encoded
from golem_pockettts.flow_pass import FlowPass
from golem_pockettts.languages import default_voice
from golem_pockettts.places import LINE, Places, positions
from golem_pockettts.prompt import end_on_pause
from golem_pockettts.tokenizer import Tokenizer
from golem_pockettts.voice import PocketVoice, read_voice

if TYPE_CHECKING:
    from golem_pockettts.derived import Array
    from golem_pockettts.model import PocketTts

VOICES = ("embeddings", "voices")  # folders beside the weights

T = TypeVar("T")


class PocketSpeaking(Speaking):
    """See `Speaking`."""

    def __init__(
        self,
        model: PocketTts,
        *,
        device: str,
        threads: int,
        sequences: int,
        kept: tuple[str | None, str | None],
    ) -> None:
        c = model.config
        self.model, self.config = model, c
        self.sample_rate, self.frame_rate = c.sample_rate, c.frame_rate
        self.clones = model.clones
        self.sequences = sequences
        self._device, self._threads = device, threads
        self._tokenizer = (
            None if c.text.tokenizer is None else Tokenizer(c.text.tokenizer, c.vocab - 1)
        )
        self._places = Places(sequences, heard_pages(model))
        matrices, codec = kept
        self._flow = FlowPass(
            model, matrices, sequences=sequences, pages=self._places.count, device=device,
            threads=threads,
        )  # fmt: skip
        self._decoder = DecoderPass(
            model, codec, sequences=sequences, device=device, threads=threads
        )
        self._changed = threading.Condition()
        self._stirred = False  # something has changed since the thread last looked
        self._jobs: list[tuple[Callable[[], object], Future[object]]] = []
        self._spoken: list[Spoken] = []
        self._closed = False
        self._encoding = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="golem-speech", daemon=True)
        self._thread.start()

    # Asking

    @property
    def default_voice(self) -> str | None:  # type: ignore[override]
        """The language's usual voice, else the first that there is."""
        found = self.voices()
        usual = default_voice(self.model.folder.name)
        return usual if usual in found else next(iter(found), None)

    def voices(self) -> tuple[str, ...]:
        """See `Speaking.voices`."""
        found = {
            p.stem for name in VOICES for p in (self.model.folder / name).glob("*.safetensors")
        }
        return tuple(sorted(found))

    def voice(self, source: str | Path | Samples) -> Voice:
        """See `Speaking.voice`."""
        if isinstance(source, Path):
            return read_voice(source, self.config.model)
        if isinstance(source, str):
            if source not in self.voices():
                there = ", ".join(self.voices()) or "none"
                raise NotFound(
                    f"no voice {source!r} beside {self.model.weights.path}; there: {there}"
                )
            found = (self.model.folder / name / f"{source}.safetensors" for name in VOICES)
            return read_voice(next(p for p in found if p.exists()), self.config.model)
        return self._cloned(source)

    def lines(self, text: str, max_tokens: int = 50) -> list[Line]:
        """See `Speaking.lines`."""
        if self._tokenizer is None:
            raise NotFound(
                f"{self.model.folder} has neither tokenizer.json nor tokenizer.model, which its "
                "texts need"
            )
        return spoken_lines(text, self._tokenizer, self.config.text, max_tokens)

    def speak(
        self, text: str, voice: Voice | None = None, delivery: Delivery | None = None
    ) -> Spoken:
        """See `Speaking.speak`."""
        delivery = checked(delivery or Delivery(), self.config)
        return self.speak_lines(self.lines(text, delivery.max_tokens), voice, delivery)

    def speak_lines(
        self, lines: list[Line], voice: Voice | None = None, delivery: Delivery | None = None
    ) -> Spoken:
        """As `speak`, of lines that are made already."""
        delivery = checked(delivery or Delivery(), self.config)
        if voice is None:
            if self.default_voice is None:
                raise NotFound(f"there is no voice beside {self.model.weights.path}; give one")
            voice = self.voice(self.default_voice)
        if not isinstance(voice, PocketVoice):
            raise BadRequest("the voice is none of this model", "voice")
        rest = delivery.frames_after_eos
        if rest is not None:
            lines = [replace(line, rest=rest) for line in lines]
        room = self.sequences * LINE
        for line in lines:
            if any(not 0 <= i < self.config.vocab for i in line.ids):
                raise BadRequest("a piece of the text is not in the model's table", "input")
            need = positions(voice, len(line.ids), self.model.longest(len(line.ids)))
            if need > room:
                raise BadRequest(
                    f"a line of {len(line.ids)} pieces may need {need} positions with this voice, "
                    f"and there is room for {room}",
                    "input",
                )
        seed = secrets.randbits(32) if delivery.seed is None else delivery.seed
        made = Spoken(lines, voice, delivery, seed, self.sample_rate, self._wake)
        with self._changed:
            if self._closed:
                raise BadRequest("the model was closed")
            self._spoken.append(made)
            self._stir()
        return made

    def close(self) -> None:
        """See `Speaking.close`."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._stir()
        self._thread.join()
        self._flow.program.close()
        self._decoder.program.close()
        self.model.weights.close()

    # Voices

    def _cloned(self, samples: Samples) -> PocketVoice:
        """A recording, encoded here and read by the flow model between two passes."""
        if not self.clones:
            raise Unsupported(
                f"{self.model.weights.path} cannot make voices of recordings: these are the "
                "weights without voice cloning; use a voice's file"
            )
        if samples.ndim != 1 or not len(samples) or not np.isfinite(samples).all():
            raise BadRequest("a recording is a row of finite samples", "voice")
        samples = end_on_pause(np.asarray(samples, np.float32), self.sample_rate)
        with self._encoding:
            steps = encoded(self.model, samples, device=self._device, threads=self._threads)
        given = self.model.voiced(steps)
        room = self.sequences * LINE
        if len(given) > room // 2:
            raise BadRequest(
                f"the recording takes {len(given)} positions, more than {room // 2}", "voice"
            )
        return self._do(lambda: self._read_voice(given))

    def _read_voice(self, given: Array) -> PocketVoice:
        pages = self._places.take(-(-len(given) // PAGE), self._heard_voices())
        if pages is None:
            raise NoMemory("too much is being spoken to make a voice now")
        try:
            table = np.array(pages, np.int32)
            self._flow.read(table, given)
            return PocketVoice(self._flow.program.get(table, 0, len(given)))
        finally:
            self._places.give_back(pages)

    def _heard_voices(self) -> set[PocketVoice]:
        """Those of lines under way."""
        return {one.voice for one in self._spoken if one.drawn}

    # The thread

    def _stir(self) -> None:
        """Has the thread look what there is to do; called with `_changed` held."""
        self._stirred = True
        self._changed.notify()

    def _wake(self) -> None:
        with self._changed:
            self._stir()

    def _do(self, job: Callable[[], T]) -> T:
        """Has the thread that owns the programs do something between two passes."""
        done: Future[object] = Future()
        with self._changed:
            if self._closed:
                raise BadRequest("the model was closed")
            self._jobs.append((job, done))
            self._stir()
        return done.result()  # type: ignore[return-value]

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stirred:
                    self._changed.wait()
                self._stirred = False
                jobs, self._jobs = self._jobs, []
                closed, spoken = self._closed, list(self._spoken)
            for job, done in jobs:
                try:
                    done.set_result(job())
                except BaseException as error:
                    done.set_exception(error)
            if closed:
                for one in spoken:
                    self._leave(one, None)
                return
            try:
                went_on = self._step(spoken)
            except BaseException as error:
                for one in spoken:
                    self._leave(one, error)
                went_on = True  # others may have come
            if went_on:
                self._wake()

    def _step(self, spoken: list[Spoken]) -> bool:
        """One pass of the flow model, one of the decoder, each if there is something for it.

        Says whether there was: otherwise every text waits for who listens, or for a place.
        """
        for one in spoken:
            if one.cancelled:
                self._leave(one, None)
        began = self._begin([one for one in spoken if not one.cancelled])
        lines = [d for one in self._spoken for d in one.drawn if one.wants(d.number)]
        drawing = [d for d in lines if not d.done and len(d.steps) < FRAMES]
        self._flow.draw(drawing)
        decoding = [d for d in lines if d.steps]
        self._decoder.decode(decoding, self._places)
        over = False
        for one in list(self._spoken):
            for drawn in [d for d in one.drawn if d.done and not d.steps]:
                one.drawn.remove(drawn)
                self._places.free(drawn)
                one.line_over(drawn.number)
                over = True
            if not one.drawn and not one.lines:
                self._leave(one, None)
        return bool(began or drawing or decoding or over)

    def _leave(self, one: Spoken, error: BaseException | None) -> None:
        """A text that is over, or that nobody wants any more."""
        for drawn in one.drawn:
            self._places.free(drawn)
        one.drawn.clear()
        with self._changed:
            if one in self._spoken:
                self._spoken.remove(one)
        one.finish(error)

    def _begin(self, spoken: list[Spoken]) -> bool:
        """Lines take their places: one of each text, in turn, as long as there is room.

        Says whether one did.
        """
        began, again = False, True
        while again and self._places.slots:
            again = False
            for one in spoken:
                # With one noise through all of them lines follow each other.
                if one.lines and self._places.slots and (one.delivery.apart or not one.drawn):
                    number, line = one.lines[0]
                    if not self._place(one, line, number):
                        return began
                    one.lines.popleft()
                    began, again = True, one.delivery.apart
        return began

    def _place(self, one: Spoken, line: Line, number: int) -> bool:
        """Has a line begin; False where there is no room for it now."""
        made = Drawn(one, line, number, self.model.longest(len(line.ids)))
        if not self._places.settle(made, self._flow.program, self._heard_voices()):
            return False
        made.waiting = self.model.embedded(line.ids)
        made.draw_noise(self.config.latent)  # one is drawn for the text and not used
        one.drawn.append(made)
        return True
