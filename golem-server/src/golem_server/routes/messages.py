"""``/v1/messages``: Anthropic's Messages, and how many tokens one would be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from golem_server.app import MODELS
from golem_server.ask import Ask
from golem_server.choice import Choice
from golem_server.counted import prompt_tokens
from golem_server.dialects import anthropic_request as read
from golem_server.dialects.anthropic_events import NOT_ENDED, MessageEvents
from golem_server.dialects.response_events import new_id
from golem_server.dialects.response_request import check_form
from golem_server.errors import ENVELOPES, ApiError
from golem_server.parse import field, read_json, required
from golem_server.run import Run
from golem_server.sse import EventStream

__all__ = ["add"]

Json = dict[str, Any]

# What this API calls the fields of an `Ask`.
NAMES = {"prompt": "messages", "stop": "stop_sequences"}

# What it calls an error, by its status.
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def add(app: web.Application) -> None:
    """Adds both routes, and the form of their errors."""
    app.router.add_post("/v1/messages", create)
    app.router.add_post("/v1/messages/count_tokens", count_tokens)
    app[ENVELOPES]["/v1/messages"] = envelope


def envelope(error: ApiError) -> Json:
    """The body of an error as Anthropic's clients read it."""
    kind = ERRORS.get(error.status, "api_error")
    told = {"type": kind, "message": error.message}
    return {"type": "error", "error": told, "request_id": error.request_id}


async def create(request: web.Request) -> web.StreamResponse:
    """One message, whole or as events."""
    body = await read_json(request)
    name = required(body, "model", str)
    stream = field(body, "stream", bool)
    required(body, "max_tokens", int)
    ask = ask_of(body)
    _, shown = read.thinking_of(body)
    async with request.app[MODELS].use(name) as served, Run(served, ask) as run:
        message = begun(name, len(run.requests[0].prompt_ids))
        events = MessageEvents(message, thoughts=shown)
        choice = run.choices[0]
        out = MessageStream() if stream else None
        if out is not None:
            await out.prepare(request)
            await out.put(events.begin())
        async for _, event in run:
            for piece in choice.take(event):
                sent = [] if piece.part is None else events.take(piece.part)
                if out is not None:
                    await out.put(sent)
        assert choice.result is not None
        sent = events.end(choice.finish_reason, usage(choice), choice.result.stop)
        if out is None:
            return web.json_response(events.message)
        await out.put(sent)
        await out.end()
        return out.response


async def count_tokens(request: web.Request) -> web.Response:
    """How many tokens the prompt of a message would have."""
    body = await read_json(request)
    name = required(body, "model", str)
    ask = ask_of(body)
    async with request.app[MODELS].use(name) as served:
        count = await prompt_tokens(served, ask)
    return web.json_response({"input_tokens": count})


class MessageStream(EventStream):
    """Events that are named by their type; it is kept alive by pings, a failure is ``error``."""

    async def put(self, events: list[Json]) -> None:
        """Sends events in their order."""
        for event in events:
            await self.send(event, name=event["type"])

    async def comment(self, text: str = "") -> None:
        """A ping in place of a comment."""
        await self.send({"type": "ping"}, name="ping")

    async def fail(self, error: ApiError) -> None:
        """Says an error in the middle, and ends."""
        await self.send(envelope(error), name="error")
        await self.end()


def ask_of(body: Mapping[str, Any]) -> Ask:
    """What a request asks. Raises `ApiError` naming the field."""
    read.check_absent(body)
    tools = read.tools_of(body)
    (choice, tool), parallel = read.choice_of(body, tools)
    constraint, effort = read.output_of(body)
    check_form(constraint, tools, choice)
    thinking, _ = read.thinking_of(body)
    return Ask(
        messages=read.messages_of(body),
        tools=tools,
        tool_choice=choice,
        tool=tool,
        parallel=parallel,
        sampling={
            "temperature": field(body, "temperature", float),
            "top_p": field(body, "top_p", float),
            "top_k": field(body, "top_k", int),
        },
        stop=field(body, "stop_sequences", list),
        max_tokens=field(body, "max_tokens", int, low=1),
        constraint=constraint,
        thinking=thinking,
        variables={} if effort is None else {"reasoning_effort": effort},
        names=NAMES,
    )


def begun(model: str, tokens: int) -> Json:
    """The message before its first word; how much of the prompt was known is said at the end."""
    return {
        "id": new_id("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        **NOT_ENDED,
        "usage": counts(tokens, 0, 0, 0),
    }


def usage(choice: Choice) -> Json:
    """What the message took; tokens that were known already are not among the input's."""
    assert choice.result is not None
    timings = choice.result.timings
    known, drawn = timings["cached_tokens"], timings["generated_tokens"]
    return counts(timings["prompt_tokens"] - known, known, drawn, choice.reasoning_tokens)


def counts(read_tokens: int, known: int, drawn: int, thought: int) -> Json:
    """Tokens in Anthropic's form, with null for what belongs to their service."""
    return {
        "input_tokens": read_tokens,
        "cache_creation": None,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": known,
        "output_tokens": drawn,
        "output_tokens_details": {"thinking_tokens": thought},
        "inference_geo": None,
        "server_tool_use": None,
        "service_tier": None,
    }
