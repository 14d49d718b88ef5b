"""``/v1/responses``: OpenAI's Responses, stateless: a request has its whole conversation."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from golem_server.app import MODELS
from golem_server.ask import Ask
from golem_server.choice import Choice
from golem_server.counted import prompt_tokens
from golem_server.dialects import response_request as read
from golem_server.dialects.response_events import ResponseEvents, new_id
from golem_server.errors import ApiError
from golem_server.parse import field, read_json
from golem_server.replies import token_entries
from golem_server.run import Run
from golem_server.sse import EventStream, encoded

__all__ = ["add"]

Json = dict[str, Any]

# What this API calls the fields of an `Ask`.
NAMES = {
    "messages": "input",
    "prompt": "input",
    "max_tokens": "max_output_tokens",
    "thinking": "reasoning.effort",
}


def add(app: web.Application) -> None:
    """Adds the route, and the one that counts a request's tokens; /v1 may be left out."""
    for prefix in ("/v1", ""):
        app.router.add_post(f"{prefix}/responses", create)
        app.router.add_post(f"{prefix}/responses/input_tokens", input_tokens)


# What a request calls itself and its caller; a response says it again and has no null for it.
NAMED = ("prompt_cache_key", "safety_identifier", "user")


async def create(request: web.Request) -> web.StreamResponse:
    """One response, whole or as events."""
    body = await read_json(request)
    name = field(body, "model", str)
    stream = field(body, "stream", bool)
    ask = ask_of(body)
    response = begun(body, ask)
    async with request.app[MODELS].use(name) as served, Run(served, ask) as run:
        response["model"] = name or served.id
        events = ResponseEvents(response)
        choice = run.choices[0]
        out = ResponseStream(events) if stream else None
        if out is not None:
            await out.prepare(request)
            await out.put(events.begin())
        async for _, event in run:
            for piece in choice.take(event):
                sent = events.take(piece.part, token_entries(choice.tokenizer, piece.drawn))
                if out is not None:
                    await out.put(sent)
        sent = events.end(choice.finish_reason, usage(choice))
        if out is None:
            if ask.logprobs is None:
                return web.json_response(events.response)
            # Up to 20 likely tokens in each place: too much to write out on the loop.
            return web.json_response(text=await served.in_thread(json.dumps, events.response))
        for last in sent:
            data: object = last
            if ask.logprobs is not None:
                data = (await served.in_thread(encoded, last)).decode()
            await out.send(data, name=last["type"])
        await out.end()
        return out.response


async def input_tokens(request: web.Request) -> web.Response:
    """How many tokens the input of a request would be."""
    body = await read_json(request)
    ask = ask_of(body)
    async with request.app[MODELS].use(field(body, "model", str)) as served:
        count = await prompt_tokens(served, ask)
    return web.json_response({"object": "response.input_tokens", "input_tokens": count})


class ResponseStream(EventStream):
    """Events that are named by their type; a failure is the event ``response.failed``."""

    def __init__(self, events: ResponseEvents) -> None:
        super().__init__()
        self._events = events

    async def put(self, events: list[Json]) -> None:
        """Sends events in their order."""
        for event in events:
            await self.send(event, name=event["type"])

    async def fail(self, error: ApiError) -> None:
        """Says an error in the middle, and ends."""
        code = "invalid_prompt" if error.status < 500 else "server_error"
        await self.put(self._events.fail(code, error.message, error.code or error.type))
        await self.end()


def ask_of(body: Mapping[str, Any]) -> Ask:
    """What a request asks. Raises `ApiError` naming the field."""
    read.check_absent(body)
    tools = read.tools_of(body)
    (choice, tool), tools = read.choice_of(body, tools)
    constraint = read.constraint_of(body)
    read.check_form(constraint, tools, choice)
    effort = read.effort_of(body)
    parallel = field(body, "parallel_tool_calls", bool)
    return Ask(
        messages=read.messages_of(body),
        tools=tools,
        tool_choice=choice,
        tool=tool,
        parallel=parallel is not False,
        sampling={
            "temperature": field(body, "temperature", float),
            "top_p": field(body, "top_p", float),
        },
        max_tokens=field(body, "max_output_tokens", int, low=1),
        logprobs=read.logprobs_of(body),
        constraint=constraint,
        thinking=None if effort is None else effort != "none",
        variables={} if effort is None else {"reasoning_effort": effort},
        names=NAMES,
    )


def begun(body: Mapping[str, Any], ask: Ask) -> Json:
    """The response before its answer: what was asked for. Its usage comes with the end."""
    effort = read.effort_of(body)
    text = field(body, "text", dict) or {}
    names = {name: field(body, name, str) for name in NAMED}
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": field(body, "instructions", str),
        "max_output_tokens": ask.max_tokens,
        "max_tool_calls": field(body, "max_tool_calls", int, low=1),
        "metadata": field(body, "metadata", dict) or {},
        "model": "",
        "output": [],
        "parallel_tool_calls": ask.parallel,
        "previous_response_id": None,
        "reasoning": {"effort": effort, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": ask.sampling["temperature"],
        "text": {"format": text.get("format") or {"type": "text"}, "verbosity": "medium"},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": ask.logprobs or 0,
        "top_p": ask.sampling["top_p"],
        "truncation": "disabled",
        **{name: text for name, text in names.items() if text is not None},
    }


def usage(choice: Choice) -> Json:
    """What the answer took."""
    assert choice.result is not None
    timings = choice.result.timings
    read_tokens, drawn = timings["prompt_tokens"], timings["generated_tokens"]
    return {
        "input_tokens": read_tokens,
        "input_tokens_details": {
            "cached_tokens": timings["cached_tokens"],
            "cache_write_tokens": 0,
        },
        "output_tokens": drawn,
        "output_tokens_details": {"reasoning_tokens": choice.reasoning_tokens},
        "total_tokens": read_tokens + drawn,
    }
