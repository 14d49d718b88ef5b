"""Every error is OpenAI's envelope, and one that comes again is not to be tried again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from golem_core import errors as core
from golem_server import errors
from golem_server.errors import ENVELOPES, ApiError, from_exception
from golem_server.sse import EventStream, encoded


async def check(answer: aiohttp.ClientResponse, status: int, code: str | None) -> dict[str, Any]:
    assert answer.status == status
    assert answer.content_type == "application/json"
    error: dict[str, Any] = (await answer.json())["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert error["message"]
    assert error["type"]
    assert error["code"] == code
    assert answer.headers["x-request-id"]
    return error


async def test_errors_of_the_http_library(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model, max_body=1000) as server, aiohttp.ClientSession() as client:
        async with client.get(f"{server.url}/v1/nothing") as answer:
            await check(answer, 404, "not_found")
        async with client.get(f"{server.url}/tokenize") as answer:
            await check(answer, 405, "method_not_allowed")
            assert answer.headers["Allow"] == "POST"
        async with client.post(f"{server.url}/tokenize", json={"content": "a" * 2000}) as answer:
            error = await check(answer, 413, "body_too_large")
            assert "1000" in error["message"]
            assert "--max-body" in error["message"]
        async with client.post(f"{server.url}/tokenize", data=b"{no") as answer:
            await check(answer, 400, "invalid_value")
        async with client.post(f"{server.url}/tokenize", json=[1]) as answer:
            await check(answer, 400, "invalid_value")


async def test_the_id_of_a_request_comes_back(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model, preload=False) as server, aiohttp.ClientSession() as client:
        for path in ("/health", "/nothing"):
            for given in ("abc-123", "a/b:c"):
                headers = {"X-Request-Id": given}
                async with client.get(server.url + path, headers=headers) as answer:
                    assert answer.headers["x-request-id"] == given
            for bad in ("a b", "x" * 200, ""):
                headers = {"X-Request-Id": bad}
                async with client.get(server.url + path, headers=headers) as answer:
                    assert len(answer.headers["x-request-id"]) == 32


NO = {"x-should-retry": "false"}


@pytest.mark.parametrize(
    ("error", "status", "param", "code", "headers"),
    [
        (core.BadRequest("m", "top_p"), 400, "top_p", "invalid_value", {}),
        (core.NotFound("m"), 404, "model", "model_not_found", {}),
        (core.Unsupported("m"), 400, None, "unsupported", {}),
        (core.NoMemory("m"), 507, None, "insufficient_memory", NO),
        (core.PassFailed("m", "logits", "nan_logits"), 500, None, "nan_logits", NO),
        (core.DeviceError("m"), 503, None, "device_error", NO),
        (core.BadWeights("m"), 500, None, "bad_weights", NO),
        (core.UnknownArchitecture("m"), 500, None, "model_error", NO),
        (RuntimeError("secret"), 500, None, "internal_error", NO),
        (web.HTTPConflict(text="m"), 409, None, None, {}),
    ],
)
def test_what_is_raised_and_what_is_told(
    error: Exception, status: int, param: str | None, code: str | None, headers: dict[str, str]
) -> None:
    told = from_exception(error)
    assert (told.status, told.param, told.code, told.headers) == (status, param, code, headers)
    assert "secret" not in told.message
    # What the clients would try again says when, or says no.
    if told.status >= 500:
        assert told.headers


def test_a_full_context_has_both_numbers() -> None:
    told = from_exception(core.ContextFull("m", 70, 64))
    assert errors.envelope(told)["error"] == {
        "message": "m", "type": "invalid_request_error", "param": "prompt",
        "code": "context_length_exceeded", "n_prompt_tokens": 70, "n_ctx": 64,
    }  # fmt: skip
    assert told.status == 400


def app_with(server: Any, path: str, handler: Any) -> None:
    """Adds a route to an application that runs."""
    server.app._router._frozen = False
    server.app.router.add_post(path, handler)


async def test_failures_before_and_within_a_stream(
    serve: Any, tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def before(request: web.Request) -> web.StreamResponse:
        raise RuntimeError("secret")

    async def within(request: web.Request) -> web.StreamResponse:
        stream = EventStream()
        await stream.prepare(request)
        await stream.send({"n": 1})
        raise core.PassFailed("no token can be drawn", "logits", "nan_logits")

    async with serve(tiny_model, preload=False) as server, aiohttp.ClientSession() as client:
        app_with(server, "/x/before", before)
        app_with(server, "/x/within", within)
        async with client.post(f"{server.url}/x/before") as answer:
            error = await check(answer, 500, "internal_error")
            assert "secret" not in error["message"]
        assert "secret" in caplog.text  # but the log has it
        async with client.post(f"{server.url}/x/within") as answer:
            assert answer.status == 200
            assert answer.content_type == "text/event-stream"
            assert answer.headers["x-request-id"]
            events = [line for line in (await answer.text()).split("\n\n") if line]
        assert events[0] == 'data: {"n":1}'
        told = json.loads(events[1].removeprefix("data: "))["error"]
        assert (told["code"], told["status"]) == ("nan_logits", 500)
        assert events[2:] == ["data: [DONE]"]


async def test_another_api_s_envelope(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model, preload=False, api_keys=("k",)) as server:
        server.app[ENVELOPES]["/other"] = lambda error: {"wrong": error.message}
        async with aiohttp.ClientSession() as client:
            for path, other in (("/other", True), ("/other/x", True), ("/others", False)):
                async with client.get(server.url + path) as answer:
                    assert answer.status == 401
                    assert ("wrong" in await answer.json()) == other


async def test_silence_is_broken_by_comments(serve: Any, tiny_model: Path) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        stream = EventStream(keep_alive=0.05)
        await stream.prepare(request)
        await asyncio.sleep(0.3)
        await stream.send("x", name="one")
        await stream.done()
        await asyncio.sleep(0.2)  # nothing comes after the end
        return stream.response

    async with serve(tiny_model, preload=False) as server, aiohttp.ClientSession() as client:
        app_with(server, "/x/slow", slow)
        async with client.post(f"{server.url}/x/slow") as answer:
            text = await answer.text()
    comments, rest = text.rsplit(": still here\n\n", 1)
    assert 2 <= comments.count(": still here\n\n") <= 6
    assert rest == "event: one\ndata: x\n\ndata: [DONE]\n\n"


def test_json_of_events() -> None:
    assert encoded({"a": "é\u2028\ud800"}) == b'{"a":"\xc3\xa9\xe2\x80\xa8\\ud800"}'
    assert json.loads(encoded("\ud800")) == "\ud800"
    with pytest.raises(ValueError, match="JSON"):
        encoded(float("nan"))


def test_an_error_s_kind_is_the_status_s() -> None:
    assert ApiError(429, "m").type == "rate_limit_error"
    assert ApiError(599, "m").type == "server_error"
    assert ApiError(400, "m", type="other").type == "other"
