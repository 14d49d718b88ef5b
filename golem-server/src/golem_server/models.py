"""The models of a server: which there are, which are loaded, who is using them.

    use ─ known? ─ loaded? ── yes ──────────────┬─ Held, counted while in use
                     └ no ─ load (once, for all that wait) ─┘

A model is loaded in a thread when it is first asked for, and unloaded when it has been idle for
long or when another one needs its memory. One that writes text is held as `Served`, one that speaks
as `ServedSpeaker`, one that embeds as `ServedEmbedder`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from typing import TypeVar

from golem_core import Embedding, LanguageModel, Speaking, hub
from golem_core.errors import NotFound
from golem_core.sampling import vocabulary
from golem_server.errors import NO_RETRY, ApiError
from golem_server.held import Held, Offer, Served, ServedEmbedder, ServedSpeaker
from golem_server.kinds import embeds, speaks
from golem_server.metrics import Metrics
from golem_server.named import named
from golem_server.room import Room
from golem_server.settings import ServeSettings

__all__ = ["Held", "Models", "Offer", "Served", "ServedEmbedder", "ServedSpeaker"]

T = TypeVar("T")

log = logging.getLogger("golem.server")

TEXT_THREADS = 4  # for templates and tokenizers, beside the loop


class Models:
    """All models of a server; belongs to one event loop."""

    def __init__(self, settings: ServeSettings, metrics: Metrics) -> None:
        """Raises `BadRequest` for two models of one name, `NotFound` for a file that is absent."""
        self.settings = settings
        self.metrics = metrics
        self._started = int(time.time())
        self._named = named(settings, self._started)
        wanted = settings.default
        if wanted is not None and wanted not in [offer.id for offer in self.offers()]:
            raise NotFound(f"--default {wanted} is no model that is offered")
        self._served: dict[str, Held] = {}
        self._loading: dict[str, asyncio.Task[Held]] = {}
        self._fetching: set[str] = set()  # of these, what is still on its way to this machine
        self._room = Room(settings.memory)
        self._loader = ThreadPoolExecutor(1, "golem-load")  # one at a time: memory is counted
        self._threads = ThreadPoolExecutor(TEXT_THREADS, "golem-text")
        self._idle: asyncio.Task[None] | None = None
        self._retired: list[Held] = []  # whose engine has ended, and who are still in use
        self.started: asyncio.Task[Held] | None = None

    # What there is

    def offers(self) -> list[Offer]:
        """The models that can be asked for; those named at the start first."""
        if self._named:
            return list(self._named.values())
        return [Offer(m.name, m.name, self._started) for m in hub.known()]

    def find(self, name: str | None) -> Offer:
        """The model of an id; None is the default. Raises `ApiError` 404 ``model_not_found``."""
        offers = self.offers()
        wanted = self.settings.default if name is None else name
        if wanted is None and offers:
            return offers[0]
        for offer in offers:
            if wanted in (offer.id, offer.reference, f"{offer.id}.gguf"):
                return offer
        listed = ", ".join(offer.id for offer in offers[:8]) or "none"
        what = "no model is offered" if wanted is None else f"no model is named {wanted!r}"
        raise ApiError(404, f"{what}; there are: {listed}", param="model", code="model_not_found")

    def loaded(self) -> list[Held]:
        """The models that are loaded, without counting as a use."""
        return list(self._served.values())

    def peek(self, name: str | None) -> Held | None:
        """A model if it is loaded; no use, so it does not keep the model from being unloaded."""
        return self._served.get(self.find(name).id)

    @property
    def loading(self) -> list[str]:
        """Ids of the models that are being loaded."""
        return list(self._loading)

    @property
    def starting(self) -> bool:
        """Whether the model that is loaded at the start is not there yet."""
        return self.started is not None and not self.started.done()

    @property
    def failed(self) -> list[Held]:
        """Loaded models whose engine has ended; the next use loads them again."""
        return [served for served in self.loaded() if served.ended is not None]

    async def speakers(self) -> list[Offer]:
        """The models that speak, of those whose files are here; none is loaded to find out."""
        offers = self.offers()
        loop = asyncio.get_running_loop()
        kinds = [
            "speech" in self._served[offer.id].capabilities
            if offer.id in self._served
            else await loop.run_in_executor(self._threads, speaks, offer.reference)
            for offer in offers
        ]
        return [offer for offer, kind in zip(offers, kinds, strict=True) if kind]

    # Using them

    def begin(self) -> None:
        """Begins to load the default model, where one was named; `started` says how it went."""
        if self.settings.preload and (self._named or self.settings.default is not None):
            self.started = asyncio.create_task(self._get(self.find(None), told=False))
            self.started.add_done_callback(_log_failure)

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncIterator[Served]:
        """A model that writes, loaded if it was not, which stays so until the block is left.

        Raises `ApiError`: 404 for an unknown one, 501 for one that speaks, otherwise what keeps it
        from being loaded.
        """
        async with self._using(self.find(name)) as held:
            if not isinstance(held, Served):
                does = "speaks" if isinstance(held, ServedSpeaker) else "embeds"
                raise _cannot(f"{held.id} {does} and writes no text")
            yield held

    @asynccontextmanager
    async def use_speaker(self, name: str | None) -> AsyncIterator[ServedSpeaker]:
        """As `use`, a model that speaks; None is the first that does.

        One that writes text is refused by its file, without being loaded.
        """
        if name is None:
            speakers = await self.speakers()
            offer = speakers[0] if speakers else self.find(None)
        else:
            offer = self.find(name)
        if offer.id not in self._served:
            loop = asyncio.get_running_loop()
            if await loop.run_in_executor(self._threads, speaks, offer.reference) is False:
                raise _cannot(f"{offer.id} writes text and does not speak")
        async with self._using(offer) as held:
            if not isinstance(held, ServedSpeaker):
                raise _cannot(f"{held.id} writes text and does not speak")
            yield held

    @asynccontextmanager
    async def use_embedder(
        self, name: str | None, capability: str = "embedding"
    ) -> AsyncIterator[ServedEmbedder]:
        """As `use`, a model that makes vectors, or with ``rerank`` one that scores pairs.

        None is the first that embeds. One that does not is refused by its file, without being
        loaded.
        """
        loop = asyncio.get_running_loop()
        offer = self.find(name)
        if name is None:
            for other in self.offers():
                if await loop.run_in_executor(self._threads, embeds, other.reference):
                    offer = other
                    break
        what = "makes no embeddings" if capability == "embedding" else "does not rerank"
        if offer.id not in self._served:
            kind = await loop.run_in_executor(self._threads, embeds, offer.reference)
            if kind is False:
                raise _cannot(f"{offer.id} writes text and {what}")
        async with self._using(offer) as held:
            if not isinstance(held, ServedEmbedder):
                raise _cannot(f"{held.id} writes text and {what}")
            if capability not in held.capabilities:
                raise _cannot(f"{held.id} {what}; it does {', '.join(held.capabilities)}")
            yield held

    @asynccontextmanager
    async def _using(self, offer: Offer) -> AsyncIterator[Held]:
        served = await self._get(offer)
        served.users += 1
        try:
            yield served
        finally:
            served.users -= 1
            served.used = time.monotonic()
            if served in self._retired and not served.users:
                self._retired.remove(served)
                await asyncio.shield(self._close(served))

    async def unload(self, name: str) -> bool:
        """Unloads a model that is loaded and not in use; says whether it did."""
        served = self._served.get(self.find(name).id)
        if served is None or served.users:
            return False
        await self._unload(served)
        return True

    async def close(self) -> None:
        """Unloads everything; answers still being drawn are cancelled."""
        if self._idle is not None:
            self._idle.cancel()
            await asyncio.wait([self._idle])
        for name in self._fetching:
            self._loading[name].cancel()
        if self._loading:
            await asyncio.wait(list(self._loading.values()))
        for served in self.loaded():
            await self._unload(served)
        self._loader.shutdown()
        self._threads.shutdown(wait=False)

    async def _get(self, offer: Offer, told: bool = True) -> Held:
        while True:
            served = self._served.get(offer.id)
            if served is not None and served.ended is None:
                return served
            if served is not None:
                await self._retire(served)
                continue
            task = self._loading.get(offer.id)
            if task is None:
                task = asyncio.create_task(self._load(offer))
                self._loading[offer.id] = task
                task.add_done_callback(lambda done: self._loading.pop(offer.id))
            try:
                # A client that leaves does not end the loading: others may wait for it.
                await asyncio.shield(task)
            except NotFound as error:
                if not told:
                    raise
                raise ApiError(404, str(error), param="model", code="model_not_found") from error
            # Again from the start: another load may have taken its place while this one waited.

    async def _load(self, offer: Offer) -> Held:
        loop = asyncio.get_running_loop()
        begun = time.monotonic()
        self._fetching.add(offer.id)
        try:
            path = await _aside(lambda: hub.resolve(offer.reference, say=log.info))
        finally:
            self._fetching.discard(offer.id)
        plan = await loop.run_in_executor(
            self._loader, self._room.plan, offer.reference, path, self.settings
        )
        while not self._room.fits(plan):
            idle = [served for served in self._served.values() if not served.users]
            if not idle:
                raise self._room.refusal(plan, bool(self._served))
            await self._unload(min(idle, key=lambda served: served.used))
        model = await loop.run_in_executor(self._loader, self._room.load, plan, self.settings)
        served: Held
        if isinstance(model, Speaking):
            served = ServedSpeaker(offer, model, self.settings, self.metrics, self._threads)
            self.metrics.add_speaker(offer.id)
        elif isinstance(model, Embedding):
            served = ServedEmbedder(offer, model, self.settings, self.metrics, self._threads)
        else:
            await loop.run_in_executor(self._loader, _ready_for_forms, model)
            served = Served(offer, model, self.settings, self.metrics, self._threads)
            self.metrics.add(offer.id, model.engine)
        self._room.take(served, plan, model)
        self._served[offer.id] = served
        log.info("loaded %s in %.1f s", offer.id, time.monotonic() - begun)
        if self._idle is None and self.settings.idle_unload is not None:
            self._idle = asyncio.create_task(self._unload_idle(self.settings.idle_unload))
        return served

    async def _unload(self, served: Held) -> None:
        self._forget(served)
        await self._close(served)

    async def _retire(self, served: Held) -> None:
        """Lets go of a model whose engine has ended; its file stays open for who still has it."""
        log.error("%s has ended and is loaded again: %s", served.id, served.ended)
        self._forget(served)
        if served.users:
            self._retired.append(served)
        else:
            await self._close(served)

    def _forget(self, served: Held) -> None:
        del self._served[served.id]
        if isinstance(served, Served):
            self.metrics.remove(served.id)
        elif isinstance(served, ServedSpeaker):
            self.metrics.remove_speaker(served.id)

    async def _close(self, served: Held) -> None:
        await asyncio.get_running_loop().run_in_executor(self._loader, served.close)
        self._room.give_back(served)
        log.info("unloaded %s", served.id)

    async def _unload_idle(self, after: float) -> None:
        while True:
            await asyncio.sleep(min(1.0, after / 4))
            now = time.monotonic()
            for served in self.loaded():
                if not served.users and now - served.used >= after:
                    await self._unload(served)


async def _aside(function: Callable[[], T]) -> T:
    """Runs what may take hours in a thread that keeps neither other loads nor the end waiting."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():  # cancelled: nobody waits
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]  # T may be None itself

    def work() -> None:
        try:
            value, error = function(), None
        except BaseException as raised:
            value, error = None, raised
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name="golem-fetch", daemon=True).start()
    return await result


def _ready_for_forms(model: LanguageModel) -> None:
    """Makes the vocabulary ready for constraints now rather than in somebody's answer.

    llguidance keeps the interpreter to itself for as long as it takes: 1.5 seconds for 262,144
    tokens. What goes wrong is said to whoever asks for a form.
    """
    wait([vocabulary.prepare(model.tokenizer)])


def _cannot(message: str) -> ApiError:
    return ApiError(501, message, param="model", code="unsupported", headers=NO_RETRY)


def _log_failure(done: asyncio.Task[Held]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("the first model could not be loaded: %s", error)
