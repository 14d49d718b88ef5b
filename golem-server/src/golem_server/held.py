"""A loaded model as the routes use it: it writes text, or speaks, or embeds."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from golem_core import Embedding, LanguageModel, Speaking, Voice
from golem_core.embedding import Embedded, Ranked
from golem_server.metrics import Metrics, SpeechWatch, Watch
from golem_server.settings import ServeSettings

__all__ = ["Held", "Offer", "Served", "ServedEmbedder", "ServedSpeaker"]

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", Embedded, Ranked)

KEPT_VOICES = 16  # of a model, the least recently used leave first


@dataclass(frozen=True)
class Offer:
    """A model that can be asked for."""

    id: str
    reference: str  # as `golem_core.load` takes it
    created: int  # seconds since 1970: of the file, or of the server's start


class Held(ABC):
    """A loaded model, whatever it does.

    capabilities  what it can do: ``completion``, and by its file ``chat``, ``tools``; or
                  ``speech``, ``embedding``, ``rerank``
    """

    capabilities: frozenset[str]

    def __init__(
        self, offer: Offer, settings: ServeSettings, metrics: Metrics, threads: ThreadPoolExecutor
    ) -> None:
        self.id = offer.id
        self.created = offer.created
        self.reference = offer.reference
        self.settings = settings
        self.users = 0
        self.used = time.monotonic()
        self._metrics = metrics
        self._threads = threads

    @property
    @abstractmethod
    def ended(self) -> BaseException | None:
        """Why it answers nobody any more; None while it does."""

    @property
    @abstractmethod
    def running(self) -> int:
        """Answers that are being drawn."""

    @property
    @abstractmethod
    def context(self) -> int | None:
        """Positions that a conversation may hold; None where there are none."""

    @abstractmethod
    def close(self) -> None:
        """Ends it and gives its memory back; takes a while."""

    async def in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs what takes long (a template, a tokenizer, a grammar) beside the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))


class Served(Held):
    """A loaded model that writes text, as the routes use it."""

    def __init__(
        self, offer: Offer, model: LanguageModel, settings: ServeSettings, metrics: Metrics,
        threads: ThreadPoolExecutor,
    ) -> None:  # fmt: skip
        super().__init__(offer, settings, metrics, threads)
        self.model = model
        self.capabilities = frozenset(
            name
            for name, can in (
                ("completion", True),
                ("chat", model.template is not None),
                ("tools", model.format is not None),
            )
            if can
        )

    @property
    def ended(self) -> BaseException | None:
        """What ended the engine."""
        return self.model.engine.ended

    @property
    def running(self) -> int:
        """Answers that are being drawn."""
        return self.model.engine.stats().running

    @property
    def context(self) -> int | None:
        """Positions that a conversation may hold."""
        return self.model.context

    def close(self) -> None:
        """Ends the engine."""
        self.model.close()

    def watch(self) -> Watch:
        """Counts one answer: give it every `Token` and the `Result` as they reach the loop."""
        return self._metrics.watch(self.id)

    def most_tokens(self, asked: int | None) -> int | None:
        """How many tokens an answer may have: what is asked for, within the server's cap."""
        cap = self.settings.max_tokens
        if cap is None or asked is None:
            return cap if asked is None else asked
        return min(cap, asked)


class ServedSpeaker(Held):
    """A loaded model that speaks."""

    capabilities = frozenset({"speech"})
    ended = None  # nothing ends it but `close`
    context = None

    def __init__(
        self, offer: Offer, speaking: Speaking, settings: ServeSettings, metrics: Metrics,
        threads: ThreadPoolExecutor,
    ) -> None:  # fmt: skip
        super().__init__(offer, settings, metrics, threads)
        self.speaking = speaking
        # Whoever waits for sound keeps a thread, as many as are spoken at a time.
        self._makers = ThreadPoolExecutor(settings.max_sequences, "golem-speech")
        self._voices: OrderedDict[str, Voice] = OrderedDict()
        self._voices_lock = threading.Lock()

    @property
    def running(self) -> int:
        """Texts that are being spoken."""
        return self._metrics.speaking(self.id)

    async def made(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs what waits for sound."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._makers, lambda: function(*args, **kwargs))

    def voice(self, name: str) -> Voice:
        """A voice by its name; the last ones are kept. Raises as `Speaking.voice`."""
        with self._voices_lock:
            voice = self._voices.get(name)
        if voice is None:
            voice = self.speaking.voice(name)
        with self._voices_lock:
            self._voices[name] = voice
            self._voices.move_to_end(name)
            while len(self._voices) > KEPT_VOICES:
                self._voices.popitem(last=False)
        return voice

    def watch(self) -> SpeechWatch:
        """Counts one text that is spoken."""
        return self._metrics.watch_speech(self.id)

    def close(self) -> None:
        """Ends what is spoken."""
        self.speaking.close()
        self._makers.shutdown(wait=False)


class ServedEmbedder(Held):
    """A loaded model that makes vectors of texts, or scores pairs of them."""

    ended = None  # nothing ends it but `close`

    def __init__(
        self, offer: Offer, embedding: Embedding, settings: ServeSettings, metrics: Metrics,
        threads: ThreadPoolExecutor,
    ) -> None:  # fmt: skip
        super().__init__(offer, settings, metrics, threads)
        self.embedding = embedding
        self.capabilities = frozenset({"rerank" if embedding.scores else "embedding"})
        # Whoever waits for a pass keeps a thread; those who wait together share the next pass.
        self._askers = ThreadPoolExecutor(max(2, settings.max_sequences), "golem-embed")
        self._running = 0
        metrics.add_embedder(self.id, lambda: self._running)

    @property
    def running(self) -> int:
        """Requests that are being answered."""
        return self._running

    @property
    def context(self) -> int | None:
        """Tokens that a text may have."""
        return self.embedding.length

    async def asked(self, function: Callable[P, E], *args: P.args, **kwargs: P.kwargs) -> E:
        """Runs what waits for passes, and counts what came of it."""
        loop, begun = asyncio.get_running_loop(), time.perf_counter()
        self._running += 1
        try:
            made = await loop.run_in_executor(self._askers, lambda: function(*args, **kwargs))
        finally:
            self._running -= 1
        self._metrics.ended_embedding(self.id, made.tokens, time.perf_counter() - begun)
        return made

    def close(self) -> None:
        """Gives the memory back, when what is being asked is answered."""
        self._metrics.remove_embedder(self.id)
        self._askers.shutdown(wait=True)
        self.embedding.close()
