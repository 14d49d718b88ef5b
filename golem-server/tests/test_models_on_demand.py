"""Models: found by name, loaded once for all who wait, unloaded when idle or in the way."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from golem_core import hub
from golem_core.errors import BadRequest, NoMemory, NotFound
from golem_core.testing import decoder
from golem_server.errors import ApiError
from golem_server.metrics import Metrics
from golem_server.models import Models, Served
from golem_server.named import named
from golem_server.room import Plan, Room
from golem_server.settings import ServeSettings


async def ids(url: str) -> list[str]:
    async with aiohttp.ClientSession() as client, client.get(f"{url}/v1/models") as answer:
        return [model["id"] for model in (await answer.json())["data"]]


async def until(found: Any, seconds: float = 5.0) -> None:
    """Waits for `found()` to be true."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "it does not become true"
        await asyncio.sleep(0.01)


async def test_models_by_id_and_with_slashes(serve: Any, tiny_model: Path) -> None:
    async with serve([tiny_model, f"team/small={tiny_model}"]) as server:
        assert await ids(server.url) == ["tiny", "team/small"]
        async with aiohttp.ClientSession() as client:
            for name in ("tiny", "team/small", "team%2Fsmall"):
                async with client.get(f"{server.url}/v1/models/{name}") as answer:
                    found = await answer.json()
                    assert answer.status == 200
                    assert found["object"] == "model"
                    assert found["id"] in ("tiny", "team/small")
                    assert found["owned_by"] == "golem"
                    assert found["created"] == int(tiny_model.stat().st_mtime)
            async with client.get(f"{server.url}/v1/models/team/big") as answer:
                error = (await answer.json())["error"]
                assert answer.status == 404
                assert (error["code"], error["param"]) == ("model_not_found", "model")
                assert "'team/big'; there are: tiny, team/small" in error["message"]


async def test_an_unknown_model_is_never_another_one(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model) as server, aiohttp.ClientSession() as client:
        for model, status in (("gpt-4", 404), ("", 404), ("tiny", 200), ("tiny.gguf", 200)):
            body = {"model": model, "content": "a"}
            async with client.post(f"{server.url}/tokenize", json=body) as answer:
                assert answer.status == status, model
        async with client.post(f"{server.url}/tokenize", json={"content": "a"}) as answer:
            assert answer.status == 200  # none named: the first


async def test_many_wait_for_one_load(
    serve: Any, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, go = [], threading.Event()
    load = Room.load

    def slow(self: Room, plan: Plan, settings: ServeSettings) -> Any:
        loads.append(plan.reference)
        assert go.wait(10)
        return load(self, plan, settings)

    monkeypatch.setattr(Room, "load", slow)
    async with serve(tiny_model, wait=False) as server, aiohttp.ClientSession() as client:
        body = {"content": "ab"}
        posts = [asyncio.create_task(client.post(f"{server.url}/tokenize", json=body))]
        posts += [asyncio.create_task(client.post(f"{server.url}/tokenize", json=body))]
        await until(lambda: loads)
        async with client.get(f"{server.url}/health") as answer:
            assert answer.status == 503
            assert (await answer.json())["error"] == {
                "code": 503, "message": "Loading model", "type": "unavailable_error",
            }  # fmt: skip
        assert server.models.loading == ["tiny"]
        posts[0].cancel()  # one that leaves ends nothing for the other
        await asyncio.sleep(0.05)
        go.set()
        answer = await posts[1]
        assert (answer.status, (await answer.json())["count"]) == (200, 2)
        assert loads == [str(tiny_model)]
        async with client.get(f"{server.url}/health") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})


async def test_idle_models_are_unloaded_and_come_back(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model, idle_unload=0.2) as server, aiohttp.ClientSession() as client:
        async with server.models.use("tiny") as served:
            await asyncio.sleep(0.5)
            assert server.models.loaded() == [served]  # in use is not idle
        drawn = served.model.complete("ab", max_tokens=3, temperature=0).ids
        # Looking keeps nothing loaded.
        end = time.monotonic() + 5
        while server.models.loaded():
            assert time.monotonic() < end
            async with client.get(f"{server.url}/props") as answer:
                assert answer.status == 200
            await asyncio.sleep(0.02)
        assert server.models.metrics.totals()["generation_tokens"] == 3
        async with client.get(f"{server.url}/props") as answer:
            assert (await answer.json())["is_sleeping"] is True
        async with server.models.use("tiny") as again:
            assert again is not served
            assert again.model.complete("ab", max_tokens=3, temperature=0).ids == drawn
        assert server.models.metrics.totals()["generation_tokens"] == 6


