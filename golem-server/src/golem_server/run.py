"""One request's answers on the engine, for a handler to iterate.

    async with Run(served, ask) as run:
        async for index, event in run:      # an engine Token, or the Result of that answer
            for piece in run.choices[index].take(event):
                ...

The engine's thread hands its events over without waiting: they are at most as many as the tokens
that were asked for, so a reader that is slow slows only itself. Whoever leaves the block, by an
error or because the client has gone, ends what is still being drawn within one pass.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

from golem_core.engine import Request, Result, Stream, Token
from golem_server.ask import Ask
from golem_server.choice import Choice
from golem_server.errors import ApiError
from golem_server.metrics import Watch
from golem_server.models import Served

__all__ = ["Run"]

Event = tuple[int, Token | Result]


class Run:
    """The answers to one `Ask`.

    Once it is entered, `requests` are what the engine was asked, and `choices` are to take the
    events of each, by its index.
    Entering raises `ApiError` for what cannot be asked, iterating for what fails on the way.
    """

    def __init__(self, served: Served, ask: Ask) -> None:
        self._served = served
        self._ask = ask
        self._streams: list[Stream] = []
        self._watches: list[Watch] = []
        self._gone = False  # nobody iterates any more
        self._events: deque[Event] = deque()
        self._ready = asyncio.Event()
        self._told = False  # the loop knows of events, or will; set and read on both threads
        self._left = 0
        self.requests: list[Request] = []
        self.choices: list[Choice] = []

    async def __aenter__(self) -> Run:
        self.requests = await self._served.in_thread(self._ask.prepare, self._served)
        self._left = len(self.requests)
        self._watches = [self._served.watch() for _ in self.requests]
        tokenizer = self._served.model.tokenizer
        self.choices = [Choice(i, tokenizer, r.reader) for i, r in enumerate(self.requests)]
        loop = asyncio.get_running_loop()
        try:
            # Without a wait in between: nobody can leave before all are submitted.
            for index, request in enumerate(self.requests):
                heard = dataclasses.replace(request, on_event=self._listener(loop, index))
                self._streams.append(self._served.model.engine.submit(heard))
        except Exception as error:
            self._leave()
            raise self._ask.error(error) from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._left:
            self._leave()

    def _leave(self) -> None:
        """Ends what is still being drawn within one pass; what comes until then is counted."""
        for stream in self._streams:
            stream.cancel()
        self._gone = True
        self._wake()

    def _wake(self) -> None:
        self._ready.set()
        if self._gone:
            self._told = False
            while self._events:
                self._take()

    def _take(self) -> Event:
        index, event = self._events.popleft()
        self._watches[index].event(event)
        if isinstance(event, Result):
            self._left -= 1
        return index, event

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> Event:
        if not self._left and not self._events:
            raise StopAsyncIteration
        while not self._events:
            self._ready.clear()
            self._told = False
            if not self._events:  # one may have come before it was said that it is waited for
                await self._ready.wait()
        index, event = self._take()
        if isinstance(event, Result):
            self._check(event)
        return index, event

    def _check(self, result: Result) -> None:
        if result.error is not None:
            raise self._ask.error(result.error) from result.error
        if result.finish_reason == "cancelled":
            raise ApiError(503, "the model was closed before the answer ended", code="model_closed")

    def _listener(
        self, loop: asyncio.AbstractEventLoop, index: int
    ) -> Callable[[Token | Result], Any]:
        def on_event(event: Token | Result) -> None:
            # On the engine's thread. One wake-up for all that comes until the reader has them.
            self._events.append((index, event))
            if not self._told:
                self._told = True
                loop.call_soon_threadsafe(self._wake)

        return on_event
