"""Speaks: one thread draws the frames of all lines in the same passes and decodes them.

A pass of the flow model has one column for each line that is drawn, and the text of lines that
begin. What it gives is decoded by the next pass of the codec's decoder: at once where somebody
waits for sound, else several frames at a time. Lines whose sound nobody takes wait.
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

from golem_core.errors import BadRequest, NoMemory, NotFound, PassFailed, Unsupported
from golem_core.graph import Batch
from golem_core.graph.program import PAGE
from golem_core.speech import Delivery, Line, Samples, Speaking, Voice
from golem_pockettts.chunks import lines as spoken_lines
from golem_pockettts.drawing import Drawn, Spoken
from golem_pockettts.languages import default_voice
from golem_pockettts.noise import Noise
from golem_pockettts.prompt import end_on_pause
from golem_pockettts.tokenizer import Tokenizer
from golem_pockettts.voice import PocketVoice, read_voice

if TYPE_CHECKING:
    from golem_pockettts.derived import Array
    from golem_pockettts.model import PocketTts

WIDTH = 256  # columns of a pass of the flow model
FRAMES = 8  # of a pass of the decoder
TOGETHER = 4  # frames of a line that are decoded at a time where nobody waits
LINE = 1024  # positions of the lines that there is room for at the same time, each
FADE = 0.005  # seconds over which a line's first samples are faded in
VOICES = ("embeddings", "voices")  # folders beside the weights

T = TypeVar("T")


class PocketSpeaking(Speaking):
    """See `Speaking`."""

    def __init__(
        self, model: PocketTts, *, device: str, threads: int, sequences: int, kept: str | None
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
        pages = sequences * (LINE // PAGE)
        _, flow = part = model.flow(kept)
        self._outcome = flow.outcome
        self._flow = model.program(
            part, device=device, width=WIDTH, outputs=sequences, pages=pages, states=0,
            threads=threads,
        )  # fmt: skip
        columns = FRAMES * c.stride
        heard = ((c.decoder_layers.window or 0) + columns) // PAGE + 2
        self._decoder = model.program(
            model.decoder(), device=device, width=columns, outputs=columns,
            pages=sequences * heard, states=sequences, threads=threads,
        )  # fmt: skip
        self._pages = list(range(pages - 1, -1, -1))
        self._heard_pages = list(range(sequences * heard - 1, -1, -1))
        self._slots = list(range(sequences - 1, -1, -1))
        self._resident: dict[
            PocketVoice, list[int]
        ] = {}  # full pages, the one used last at the end
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
        delivery = self._checked(delivery or Delivery())
        return self.speak_lines(self.lines(text, delivery.max_tokens), voice, delivery)

    def speak_lines(
        self, lines: list[Line], voice: Voice | None = None, delivery: Delivery | None = None
    ) -> Spoken:
        """As `speak`, of lines that are made already."""
        delivery = self._checked(delivery or Delivery())
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
            need = self._positions(line, voice)
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

    def _checked(self, d: Delivery) -> Delivery:
        """With the model's own numbers where none are given."""
        c = self.config
        d = replace(
            d,
            temperature=c.temperature if d.temperature is None else d.temperature,
            eos_threshold=c.eos_threshold if d.eos_threshold is None else d.eos_threshold,
        )
        for name, value, least, most in (
            ("temperature", d.temperature, 0, 10),
            ("noise_clamp", d.noise_clamp, 1e-6, 1e6),
            ("eos_threshold", d.eos_threshold, -1e6, 1e6),
            ("frames_after_eos", d.frames_after_eos, 0, 1000),
            ("max_tokens", d.max_tokens, 1, 1 << 20),
        ):
            if value is not None and not least <= value <= most:
                raise BadRequest(f"{name} is {value}, which is out of its range", name)
        return d

    def _positions(self, line: Line, voice: PocketVoice) -> int:
        longest = self.model.longest(len(line.ids))
        pages = -(-(voice.positions + len(line.ids) + longest) // PAGE) + 1
        return pages * PAGE

    def close(self) -> None:
        """See `Speaking.close`."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._stir()
        self._thread.join()
        self._flow.close()
        self._decoder.close()
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
        given = self.model.voiced(self._encoded(samples))
        room = self.sequences * LINE
        if len(given) > room // 2:
            raise BadRequest(
                f"the recording takes {len(given)} positions, more than {room // 2}", "voice"
            )
        return self._do(lambda: self._read_voice(given))

    def _encoded(self, samples: Samples) -> Array:
        """Steps of 200 Hz, [stride * frames, width]."""
        c = self.config
        hop = c.samples // c.stride
        samples = np.concatenate([samples, np.zeros(-len(samples) % c.samples, np.float32)])
        columns = samples.reshape(-1, hop)
        width = 4 * c.stride
        pages = -(-len(columns) // PAGE) + 1
        with self._encoding:
            program = self.model.program(
                self.model.encoder(), device=self._device, width=width, outputs=width,
                pages=pages, states=1, threads=self._threads,
            )  # fmt: skip
            try:
                found = []
                table = np.arange(pages, dtype=np.int32)[None]
                for at in range(0, len(columns), width):
                    part = columns[at : at + width]
                    n = len(part)
                    keeps = np.full(n, -1, np.int32)
                    keeps[-1] = 0
                    batch = Batch(
                        ids=np.zeros(n, np.int32),
                        positions=np.arange(at, at + n, dtype=np.int32),
                        sequence=np.zeros(n, np.int32),
                        pages=(table,),
                        outputs=np.arange(n, dtype=np.int32),
                        states=np.array([0 if at else -1], np.int32),
                        keeps=keeps,
                        inputs={"samples": part},
                    )
                    found.append(program.run(batch).copy())
                return np.concatenate(found)
            finally:
                program.close()

    def _read_voice(self, given: Array) -> PocketVoice:
        pages = self._take_pages(-(-len(given) // PAGE))
        if pages is None:
            raise NoMemory("too much is being spoken to make a voice now")
        try:
            table = np.array(pages, np.int32)
            for at in range(0, len(given), WIDTH):
                part = given[at : at + WIDTH]
                self._flow.run(self._columns([(table, at, part, None)]))
            return PocketVoice(self._flow.get(table, 0, len(given)))
        finally:
            self._pages += pages

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
        self._draw(drawing)
        decoding = [d for d in lines if d.steps]
        self._decode(decoding)
        over = False
        for one in list(self._spoken):
            for drawn in [d for d in one.drawn if d.done and not d.steps]:
                one.drawn.remove(drawn)
                self._free(drawn)
                one.line_over(drawn.number)
                over = True
            if not one.drawn and not one.lines:
                self._leave(one, None)
        return bool(began or drawing or decoding or over)

    def _leave(self, one: Spoken, error: BaseException | None) -> None:
        """A text that is over, or that nobody wants any more."""
        for drawn in one.drawn:
            self._free(drawn)
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
        while again and self._slots:
            again = False
            for one in spoken:
                # With one noise through all of them lines follow each other.
                if one.lines and self._slots and (one.delivery.apart or not one.drawn):
                    number, line = one.lines[0]
                    if not self._place(one, line, number):
                        return began
                    one.lines.popleft()
                    began, again = True, one.delivery.apart
        return began

    def _place(self, one: Spoken, line: Line, number: int) -> bool:
        """Gives a line its pages; False where there are too few now."""
        voice = one.voice
        whole, left = divmod(voice.positions, PAGE)
        longest = self.model.longest(len(line.ids))
        own = self._take_pages(
            -(-(left + len(line.ids) + longest) // PAGE),
            whole if voice not in self._resident else 0,
            voice,
        )
        if own is None:
            return False
        if voice not in self._resident:
            self._resident[voice], own = own[:whole], own[whole:]
            self._flow.put(
                np.array(self._resident[voice], np.int32),
                0,
                [k[:, : whole * PAGE] for k in voice.kept],
            )
        self._resident[voice] = self._resident.pop(voice)
        made = Drawn(one, line, number, longest)
        made.own, made.slot = own, self._slots.pop()
        made.table = np.array([*self._resident[voice], *own], np.int32)
        self._flow.put(made.table, whole * PAGE, [k[:, whole * PAGE :] for k in voice.kept])
        made.position = voice.positions
        made.waiting = self.model.embedded(line.ids)
        made.noise = Noise(one.seed + number) if one.delivery.apart else one.noise
        self._noise(made)  # one is drawn for the text and not used
        one.drawn.append(made)
        return True

    def _take_pages(
        self, count: int, more: int = 0, keep: PocketVoice | None = None
    ) -> list[int] | None:
        """So many pages, for which voices that nobody speaks with may have to go; None: too few."""
        count += more
        used = {one.voice for one in self._spoken if one.drawn}
        for voice in list(self._resident):
            if len(self._pages) >= count:
                break
            if voice not in used and voice is not keep:
                self._pages += self._resident.pop(voice)
        if len(self._pages) < count:
            return None
        taken = self._pages[len(self._pages) - count :]
        del self._pages[len(self._pages) - count :]
        return taken

    def _free(self, drawn: Drawn) -> None:
        self._pages += drawn.own
        self._heard_pages += drawn.heard.values()
        self._slots.append(drawn.slot)
        drawn.own, drawn.heard = [], {}

    def _noise(self, drawn: Drawn) -> Array:
        d = drawn.spoken.delivery
        assert drawn.noise is not None
        assert d.temperature is not None
        return drawn.noise.draw(self.config.latent, d.temperature**0.5, d.noise_clamp)

    # The flow model

    def _draw(self, lines: list[Drawn]) -> None:
        """A column of each line whose text is read, and as much text as fits beside them."""
        parts = []
        taken: list[Drawn] = []
        room = WIDTH - sum(not len(d.waiting) for d in lines)
        for drawn in lines:
            text = drawn.waiting[:room] if len(drawn.waiting) else drawn.waiting
            if len(drawn.waiting) and not len(text):
                continue
            room -= len(text)
            rest = drawn.waiting[len(text) :]
            draws = not len(rest) and (not len(text) or room > 0)
            room -= bool(len(text) and draws)
            parts.append((drawn.table, drawn.position, text, drawn if draws else None))
            drawn.waiting = rest
            drawn.position += len(text) + draws
            if draws:
                taken.append(drawn)
        if not parts:
            return
        result = self._flow.run(self._columns(parts))
        o, c = self._outcome, self.config
        for row, drawn in zip(result, taken, strict=True):
            if not np.isfinite(row[: o.eos + 1]).all():
                raise PassFailed(
                    "the model computes what no sound can be made of", "result", "nan_result"
                )
            threshold = drawn.spoken.delivery.eos_threshold
            assert threshold is not None
            drawn.take(
                row[o.latent].copy(),
                row[o.scaled].copy(),
                float(row[o.eos]),
                row[o.frames].reshape(c.stride, c.outer).copy(),
                threshold,
            )

    def _columns(self, parts: list[tuple[np.ndarray, int, Array, Drawn | None]]) -> Batch:
        """A pass: of each line its table, its position, what it is given, and who draws."""
        c = self.config
        counts = [len(text) + (drawn is not None) for _, _, text, drawn in parts]
        n, m = sum(counts), sum(drawn is not None for *_, drawn in parts)
        positions, sequence = np.empty(n, np.int32), np.empty(n, np.int32)
        given = np.zeros((n, c.model.width), np.float32)
        latent = np.zeros((n, c.latent), np.float32)
        noise = np.zeros((m, c.latent), np.float32)
        previous = np.zeros((m, c.latent), np.float32)
        outputs: list[int] = []
        tables = np.full((len(parts), max(len(t) for t, *_ in parts)), -1, np.int32)
        at = 0
        for i, ((table, position, text, drawn), count) in enumerate(
            zip(parts, counts, strict=True)
        ):
            tables[i, : len(table)] = table
            positions[at : at + count] = np.arange(position, position + count)
            sequence[at : at + count] = i
            given[at : at + len(text)] = text
            at += count
            if drawn is not None:
                latent[at - 1] = self._begin_latent if drawn.latent is None else drawn.latent
                noise[len(outputs)] = self._noise(drawn)
                if drawn.scaled is not None:
                    previous[len(outputs)] = drawn.scaled
                outputs.append(at - 1)
        return Batch(
            ids=np.zeros(n, np.int32),
            positions=positions,
            sequence=sequence,
            pages=(tables,),
            outputs=np.array(outputs, np.int32),
            inputs={"given": given, "latent": latent, "noise": noise, "previous": previous},
        )

    @property
    def _begin_latent(self) -> Array:
        """What stands for the frame before the first."""
        return self.model.weights.tensors["flow_lm.bos_emb"].dequantize()

    # The decoder

    def _decode(self, lines: list[Drawn]) -> None:
        """Frames to sound, of lines where somebody waits for it or enough have gathered."""
        stride = self.config.stride
        chosen: list[tuple[Drawn, int]] = []
        room = FRAMES
        for drawn in lines:
            wanted = drawn.done or not drawn.began or drawn.spoken.hurried
            if room and (wanted or len(drawn.steps) >= TOGETHER):
                chosen.append((drawn, min(room, len(drawn.steps))))
                room -= chosen[-1][1]
        if not chosen:
            return
        columns = [count * stride for _, count in chosen]
        n = sum(columns)
        positions, sequence = np.empty(n, np.int32), np.empty(n, np.int32)
        keeps = np.full(n, -1, np.int32)
        steps = np.empty((n, self.config.outer), np.float32)
        at = 0
        for i, ((drawn, count), own) in enumerate(zip(chosen, columns, strict=True)):
            self._hear(drawn, own)
            positions[at : at + own] = np.arange(drawn.at, drawn.at + own)
            sequence[at : at + own] = i
            steps[at : at + own] = np.concatenate([drawn.steps.popleft() for _ in range(count)])
            at += own
            keeps[at - 1] = drawn.slot
        tables = np.full((len(chosen), max(max(d.heard) for d, _ in chosen) + 1), -1, np.int32)
        for i, (drawn, _) in enumerate(chosen):
            tables[i, list(drawn.heard)] = list(drawn.heard.values())
        result = self._decoder.run(
            Batch(
                ids=np.zeros(n, np.int32),
                positions=positions,
                sequence=sequence,
                pages=(tables,),
                outputs=np.arange(n, dtype=np.int32),
                states=np.array([d.slot if d.began else -1 for d, _ in chosen], np.int32),
                keeps=keeps,
                inputs={"steps": steps},
            )
        )
        at = 0
        for (drawn, _), own in zip(chosen, columns, strict=True):
            sound = result[at : at + own].reshape(-1).copy()
            at += own
            if not drawn.began:
                fade = min(int(FADE * self.sample_rate), len(sound))
                sound[:fade] *= np.linspace(0, 1, fade, dtype=np.float32)
            drawn.began = True
            drawn.at += own
            drawn.spoken.put(drawn.number, sound)

    def _hear(self, drawn: Drawn, columns: int) -> None:
        """Pages for the decoder's next columns; those that its window has left are given back."""
        window = self.config.decoder_layers.window or 0
        first = max(0, drawn.at - window + 1) // PAGE
        for place in [p for p in drawn.heard if p < first]:
            self._heard_pages.append(drawn.heard.pop(place))
        for place in range(drawn.at // PAGE, (drawn.at + columns - 1) // PAGE + 1):
            if place not in drawn.heard:
                drawn.heard[place] = self._heard_pages.pop()
