"""``/v1/chat/completions``: a conversation answered, whole or as it is drawn.

A stream obeys the rules that the clients count on: each answer's role comes once and in the order
of the answers, a call's id and name once and its arguments after them, the reason of the end in a
piece of its own, and the usage, if it was asked for, in the last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from golem_core.text import Call, Content, Thought
from golem_server.app import MODELS
from golem_server.ask import Ask
from golem_server.choice import Choice, Drawn, Piece
from golem_server.models import Served
from golem_server.params import common, model_name, refuse, response_format, stream_options
from golem_server.parse import Body, field, invalid, read_json, required
from golem_server.replies import (
    FINGERPRINT,
    new_id,
    obfuscated,
    timings,
    token_entries,
    usage,
)
from golem_server.run import Run
from golem_server.sse import EventStream
from golem_server.tools import tool_arguments

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")

# What a template is given by the request itself; `self` is no name that it could be given by.
RESERVED = ("self", "messages", "tools", "add_generation_prompt")

# Of llama.cpp's, those that a conversation alone has; the form is that of `params.REFUSED`.
REFUSED = {
    "reasoning_format": (
        lambda value: value in ("auto", "deepseek"),
        "thoughts are in reasoning_content",
    ),
    "reasoning_budget": (lambda value: value == -1, "use reasoning_effort"),
    "thinking_budget_tokens": (lambda value: value == -1, "use reasoning_effort"),
    "parse_tool_calls": (lambda value: value is True, "use tool_choice none"),
    "add_generation_prompt": (lambda value: value is True, "use /apply-template"),
    "continue_final_message": (lambda value: value is False, "use /v1/completions"),
}


def add(app: web.Application) -> None:
    """Adds the route; clients of llama.cpp leave /v1 out."""
    for prefix in ("/v1", ""):
        app.router.add_post(f"{prefix}/chat/completions", chat)


def ask_of(body: Body) -> Ask:
    """The neutral request of a body; `ApiError` names the parameter that is wrong."""
    refuse(body, REFUSED)
    messages = required(body, "messages", list)
    arguments = {**common(body), **tool_arguments(body)}
    constraint = response_format(body)
    if constraint is not None and arguments["tools"] and arguments["tool_choice"] != "none":
        raise invalid(
            f"{constraint.param} with tools is not supported: set tool_choice to none for the "
            "answer that is to have the form",
            constraint.param,
            "unsupported",
        )
    variables = dict(field(body, "chat_template_kwargs", dict) or {})
    for name in RESERVED:
        if name in variables:
            place = f"chat_template_kwargs.{name}"
            raise invalid(f"{place} is not to be set; use the request's own", place)
    effort = field(body, "reasoning_effort", str, choices=EFFORTS)
    thinking: bool | None = None
    if effort is not None:
        variables.setdefault("reasoning_effort", effort)
        thinking = effort != "none"
    if "enable_thinking" in variables:
        thinking = field(variables, "enable_thinking", bool, within="chat_template_kwargs")
    arguments["names"]["thinking"] = "reasoning_effort"
    return Ask(
        messages=messages,
        logprobs=_logprobs(body),
        constraint=constraint,
        thinking=thinking,
        variables=variables,
        **arguments,
    )


async def chat(request: web.Request) -> web.StreamResponse:
    """Answers one request."""
    body = await read_json(request)
    ask = ask_of(body)
    streams, counts, hides = stream_options(body)
    async with request.app[MODELS].use(model_name(body)) as served, Run(served, ask) as run:
        reply = _Reply(served)
        if streams:
            return await _stream(request, run, reply, counts, hides)
        async for index, event in run:
            run.choices[index].take(event)
        if ask.logprobs is None:
            return web.json_response(reply.whole(run.choices, False))
        # Up to 20 likely tokens in each place: too much to write out on the loop.
        text = await served.in_thread(lambda: json.dumps(reply.whole(run.choices, True)))
        return web.json_response(text=text)


def _logprobs(body: Body) -> int | None:
    wanted = field(body, "logprobs", bool) or False
    top = field(body, "top_logprobs", int, low=0, high=20)
    if top is not None and not wanted:
        if top == 0:
            return None
        raise invalid("top_logprobs is given, and logprobs is not true", "top_logprobs")
    return (top or 0) if wanted else None


async def _stream(
    request: web.Request, run: Run, reply: _Reply, counts: bool, hides: bool
) -> web.StreamResponse:
    stream = EventStream()
    await stream.prepare(request)

    async def send(
        choice: Choice, delta: dict[str, Any], drawn: Iterable[Drawn] = (), end: str | None = None
    ) -> None:
        chunk = reply.chunk(choice.index, delta, drawn, end)
        if counts:
            chunk["usage"] = None
        elif end is not None and all(one.result is not None for one in run.choices):
            chunk["timings"] = timings(run.choices)
        if hides:
            chunk["obfuscation"] = obfuscated(len(json.dumps(delta)))
        await stream.send(chunk)

    begun = False
    async for index, event in run:
        if not begun:
            begun = True
            for choice in run.choices:
                await send(choice, {"role": "assistant", "content": ""})
        choice = run.choices[index]
        pieces = choice.take(event)
        if choice.result is not None:
            rest = [drawn for piece in pieces for drawn in piece.drawn]
            await send(choice, {}, rest, choice.finish_reason)
            continue
        for piece in pieces:
            for delta in _deltas(choice, piece):
                await send(choice, delta, piece.drawn)
    if counts:
        await stream.send(reply.last(run.choices))
    await stream.done()
    return stream.response


def _deltas(choice: Choice, piece: Piece) -> list[dict[str, Any]]:
    """What a client adds to its answer for a piece."""
    part = piece.part
    if isinstance(part, Content):
        return [{"content": part.text}]
    if isinstance(part, Thought):
        return [{"reasoning_content": part.text}]
    assert isinstance(part, Call)
    index = choice.calls.index(part)
    whole = _call(part)
    arguments = whole["function"].pop("arguments")
    return [
        {
            "tool_calls": [
                {"index": index, **whole, "function": {"name": part.name, "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]},
    ]


def _call(call: Call) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


class _Reply:
    """The answer to one request, in OpenAI's form."""

    def __init__(self, served: Served) -> None:
        self._tokenizer = served.model.tokenizer
        self._head = {
            "id": new_id("chatcmpl"),
            "created": int(time.time()),
            "model": served.id,
            "system_fingerprint": FINGERPRINT,
        }

    def whole(self, choices: list[Choice], logprobs: bool) -> dict[str, Any]:
        """All answers, once they have ended."""
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [
                {
                    "index": choice.index,
                    "message": _message(choice),
                    "logprobs": self._logprobs(choice.drawn) if logprobs else None,
                    "finish_reason": choice.finish_reason,
                }
                for choice in choices
            ],
            "usage": usage(choices, len(choices)),
            "timings": timings(choices),
        }

    def chunk(
        self, index: int, delta: dict[str, Any], drawn: Iterable[Drawn], end: str | None
    ) -> dict[str, Any]:
        """A piece of the answer `index`."""
        entries = list(drawn)
        choice: dict[str, Any] = {"index": index, "delta": delta, "finish_reason": end}
        if entries:
            choice["logprobs"] = self._logprobs(entries)
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def last(self, choices: list[Choice]) -> dict[str, Any]:
        """The piece that has the counts, and no answer."""
        return {
            **self._head,
            "object": "chat.completion.chunk",
            "choices": [],
            "usage": usage(choices, len(choices)),
            "timings": timings(choices),
        }

    def _logprobs(self, drawn: Iterable[Drawn]) -> dict[str, Any]:
        return {"content": token_entries(self._tokenizer, drawn), "refusal": None}


def _message(choice: Choice) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": choice.content if choice.content or not choice.calls else None,
        "refusal": None,
    }
    if choice.thoughts:
        message["reasoning_content"] = choice.thoughts
    if choice.calls:
        message["tool_calls"] = [_call(call) for call in choice.calls]
    return message
