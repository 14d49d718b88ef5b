"""What a person sees while a model answers: its text, and how long they have been waiting."""

from __future__ import annotations

import re
import sys
import threading
import time
from types import TracebackType
from typing import TextIO

import click

__all__ = ["Waiting", "write"]

# A model may draw any text, and on a terminal a control character is a command to it. Newline
# and tab are text. The rest of C0, delete and C1 are shown as what they are: not text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def write(text: str, to: TextIO | None = None, *, dim: bool = False) -> None:
    """Writes a piece of an answer at once; on a terminal without control characters.

    `dim` makes it fainter there, where colours are not turned off.
    """
    stream = sys.stdout if to is None else to
    terminal = stream.isatty()
    if terminal:
        text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
    context = click.get_current_context(silent=True)
    coloured = terminal if context is None or context.color is None else context.color
    if dim and coloured:
        text = click.style(text, dim=True)
    stream.write(text)
    stream.flush()


class Waiting:
    """A line on standard error that says what is awaited and for how long; gone when it is over.

    Only on a terminal, and only once the wait has lasted long enough to be noticed.
    """

    _NOTICED = 0.3  # seconds
    _STEP = 0.1

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._shown = False

    def __enter__(self) -> Waiting:
        if self._stream.isatty():
            self._thread = threading.Thread(target=self._tick, name="golem-waiting", daemon=True)
            self._thread.start()
        return self

    def say(self, what: str) -> None:
        """Changes what is awaited."""
        self._what = what

    def done(self) -> None:
        """Takes the line away; doing it twice does no harm."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._shown:
            self._shown = False
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.done()

    def _tick(self) -> None:
        start = time.monotonic()
        wait = self._NOTICED
        while not self._over.wait(wait):
            wait = self._STEP
            self._shown = True
            self._stream.write(f"\r\x1b[2K{self._what} {time.monotonic() - start:.1f} s")
            self._stream.flush()
