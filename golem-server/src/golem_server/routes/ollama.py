"""``/api/…``: ollama's API over the same models; streams are a JSON object a line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from golem_core.text import Call, Content, Thought
from golem_server.app import MODELS
from golem_server.ask import Ask
from golem_server.choice import Choice
from golem_server.dialects import ollama_request as read
from golem_server.dialects.response_request import check_form
from golem_server.errors import ENVELOPES, ApiError
from golem_server.kept import Kept
from golem_server.models import Models, Served
from golem_server.parse import field, invalid, read_json, required
from golem_server.replies import token_entries
from golem_server.run import Run
from golem_server.sse import EventStream, encoded
from golem_server.vectors import inputs_of, vectors

__all__ = ["KEPT", "add", "resolved", "stamp"]

Json = dict[str, Any]

KEPT: web.AppKey[Kept] = web.AppKey("kept", Kept)

# What this API calls the fields of an `Ask` and of its sampling.
NAMES = {
    "max_tokens": "options.num_predict",
    "stop": "options.stop",
    "logprobs": "top_logprobs",
    "thinking": "think",
    **{golem: f"options.{name}" for name, (_, golem) in read.SAMPLING.items()},
}


def add(app: web.Application) -> None:
    """Adds what answers, and the form of the API's errors."""
    app.router.add_post("/api/chat", chat)
    app.router.add_post("/api/generate", generate)
    app.router.add_post("/api/embed", embed)
    app[ENVELOPES]["/api"] = envelope
    app[KEPT] = Kept(app[MODELS])
    app.on_cleanup.append(_close)


async def _close(app: web.Application) -> None:
    app[KEPT].close()


def envelope(error: ApiError) -> Json:
    """The body of an error as ollama's clients read it."""
    return {"error": error.message}


async def chat(request: web.Request) -> web.StreamResponse:
    """The next turn of a conversation; without messages the model is loaded, or unloaded."""
    body = await read_json(request)
    messages = read.messages_of(body)
    tools = read.tools_of(body)
    ask, options = _ask(body, messages=messages, tools=tools)

    def line(part: Content | Thought | Call | None, calls: int) -> Json:
        message: Json = {"role": "assistant", "content": ""}
        if isinstance(part, Content):
            message["content"] = part.text
        elif isinstance(part, Thought):
            message["thinking"] = part.text
        elif isinstance(part, Call):
            function = {"index": calls, "name": part.name, "arguments": part.arguments}
            message["tool_calls"] = [{"id": part.id, "function": function}]
        return {"message": message}

    def whole(choice: Choice) -> Json:
        message: Json = {"role": "assistant", "content": choice.content}
        if choice.thoughts:
            message["thinking"] = choice.thoughts
        if choice.calls:
            message["tool_calls"] = [
                line(call, i)["message"]["tool_calls"][0] for i, call in enumerate(choice.calls)
            ]
        return {"message": message}

    return await _answer(request, body, ask if messages else None, options, line, whole)


async def generate(request: web.Request) -> web.StreamResponse:
    """The answer to one prompt; without a prompt the model is loaded, or unloaded."""
    body = await read_json(request)
    prompt = field(body, "prompt", str) or ""
    system = field(body, "system", str)
    if field(body, "raw", bool):
        if system:
            raise invalid("system needs the model's template, and raw is without", "system")
        ask, options = _ask(body, prompts=[prompt])
    else:
        turns = [{"role": "system", "content": system}] if system else []
        turns.append({"role": "user", "content": prompt})
        ask, options = _ask(body, messages=turns, names={"messages": "prompt"})

    def line(part: Content | Thought | Call | None, calls: int) -> Json:
        text = {"response": part.text if isinstance(part, Content) else ""}
        return {**text, "thinking": part.text} if isinstance(part, Thought) else text

    def whole(choice: Choice) -> Json:
        text = {"response": choice.content}
        return {**text, "thinking": choice.thoughts} if choice.thoughts else text

    return await _answer(request, body, ask if prompt else None, options, line, whole)


async def embed(request: web.Request) -> web.Response:
    """Vectors of texts, cut where they are too long unless ``truncate`` is false."""
    begun = time.perf_counter_ns()
    body = await read_json(request)
    offer = resolved(request.app[MODELS], required(body, "model", str))
    async with request.app[MODELS].use_embedder(offer) as served:
        loaded = time.perf_counter_ns()
        texts = inputs_of(body) if body.get("input") != [] else []
        truncate = field(body, "truncate", bool)
        result = await vectors(
            served,
            texts,
            dimensions=field(body, "dimensions", int, low=1),
            truncate=True if truncate is None else truncate,
        )
        return web.json_response(
            {
                "model": body["model"],
                "embeddings": await served.in_thread(result.vectors.tolist),
                "total_duration": time.perf_counter_ns() - begun,
                "load_duration": loaded - begun,
                "prompt_eval_count": sum(result.tokens),
            }
        )


