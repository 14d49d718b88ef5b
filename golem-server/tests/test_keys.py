"""Who is let in: keys, and pages of other origins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from golem_core.errors import BadRequest, NotFound
from golem_server import keys

KEYS = ("first-key", "schlüssel-2")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "missing_api_key"),
        ({"Authorization": "Bearer "}, 401, "missing_api_key"),
        ({"Authorization": "Basic first-key"}, 401, "missing_api_key"),
        ({"Authorization": "Bearer first-ke"}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer first-key2"}, 401, "invalid_api_key"),
        ({"x-api-key": "wrong"}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer first-key"}, 200, None),
        ({"Authorization": "bearer first-key"}, 200, None),
        ({"Authorization": "Bearer schlüssel-2"}, 200, None),
        ({"x-api-key": "first-key"}, 200, None),
    ],
)
async def test_keys(
    serve: Any, tiny_model: Path, headers: dict[str, str], status: int, code: str | None
) -> None:
    async with (
        serve(tiny_model, preload=False, api_keys=KEYS) as server,
        aiohttp.ClientSession(headers=headers) as client,
    ):
        async with client.get(f"{server.url}/v1/models") as answer:
            assert answer.status == status
            body = await answer.json()
        if code is not None:
            assert body["error"]["type"] == "authentication_error"
            assert body["error"]["code"] == code
            assert "first-key" not in str(body)
            assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/health", 200), ("/v1/health", 200), ("/metrics", 401), ("/props", 401), ("/slots", 401),
        ("/version", 401), ("/v1/models/tiny", 401), ("/no/such/path", 401),
    ],
)  # fmt: skip
async def test_only_health_is_public(serve: Any, tiny_model: Path, path: str, status: int) -> None:
    async with (
        serve(tiny_model, preload=False, api_keys=KEYS) as server,
        aiohttp.ClientSession() as client,
        client.get(server.url + path) as answer,
    ):
        assert answer.status == status


def test_a_file_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\n one \n\ntwo\n")
    assert keys.read_keys(str(file)) == ("one", "two")
    file.write_text("# none\n\n")
    with pytest.raises(BadRequest, match="has no API key"):
        keys.read_keys(str(file))
    with pytest.raises(NotFound, match="absent cannot be read"):
        keys.read_keys(str(tmp_path / "absent"))


ORIGIN = "http://pages.example"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type",
}


@pytest.mark.parametrize(
    ("cors", "origin", "allowed"),
    [((), ORIGIN, False), ((ORIGIN,), ORIGIN, True), (("*",), ORIGIN, True),
     ((ORIGIN,), "http://pages.example.evil", False), ((ORIGIN,), "null", False)],
)  # fmt: skip
async def test_pages_of_other_origins(
    serve: Any, tiny_model: Path, cors: tuple[str, ...], origin: str, allowed: bool
) -> None:
    async with serve(tiny_model, preload=False, cors=cors, api_keys=KEYS) as server:
        headers = {"Origin": origin}
        async with aiohttp.ClientSession(headers=headers) as client:
            models = f"{server.url}/v1/models"
            async with client.options(models, headers=PREFLIGHT) as answer:
                assert answer.status == (204 if allowed else 403)
                if allowed:
                    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
                    assert "authorization" in answer.headers["Access-Control-Allow-Headers"]
            async with client.get(models, headers={"Authorization": "Bearer first-key"}) as answer:
                assert answer.status == (200 if allowed else 403)
                given = answer.headers.get("Access-Control-Allow-Origin")
                assert given == (origin if allowed else None)
                if not allowed:
                    assert f"--cors {origin}" in (await answer.json())["error"]["message"]
            async with client.get(models) as answer:  # a page can read why it is not let in
                assert answer.status == (401 if allowed else 403)
                assert ("Access-Control-Allow-Origin" in answer.headers) == allowed


async def test_its_own_page_and_programs_need_no_cors(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model, preload=False) as server, aiohttp.ClientSession() as client:
        for headers in ({}, {"Origin": server.url}):
            async with client.get(f"{server.url}/v1/models", headers=headers) as answer:
                assert answer.status == 200
                assert "Access-Control-Allow-Origin" not in answer.headers
