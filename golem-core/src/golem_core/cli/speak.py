"""`golem speak`: a text as sound, to a file, a pipe or the loudspeaker, while it is made."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import click

from golem_core.cli.options import effective, model_argument, note, setting_options
from golem_core.cli.terminal import Waiting
from golem_core.errors import BadRequest

if TYPE_CHECKING:
    from golem_core.speech import Delivery, Samples, Speaking, Speech, Voice

# Fields of `golem_core.speech.Delivery`; no settings, since what suits texts does not suit speech.
DELIVERY = (
    "seed",
    "temperature",
    "noise_clamp",
    "eos_threshold",
    "frames_after_eos",
    "max_tokens",
    "apart",
)
CLONED = 30.0  # seconds of a recording that a voice is made of, as the makers of Pocket TTS do


class Sink(Protocol):
    """Where sound goes."""

    def write(self, samples: Samples) -> None:
        """The next samples."""

    def finish(self) -> None:
        """There are no more."""

    def close(self) -> None:
        """Finished or not: gives back what it holds."""


@click.command()
@model_argument
@click.argument("text", nargs=-1)
@click.option(
    "-o", "--output", metavar="FILE",
    help="Write the sound here; - is standard output, which can be played while it is made.",
)  # fmt: skip
@click.option(
    "--format", "form", metavar="NAME",
    help="wav, flac, mp3, opus, aac or pcm. [default: by the file's name; wav to a pipe]",
)  # fmt: skip
@click.option("--play", is_flag=True, help="Play it (paplay, aplay, pw-play or ffplay).")
@click.option("--spectrogram", metavar="FILE", help="Also write a picture of the sound, a PNG.")
@click.option("--voice", metavar="VOICE", help="A voice by its name, or a file of a voice.")
@click.option("--clone", metavar="FILE", help="The voice of a recording: of its first 30 s.")
@click.option("--save-voice", metavar="FILE", help="Write the voice to a file, for --voice.")
@click.option("--voices", is_flag=True, help="List the names of the model's voices, and leave.")
@click.option("--seed", type=int, metavar="N", help="The same seed is the same sound.")
@click.option("--temperature", type=float, metavar="X", help="How varied it is; 0 not at all.")
@click.option("--noise-clamp", type=float, metavar="X", help="Draw noise beyond X anew.")
@click.option("--eos-threshold", type=float, metavar="X", help="A logit above it ends a line.")
@click.option("--frames-after-eos", type=click.IntRange(0), metavar="N", help="After the end.")
@click.option(
    "--max-tokens", type=click.IntRange(1), default=50, show_default=True, metavar="N",
    help="Tokens of a line; a longer text is spoken in several.",
)  # fmt: skip
@click.option("--apart", is_flag=True, help="Draw the lines of a text in the same passes: faster.")
@click.option("--weights", metavar="FORMAT", help="How to keep the weights, such as Q8_0.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing of times and seeds.")
@setting_options("device", "threads")
def command(
    model: str,
    text: tuple[str, ...],
    output: str | None,
    form: str | None,
    play: bool,
    spectrogram: str | None,
    voice: str | None,
    clone: str | None,
    save_voice: str | None,
    voices: bool,
    quiet: bool,
    weights: str | None,
    **options: Any,
) -> None:
    """Speak a text, to a file, a pipe or the loudspeaker.

    Without a text, standard input is spoken line by line as it comes. Without -o and --play the
    sound is played, or written to standard output where that is a pipe.
    """
    if voice is not None and clone is not None:
        raise click.UsageError("--voice and --clone exclude each other")
    how = {name: options.pop(name) for name in DELIVERY}
    settings = effective(options)
    if text == ("-",):
        text = ()
    silent = voices or (save_voice is not None and not text and sys.stdin.isatty())
    if not text and not silent and sys.stdin.isatty():
        raise click.UsageError("no text: give one, or pipe one")
    to = None if silent else _destination(output, play)
    if to is not None:
        form = _format(to, form)
    from golem_core import load_speaker
    from golem_core.speech import Delivery

    with ExitStack() as stack:
        with Waiting("loading") as waiting:

            def say(line: str) -> None:
                waiting.done()
                note(line)

            speaking = stack.enter_context(
                load_speaker(
                    model,
                    device=settings["device"],
                    threads=settings["threads"],
                    weights=weights,
                    say=say,
                )
            )
        if voices:
            for name in speaking.voices():
                click.echo(name)
            if speaking.default_voice is not None and not quiet:
                note(f"{speaking.default_voice} speaks where no other is named")
            return
        with Waiting("listening" if clone is not None else "loading the voice"):
            who = _voice(speaking, voice, clone)
            if save_voice is not None:
                if who is None:
                    raise click.UsageError("--save-voice needs --clone or --voice")
                who.save(Path(save_voice))
        if silent:
            return
        sinks = _sinks(speaking.sample_rate, to, form, play or to is None)
        if spectrogram is not None:
            sinks.append(_Picture(Path(spectrogram), speaking.sample_rate))
        for sink in sinks:
            stack.callback(sink.close)
        _speak(speaking, _texts(text), who, Delivery(**how), sinks, quiet)


def _speak(
    speaking: Speaking,
    texts: Iterator[str],
    voice: Voice | None,
    how: Delivery,
    sinks: list[Sink],
    quiet: bool,
) -> None:
    """Everything, text by text; Ctrl-C ends it at once."""
    for text in texts:
        with speaking.speak(text, voice, how) as speech:
            _heard(speech, sinks, quiet)
            for line in speech.cut:
                note(f"no end was found in time of: {line.text}")
            if not quiet:
                note(_rates(speech))
    for sink in sinks:
        sink.finish()


def _heard(speech: Speech, sinks: list[Sink], quiet: bool) -> None:
    begun, made = time.perf_counter(), 0
    with Waiting("speaking") as waiting:
        if quiet:
            waiting.done()
        for samples in speech:
            for sink in sinks:
                sink.write(samples)
            made += len(samples)
            seconds = made / speech.sample_rate
            pace = seconds / max(time.perf_counter() - begun, 1e-6)
            waiting.say(f"speaking: {seconds:.1f} s of sound, {pace:.1f} times real time,")


def _rates(speech: Speech) -> str:
    """One line of what was spoken and what it cost."""
    t = speech.timings
    pace = t.sound / t.total if t.total > 0 else 0.0
    return (
        f"{t.sound:.2f} s of sound in {t.total:.2f} s ({pace:.1f} times real time), "
        f"the first after {t.first:.2f} s, seed {speech.seed}"
    )


def _destination(output: str | None, play: bool) -> str | None:
    """The file that sound goes to, - for standard output; None where it is only played."""
    if output is not None or play:
        return output
    if not sys.stdout.isatty():
        return "-"
    return None


def _format(to: str, form: str | None) -> str:
    from golem_core.media.encode import FORMATS, format_of

    if form is None:
        return "wav" if to == "-" else format_of(to)
    if form not in FORMATS:
        raise BadRequest(f"--format is {form!r}, expected one of {', '.join(FORMATS)}", "format")
    return form


def _voice(speaking: Speaking, voice: str | None, clone: str | None) -> Voice | None:
    if clone is not None:
        from golem_core.media.audio import read

        return speaking.voice(read(clone, first=CLONED).at(speaking.sample_rate).samples)
    if voice is None:
        return None
    if voice not in speaking.voices() and Path(voice).is_file():
        return speaking.voice(Path(voice))
    return speaking.voice(voice)


def _texts(given: tuple[str, ...]) -> Iterator[str]:
    """The text of the command line, or the lines of standard input that have something in them."""
    if given:
        yield " ".join(given)
        return
    stream = getattr(sys.stdin, "buffer", None)
    for number, line in enumerate(sys.stdin if stream is None else stream, 1):
        try:
            text = line if isinstance(line, str) else line.decode("utf-8")
        except UnicodeDecodeError:
            raise BadRequest(f"line {number} of standard input is not UTF-8", "text") from None
        if text.strip():
            yield text


def _sinks(rate: int, to: str | None, form: str | None, play: bool) -> list[Sink]:
    found: list[Sink] = []
    if to is not None:
        assert form is not None
        found.append(_File(to, form, rate))
    if play:
        from golem_core.media.play import Player

        found.append(Player(rate))
    return found


class _File:
    """A file or standard output; a file that was not finished is deleted."""

    def __init__(self, to: str, form: str, rate: int) -> None:
        from golem_core.media.encode import open_encoder

        self._path = None if to == "-" else Path(to)
        self._encoder = open_encoder(form, rate, again=self._path is not None)
        self._file: BinaryIO = sys.stdout.buffer if self._path is None else self._path.open("wb")
        self._finished = False

    def write(self, samples: Samples) -> None:
        """Through to whoever reads, at once."""
        self._file.write(self._encoder.write(samples))
        self._file.flush()

    def finish(self) -> None:
        """The last bytes, and the sizes in the header where it is a file."""
        from golem_core.media.encode import put_in

        self._file.write(self._encoder.finish())
        if self._path is not None:
            put_in(self._file, self._encoder)
        self._file.flush()
        self._finished = True

    def close(self) -> None:
        """Closes the file."""
        self._encoder.close()
        if self._path is not None:
            self._file.close()
            if not self._finished:
                self._path.unlink(missing_ok=True)


class _Picture:
    """A spectrogram, once the sound is whole."""

    def __init__(self, path: Path, rate: int) -> None:
        from golem_core.media.spectrogram import Spectrogram

        self._path, self._taken = path, Spectrogram(rate)

    def write(self, samples: Samples) -> None:
        """Takes samples."""
        self._taken.add(samples)

    def finish(self) -> None:
        """Writes the picture."""
        self._taken.save(self._path)

    def close(self) -> None:
        """Has nothing to give back."""
