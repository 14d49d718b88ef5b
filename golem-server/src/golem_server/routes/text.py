"""``/tokenize``, ``/detokenize``, ``/apply-template``: text to ids and back, as the model sees it.

The bodies are llama.cpp's (``content``) or vLLM's (``prompt``, ``messages``); answers serve both.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from golem_server.app import MODELS
from golem_server.models import Served
from golem_server.parse import field, invalid, read_json, required

__all__ = ["add"]

# What a template is given by the request itself.
RESERVED = {"self", "messages", "tools", "add_generation_prompt"}
SLICE = 4096  # ids that are written as JSON in less than a millisecond


def add(app: web.Application) -> None:
    """Adds the three routes, and the first two below /v1 as well."""
    for prefix in ("", "/v1"):
        app.router.add_post(f"{prefix}/tokenize", tokenize)
        app.router.add_post(f"{prefix}/detokenize", detokenize)
    app.router.add_post("/apply-template", apply_template)


async def tokenize(request: web.Request) -> web.Response:
    """The ids of a text or of a conversation.

    add_special    the tokens that the file adds at the start of a text; llama.cpp's default is no,
                   vLLM's (with ``prompt`` and ``add_special_tokens``) is yes
    parse_special  control tokens written in the text become their ids; yes
    with_pieces    each token as an object with ``id`` and ``piece``
    """
    body = await read_json(request)
    async with request.app[MODELS].use(field(body, "model", str)) as served:
        if "messages" in body:
            pieces = await _rendered(served, body)
            ids = await served.in_thread(served.model.tokenizer.encode_marked, pieces, bos=True)
        else:
            name = "prompt" if "content" not in body and "prompt" in body else "content"
            text = required(body, name, str)
            special = field(body, "add_special", bool)
            if special is None:
                special = field(body, "add_special_tokens", bool)
            if special is None:
                special = name == "prompt"
            parse = field(body, "parse_special", bool)
            ids = await served.in_thread(
                served.model.tokenizer.encode,
                text,
                special=parse is not False,
                bos=bool(special),
            )
        with_pieces = field(body, "with_pieces", bool)
        listed = await (
            served.in_thread(_pieces, served, ids)
            if with_pieces
            else served.in_thread(_listed, ids)
        )
        rest = json.dumps({"count": len(ids), "max_model_len": served.model.context})
    return web.json_response(text=f'{{"tokens": {listed}, {rest[1:]}')


async def detokenize(request: web.Request) -> web.Response:
    """The text of ids; bytes that are no character become U+FFFD."""
    body = await read_json(request)
    ids = required(body, "tokens", list)
    async with request.app[MODELS].use(field(body, "model", str)) as served:
        text = await served.in_thread(_text, served, ids)
    return web.json_response({"content": text, "prompt": text})


async def apply_template(request: web.Request) -> web.Response:
    """A conversation as the text that the model reads."""
    body = await read_json(request)
    async with request.app[MODELS].use(field(body, "model", str)) as served:
        pieces = await _rendered(served, body)
    return web.json_response({"prompt": "".join(text for text, _ in pieces)})


async def _rendered(served: Served, body: dict[str, Any]) -> list[tuple[str, bool]]:
    messages = required(body, "messages", list)
    variables = field(body, "chat_template_kwargs", dict) or {}
    generation = field(body, "add_generation_prompt", bool)
    tools = field(body, "tools", list)
    for name in variables:
        if name in RESERVED:
            raise invalid(f"{name} is no variable of chat_template_kwargs", "chat_template_kwargs")
    template = served.model.template
    if template is None:
        raise invalid(f"{served.id} has no chat template", "messages", "no_chat_template")
    return await served.in_thread(
        template.render,
        messages,
        tools=tools,
        add_generation_prompt=generation is not False,
        **variables,
    )


def _text(served: Served, ids: list[Any]) -> str:
    size = served.model.engine.vocabulary
    for i, token in enumerate(ids):
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < size:
            raise invalid(
                f"tokens[{i}] is {token!r}, expected a token from 0 to {size - 1}", f"tokens[{i}]"
            )
    return served.model.detokenize(ids)


def _listed(ids: list[int]) -> str:
    """JSON of a list of ids, written in slices: a long one keeps every other thread waiting."""
    slices = (ids[i : i + SLICE] for i in range(0, len(ids), SLICE))
    return f"[{', '.join(json.dumps(part)[1:-1] for part in slices)}]"


def _pieces(served: Served, ids: list[int]) -> str:
    """JSON of each id with its text, or with its bytes where they are no text by themselves.

    Written piece by piece: to write a long list at once would keep every other thread waiting.
    """
    found = []
    for token in ids:
        data = served.model.tokenizer.piece(token)
        try:
            piece: str | list[int] = data.decode("utf-8")
        except UnicodeDecodeError:
            piece = list(data)
        found.append(json.dumps({"id": token, "piece": piece}))
    return f"[{', '.join(found)}]"