async def test_the_one_idle_longest_makes_room(tiny_model: Path) -> None:
    settings = ServeSettings(
        models=tuple(f"{name}={tiny_model}" for name in "abc"), threads=1, max_sequences=1
    )
    one = Room(None).plan("tiny", tiny_model, settings).total
    models = Models(_with_memory(settings, one * 5 // 2), Metrics())
    try:
        for name in "ab":
            async with models.use(name):
                pass
        async with models.use("a"):
            pass
        async with models.use("c"):
            assert [served.id for served in models.loaded()] == ["a", "c"]
            async with models.use("a"):
                with pytest.raises(NoMemory) as refused:
                    async with models.use("b"):
                        pass
        message = str(refused.value)
        assert f"{one / 2**20:.1f} MiB" in message
        assert f"{(one * 5 // 2 - 2 * one) / 2**20:.1f} MiB is left" in message
        assert "in use by models that are answering" in message
        async with models.use("b") as served:  # and now it fits
            assert served.model.tokenize("ab")
    finally:
        await models.close()
    assert models.loaded() == []


def _with_memory(settings: ServeSettings, memory: int) -> ServeSettings:
    from dataclasses import replace

    return replace(settings, memory=memory)


async def test_what_can_never_fit_is_no_bare_5xx(serve: Any, tiny_model: Path) -> None:
    async with (
        serve(tiny_model, memory=1000, preload=False) as server,
        aiohttp.ClientSession() as client,
    ):
        async with client.post(f"{server.url}/tokenize", json={"content": "a"}) as answer:
            error = (await answer.json())["error"]
        assert answer.status == 507
        assert answer.headers["x-should-retry"] == "false"
        assert error["code"] == "insufficient_memory"
        assert "MiB with room for one conversation, and 0.0 MiB is left" in error["message"]


async def test_pools_are_counted_as_large_as_they_are(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model, max_sequences=4) as server:
        async with server.models.use("tiny") as served:
            engine, room = served.model.engine, server.models._room
            program = engine._program
            pools = sum(group.pages * group.bytes_per_page for group in program.groups)
            plan = room.plan("tiny", tiny_model, server.models.settings)
            assert room.taken == plan.weights + plan.passes + pools
        await server.models.unload("tiny")
        assert room.taken == 0


async def test_an_engine_that_ended_is_started_again(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model) as server, aiohttp.ClientSession() as client:
        async with server.models.use("tiny") as broken:
            broken.model.engine._program.run = None  # what a defect would do
            with pytest.raises(RuntimeError, match="the engine stopped"):
                broken.model.complete("ab", max_tokens=1)
            async with client.get(f"{server.url}/health") as answer:
                assert answer.status == 503
                assert (
                    "tiny has ended: the engine stopped"
                    in ((await answer.json())["error"]["message"])
                )
            async with server.models.use("tiny") as served:
                assert served is not broken
                assert served.model.complete("ab", max_tokens=1).ids
            assert broken.model.detokenize([65])  # its file stays open while it is in use
        async with client.get(f"{server.url}/health") as answer:
            assert answer.status == 200


async def test_a_model_that_cannot_be_loaded(serve: Any, tmp_path: Path) -> None:
    path = tmp_path / "strange.gguf"
    decoder("no-such-family").write(path)
    async with serve(path, preload=False) as server, aiohttp.ClientSession() as client:
        for _ in range(2):  # the first failure spoils nothing
            async with client.post(f"{server.url}/tokenize", json={"content": "a"}) as answer:
                error = (await answer.json())["error"]
                assert answer.status == 500
                assert answer.headers["x-should-retry"] == "false"
                assert "no installed plugin runs 'no-such-family'" in error["message"]


async def test_what_is_being_fetched_keeps_nobody_waiting(
    serve: Any, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    resolve = hub.resolve

    def slow(text: str, say: Any = None) -> Path:
        if text == "hf:slow/model":
            begun.set()
            assert go.wait(20)
        return resolve(text)

    monkeypatch.setattr(hub, "resolve", slow)
    async with (
        serve(["hf:slow/model", tiny_model], preload=False) as server,
        aiohttp.ClientSession() as client,
    ):
        body = {"model": "hf:slow/model", "content": "a"}
        waiting = asyncio.create_task(client.post(f"{server.url}/tokenize", json=body))
        await until(begun.is_set)
        async with server.models.use("tiny") as served:
            assert served.id == "tiny"
        assert not waiting.done()
        ending = time.monotonic()
    assert time.monotonic() - ending < 5
    with pytest.raises(aiohttp.ClientError):
        await waiting
    go.set()


async def test_who_waited_gets_a_model_that_is_open(tiny_model: Path) -> None:
    settings = ServeSettings(
        models=(f"a={tiny_model}", f"b={tiny_model}"), threads=1, max_sequences=1
    )
    one = Room(None).plan("tiny", tiny_model, settings).total
    models = Models(_with_memory(settings, one * 3 // 2), Metrics())  # room for one of them

    async def ask(name: str) -> None:
        for _ in range(3):
            try:
                async with models.use(name) as served:
                    assert served.model.complete("ab", max_tokens=1).ids
            except NoMemory:  # the other one is in use
                await asyncio.sleep(0.01)

    try:
        await asyncio.gather(*(ask(name) for name in "abababab"))
    finally:
        await models.close()


async def test_work_off_the_loop(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model) as server, server.models.use(None) as served:
        name = await served.in_thread(lambda: threading.current_thread().name)
        assert name.startswith("golem-text")
        assert served.capabilities == {"completion", "chat"}
        with pytest.raises(ZeroDivisionError):
            await served.in_thread(lambda: 1 // 0)


@pytest.mark.parametrize(
    ("cap", "asked", "given"),
    [(None, None, None), (None, 9, 9), (5, None, 5), (5, 9, 5), (5, 3, 3)],
)
async def test_the_cap_of_tokens(
    serve: Any, tiny_model: Path, cap: int | None, asked: int | None, given: int | None
) -> None:
    async with serve(tiny_model, max_tokens=cap) as server, server.models.use(None) as served:
        assert isinstance(served, Served)
        assert served.most_tokens(asked) == given


def test_names(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*references: str, **settings: Any) -> list[tuple[str, str]]:
        offers = named(ServeSettings(models=references, **settings), 7)
        return [(offer.id, offer.reference) for offer in offers.values()]

    assert found("hf:a/b:Q4", "pypi:x==1.0", "short=hf:c/d") == [
        ("hf:a/b:Q4", "hf:a/b:Q4"), ("pypi:x==1.0", "pypi:x==1.0"), ("short", "hf:c/d"),
    ]  # fmt: skip
    for name in (
        "big-00001-of-00002.gguf",
        "big-00002-of-00002.gguf",
        "mmproj-x.gguf",
        "sub/y.gguf",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [name for name, _ in found(model_folder=str(tmp_path))] == ["big", "y"]
    with pytest.raises(BadRequest, match=r"two models are called tiny: .* other="):
        found(str(tiny_model), str(tiny_model))
    with pytest.raises(NotFound, match=r"no file /nowhere/x\.gguf"):
        found("/nowhere/x.gguf")
    with pytest.raises(NotFound, match="no folder /nowhere"):
        found(model_folder="/nowhere")
    monkeypatch.setattr(hub, "known", list)
    with pytest.raises(NotFound, match="no pulled model is named absent"):
        found("absent")
    with pytest.raises(NotFound, match="--default other is no model that is offered"):
        Models(ServeSettings(models=(str(tiny_model),), default="other"), Metrics())


async def test_the_pulled_ones_where_none_is_named(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled = hub.Known("p", "x", str(tiny_model), 1, None, "llama", "2026-01-01")
    monkeypatch.setattr(hub, "known", lambda: [pulled])
    models = Models(ServeSettings(threads=1), Metrics())
    models.begin()
    assert models.started is None  # nobody named one, so none is loaded before it is asked for
    async with models.use("p") as served:
        assert served.reference == "p"
    with pytest.raises(ApiError, match="no model is named 'q'; there are: p"):
        models.find("q")
    await models.close()


async def test_a_file_that_has_gone(serve: Any, tmp_path: Path) -> None:
    path = decoder("llama").write(tmp_path / "gone.gguf")
    async with serve(path, preload=False) as server, aiohttp.ClientSession() as client:
        path.unlink()
        async with client.post(f"{server.url}/tokenize", json={"content": "a"}) as answer:
            error = (await answer.json())["error"]
        assert answer.status == 404
        assert error["code"] == "model_not_found"
        assert "gone.gguf" in error["message"]
