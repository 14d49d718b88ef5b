"""The server's first signs of life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp


async def test_health_and_models(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model) as server, aiohttp.ClientSession() as client:
        async with client.get(f"{server.url}/health") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        async with client.get(f"{server.url}/v1/models") as answer:
            listed = await answer.json()
        assert [model["id"] for model in listed["data"]] == ["tiny"]
        async with server.models.use("tiny") as served:
            assert served.model.complete("ab", max_tokens=2).ids
        async with client.get(f"{server.url}/v1/nothing") as answer:
            assert answer.status == 404
            assert (await answer.json())["error"]["code"] == "not_found"
        async with client.post(f"{server.url}/v1/models") as answer:
            assert answer.status == 405
            assert (await answer.json())["error"]["code"] == "method_not_allowed"
