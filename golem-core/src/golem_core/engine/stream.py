"""What an engine gives back: tokens as they come, then a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypedDict

from golem_core.sampling import Logprobs
from golem_core.text import Event


class Token(NamedTuple):
    """A token of the answer and the text that it brings.

    The text is whole characters and never a part of a stop string, so it can be empty and can
    bring what earlier tokens began. A tail that is decided by the end alone comes with the last
    token, or where the answer ends with a token that is no part of it, in a `Token` without id.
    Where the request has a reader, `text` is the content in `events`, the parts of the answer that
    this token completes.
    """

    id: int | None
    text: str
    logprobs: Logprobs | None = None
    events: tuple[Event, ...] = ()


class Timings(TypedDict):
    """Where the time of a request went, in seconds and tokens."""

    queued_seconds: float  # from submission until its prompt was begun
    prompt_tokens: int
    cached_tokens: int  # of these, what was in the pages already
    prompt_seconds: float  # from there until the first token
    generated_tokens: int
    generate_seconds: float  # from the first token until the end
    drafted_tokens: int  # guesses that were read with what they follow
    accepted_tokens: int  # of these, what the model drew as well


@dataclass(frozen=True)
class Result:
    """How a request ended."""

    ids: tuple[int, ...]  # of the answer, without the token that ended it
    text: str
    finish_reason: str  # "stop", "length", "cancelled" or "error"
    end_id: int | None  # the token that ended it; None where a stop string or a limit did
    timings: Timings
    seed: int  # with it and the same request the text can be had again
    error: Exception | None = None  # for "error"
    stop: str | None = None  # the stop string that ended it


class Stream:
    """The tokens of one request, for one thread to iterate.

    Iteration ends with the answer, or raises what made the request fail. Whoever stops listening
    must `cancel`, or use the stream as a context manager, which does.
    """

    def __init__(
        self, wake: Callable[[], None], on_event: Callable[[Token | Result], None] | None = None
    ) -> None:
        self.cancelled = False
        self._wake = wake
        self._on_event = on_event
        self._events: SimpleQueue[Token | Result] = SimpleQueue()
        self._result: Result | None = None
        self._waiting = False  # for the result alone
        self._passed = 0  # tokens that came meanwhile

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        if self._result is not None:
            raise StopIteration
        event = self._events.get()
        if isinstance(event, Token):
            return event
        self._result = event
        if event.error is not None:
            raise event.error
        raise StopIteration

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Ends the request; from any thread, as often as one likes.

        A pass that it shares with others is finished first; one of its own is given up.
        """
        self.cancelled = True
        self._wake()

    def result(self, timeout: float | None = None) -> Result:
        """Waits for the end, past any token not iterated yet, and says how it was.

        Raises what made the request fail, and `TimeoutError` when no event came for `timeout`
        seconds.
        """
        # Nobody is to be woken for a token that nobody wants: the worker threads need the cores.
        self._waiting = True
        while self._result is None:
            passed = self._passed
            try:
                event = self._events.get(timeout=timeout)
            except Empty:
                if self._passed != passed:
                    continue
                self._waiting = False
                raise TimeoutError(f"no token for {timeout} seconds") from None
            if isinstance(event, Result):
                self._result = event
        if self._result.error is not None:
            raise self._result.error
        return self._result

    def put(self, event: Token | Result) -> None:
        """The engine's side: hands `event` over. Raises what `on_event` raises."""
        if self._on_event is None:
            if self._waiting and isinstance(event, Token):
                self._passed += 1
                return
            self._events.put(event)
            return
        if isinstance(event, Result):
            self._events.put(event)
        self._on_event(event)
