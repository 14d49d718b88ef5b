"""What a person sees of an answer: its text, its calls of tools, and, beside it, its thoughts.

Text and calls go to standard output, thoughts to standard error, so that what is piped on is the
answer alone.
"""

from __future__ import annotations

import json
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from golem_core.cli.options import note
from golem_core.cli.terminal import Waiting, write

if TYPE_CHECKING:
    from golem_core.text import Event

__all__ = ["THOUGHTS", "AnswerPrinter", "call_line"]

THOUGHTS = ("show", "fold", "hide")


class AnswerPrinter:
    """Writes the parts of one answer as they come. As a context it ends the line, however it ends.

    thoughts  ``show`` writes them dimmed, ``fold`` says how long they took, ``hide`` leaves them
              out; None shows them on a terminal and hides them elsewhere
    """

    def __init__(self, thoughts: str | None = None) -> None:
        shown = "show" if sys.stderr.isatty() else "hide"
        self._thoughts = shown if thoughts is None else thoughts
        self._names: dict[int, str] = {}
        self._ends_line = True
        self._thinking: float | None = None  # since when
        self._thought_ends_line = True
        self._waiting: Waiting | None = None

    def take(self, event: Event) -> None:
        """Writes one part."""
        from golem_core.text import CallBegun, CallDone, Content, Thought

        if isinstance(event, Thought):
            self._think(event.text)
            return
        self._end_thought()
        if isinstance(event, Content):
            self._end_wait()
            write(event.text)
            self._ends_line = event.text.endswith("\n")
        elif isinstance(event, CallBegun):
            self._names[event.index] = event.name
            self._wait(f"calling {event.name}")
        elif isinstance(event, CallDone):
            self._line(call_line(self._names[event.index], event.arguments))
        else:
            self._end_line()
            note(f"(a call of a tool was cut off: {event.text!r})")

    def __enter__(self) -> AnswerPrinter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._ends_line = False  # ^C stands in it
        self._end_thought()
        self._end_line()

    def _line(self, text: str) -> None:
        self._end_line()
        write(text + "\n")

    def _end_line(self) -> None:
        self._end_wait()
        if not self._ends_line:
            write("\n")
            self._ends_line = True

    def _think(self, text: str) -> None:
        if self._thinking is None:
            self._end_line()
            self._thinking = time.monotonic()
            if self._thoughts != "show":
                self._wait("thinking")
        if self._thoughts == "show":
            write(text, sys.stderr, dim=True)
            self._thought_ends_line = text.endswith("\n")

    def _end_thought(self) -> None:
        if self._thinking is None:
            return
        seconds = time.monotonic() - self._thinking
        self._thinking = None
        self._end_wait()
        if self._thoughts == "fold":
            note(f"(thought for {seconds:.1f} s)")
        elif self._thoughts == "show":
            write("\n" if self._thought_ends_line else "\n\n", sys.stderr)

    def _wait(self, what: str) -> None:
        self._end_wait()
        self._waiting = Waiting(what).__enter__()

    def _end_wait(self) -> None:
        if self._waiting is not None:
            self._waiting.done()
            self._waiting = None


def call_line(name: str, arguments: dict[str, Any]) -> str:
    """A call as a person reads it: ``weather(city="Oslo", days=3)``."""
    given = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return f"{name}({', '.join(given)})"