def _ask(
    body: Mapping[str, Any], names: Mapping[str, str] | None = None, **asked: Any
) -> tuple[Ask, read.Options]:
    """What a request asks, and its options."""
    read.check_absent(body)
    options = read.Options(body)
    thinking, variables = read.thinking_of(body)
    logprobs = field(body, "top_logprobs", int, low=0, high=20)
    if not field(body, "logprobs", bool):
        logprobs = None
    elif logprobs is None:
        logprobs = 0
    constraint = read.constraint_of(body)
    check_form(constraint, asked.get("tools") or [], "auto")
    ask = Ask(
        sampling=options.sampling,
        stop=options.stop,
        max_tokens=options.max_tokens,
        logprobs=logprobs,
        constraint=constraint,
        thinking=thinking,
        variables=variables,
        names={**NAMES, **(names or {})},
        **asked,
    )
    return ask, options


async def _answer(
    request: web.Request,
    body: Mapping[str, Any],
    ask: Ask | None,
    options: read.Options,
    line: Callable[[Content | Thought | Call | None, int], Json],
    whole: Callable[[Choice], Json],
) -> web.StreamResponse:
    """Draws the answer, a line for each part of it or all at once; without `ask` only loads."""
    begun = time.perf_counter_ns()
    models = request.app[MODELS]
    name = required(body, "model", str)
    keep = read.keep_alive_of(body)
    stream = field(body, "stream", bool) is not False
    offer = resolved(models, name)
    if ask is None and keep == 0:
        request.app[KEPT].keep(offer, 0)
        return web.json_response(
            {**_head(name), **line(None, 0), "done": True, "done_reason": "unload"}
        )
    try:
        async with models.use(offer) as served:
            loaded = time.perf_counter_ns()
            options.check_context(served.model.context)
            if ask is None:
                return web.json_response(
                    {**_head(name), **line(None, 0), "done": True, "done_reason": "load"}
                )
            check_thinking(ask, served, name)
            async with Run(served, ask) as run:
                choice = run.choices[0]
                out = LineStream() if stream else None
                if out is not None:
                    await out.prepare(request)
                async for _, event in run:
                    for piece in choice.take(event):
                        if out is None:
                            continue
                        more = {**line(piece.part, len(choice.calls) - 1), "done": False}
                        if piece.drawn:
                            more["logprobs"] = token_entries(choice.tokenizer, piece.drawn)
                        await out.send({**_head(name), **more})
                end = {**_head(name), **_end(choice, begun, loaded)}
                if out is None:
                    if ask.logprobs is None:
                        return web.json_response({**end, **whole(choice)})
                    entries = await served.in_thread(token_entries, choice.tokenizer, choice.drawn)
                    answer = {**end, **whole(choice), "logprobs": entries}
                    return web.json_response(text=await served.in_thread(json.dumps, answer))
                await out.send({**end, **line(None, 0)})
                await out.end()
                return out.response
    finally:
        if keep is not None:
            request.app[KEPT].keep(offer, keep)


def check_thinking(ask: Ask, served: Served, name: str) -> None:
    """Raises a 400 where a model is to think that has no form for it."""
    form = served.model.format
    if ask.thinking and (form is None or form.thought is None):
        raise invalid(f"{name} does not think before it answers", "think", "unsupported")


def _head(name: str) -> Json:
    return {"model": name, "created_at": now()}


def _end(choice: Choice, begun: int, loaded: int) -> Json:
    """What the last line says; durations in nanoseconds."""
    assert choice.result is not None
    timings = choice.result.timings
    return {
        "done": True,
        "done_reason": "length" if choice.finish_reason == "length" else "stop",
        "total_duration": time.perf_counter_ns() - begun,
        "load_duration": loaded - begun,
        "prompt_eval_count": timings["prompt_tokens"],
        "prompt_eval_duration": int(timings["prompt_seconds"] * 1e9),
        "eval_count": timings["generated_tokens"],
        "eval_duration": int(timings["generate_seconds"] * 1e9),
    }


class LineStream(EventStream):
    """A response of JSON objects, a line each; a failure is an object with ``error``."""

    def __init__(self) -> None:
        super().__init__()
        self.response.headers["Content-Type"] = "application/x-ndjson"

    async def send(self, event: object, name: str | None = None) -> None:
        """One object."""
        await self._write(encoded(event) + b"\n")

    async def comment(self, text: str = "") -> None:
        """Nothing: a line that is no object would be read as one."""

    async def fail(self, error: ApiError) -> None:
        """Says an error in the middle, and ends."""
        await self.send(envelope(error))
        await self.end()


def resolved(models: Models, name: str) -> str:
    """The id of a model by the name that a client uses, to which it may add ``:latest``.

    Raises `ApiError` 404.
    """
    try:
        return models.find(name).id
    except ApiError:
        if not name.endswith(":latest"):
            raise
        return models.find(name.removesuffix(":latest")).id


def now() -> str:
    """The time as the API writes it, to the microsecond, UTC."""
    return stamp(time.time())


def stamp(seconds: float) -> str:
    """Seconds since 1970 as the API writes a time."""
    whole = int(seconds)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
    return f"{text}.{int((seconds - whole) * 1e6):06d}Z"
