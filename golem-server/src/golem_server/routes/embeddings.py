"""``/v1/embeddings`` as OpenAI's clients ask, ``/rerank`` as Jina's and Cohere's do.

What a model cannot do is refused by its name. Texts that are too long are cut at their end unless
``truncate`` is false; ``prompt_name`` chooses a prompt that the model's files have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from aiohttp import web

from golem_server.app import MODELS
from golem_server.params import model_name
from golem_server.parse import Body, field, invalid, read_json, required
from golem_server.vectors import MOST, form_of, inputs_of, ranked, vectors


def add(app: web.Application) -> None:
    """Adds the routes; /v1 may be left out."""
    for prefix in ("/v1", ""):
        app.router.add_post(f"{prefix}/embeddings", embed)
        app.router.add_post(f"{prefix}/rerank", rerank)


async def embed(request: web.Request) -> web.StreamResponse:
    """A vector of each text."""
    body = await read_json(request)
    async with request.app[MODELS].use_embedder(model_name(body)) as served:
        texts = inputs_of(body)
        form = field(body, "encoding_format", str, choices=("float", "base64")) or "float"
        truncate = field(body, "truncate", bool)
        result = await vectors(
            served,
            texts,
            dimensions=field(body, "dimensions", int, low=1),
            prompt=field(body, "prompt_name", str),
            truncate=True if truncate is None else truncate,
        )
        data = await served.in_thread(
            lambda: [
                {"object": "embedding", "index": i, "embedding": form_of(vector, form)}
                for i, vector in enumerate(result.vectors)
            ]
        )
        return web.json_response(
            {"object": "list", "data": data, "model": served.id, "usage": _usage(result.tokens)}
        )


def _usage(tokens: tuple[int, ...]) -> dict[str, int]:
    return {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)}


async def rerank(request: web.Request) -> web.StreamResponse:
    """The documents of a query, best first."""
    body = await read_json(request)
    async with request.app[MODELS].use_embedder(model_name(body), "rerank") as served:
        query, documents = required(body, "query", str), _documents(body)
        top = field(body, "top_n", int, low=1)
        shown = field(body, "return_documents", bool)
        result = await ranked(served, query, documents)
        order = np.argsort(-result.scores, kind="stable")[:top]
        found: list[dict[str, Any]] = [
            {"index": int(i), "relevance_score": float(result.scores[i])} for i in order
        ]
        if shown:
            for each in found:
                each["document"] = {"text": documents[each["index"]]}
        return web.json_response(
            {
                "object": "list",
                "model": served.id,
                "results": found,
                "usage": _usage(result.tokens),
            }
        )


def _documents(body: Body) -> list[str]:
    """Texts, or objects with a text."""
    given = body.get("documents")
    if not isinstance(given, list) or not 1 <= len(given) <= MOST:
        raise invalid(f"documents must be a list of 1 to {MOST} texts", "documents")
    found = []
    for i, one in enumerate(given):
        text = one.get("text") if isinstance(one, dict) else one
        if not isinstance(text, str):
            raise invalid(f"documents[{i}] is no text", f"documents[{i}]")
        found.append(text)
    return found
