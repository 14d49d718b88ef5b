"""``/v1/completions``: texts continued as they stand, without a chat template."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from aiohttp import web

from golem_core.text import Content, Tokenizer
from golem_server.app import MODELS
from golem_server.ask import MOST_CHOICES, Ask
from golem_server.choice import Choice, Drawn
from golem_server.models import Served
from golem_server.params import common, grammar, model_name, refuse, response_format, stream_options
from golem_server.parse import Body, field, invalid, read_json
from golem_server.replies import (
    FINGERPRINT,
    logprob,
    new_id,
    obfuscated,
    timings,
    token_text,
    usage,
)
from golem_server.run import Run
from golem_server.sse import EventStream

REFUSED = {
    "suffix": (
        lambda value: value == "",
        "golem fills no gaps; write the model's own markers into prompt",
    ),
}


def add(app: web.Application) -> None:
    """Adds the route."""
    app.router.add_post("/v1/completions", complete)


def ask_of(body: Body) -> Ask:
    """The neutral request of a body; `ApiError` names the parameter that is wrong."""
    refuse(body, REFUSED)
    prompts = _prompts(body.get("prompt"))
    arguments = common(body)
    n = arguments["n"]
    if len(prompts) * n > MOST_CHOICES:
        raise invalid(
            f"prompt and n ask for {len(prompts) * n} answers, at most {MOST_CHOICES} are given",
            "prompt",
        )
    best = field(body, "best_of", int, low=1)
    if best is not None and best != n and best != 1:
        raise invalid(
            f"best_of is {best}: golem gives every answer it draws, so only n ({n}) is accepted",
            "best_of",
            "unsupported",
        )
    logprobs = body.get("logprobs")
    top = None
    if logprobs is not None and logprobs is not False:
        top = 0 if logprobs is True else field(body, "logprobs", int, low=0, high=20)
    if field(body, "echo", bool) and top is not None:
        raise invalid(
            "echo with logprobs is not supported: prompts have no logprobs", "echo", "unsupported"
        )
    constraint = response_format(body) if "response_format" in body else grammar(body)
    return Ask(prompts=prompts, logprobs=top, constraint=constraint, **arguments)


def _prompts(given: Any) -> list[str | list[int]]:
    """A text, texts, token ids, or lists of these, as a list of prompts."""
    wrong = "expected a string, token ids, or a list of either"
    if given is None:
        raise invalid(f"prompt is missing, {wrong}", "prompt", "missing_required_parameter")
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise invalid(f"prompt is no text and no list with something in it, {wrong}", "prompt")
    if all(_is_id(one) for one in given):
        return [given]
    for i, one in enumerate(given):
        if not isinstance(one, str) and not (isinstance(one, list) and all(map(_is_id, one))):
            raise invalid(f"prompt[{i}] is no text and no list of token ids", f"prompt[{i}]")
    return given


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 < value < 2**31


async def complete(request: web.Request) -> web.StreamResponse:
    """Answers one request."""
    body = await read_json(request)
    ask = ask_of(body)
    streams, counts, hides = stream_options(body)
    async with request.app[MODELS].use(model_name(body)) as served, Run(served, ask) as run:
        reply = _Reply(served, ask, run, field(body, "echo", bool) or False)
        if streams:
            return await _stream(request, run, reply, counts, hides)
        async for index, event in run:
            run.choices[index].take(event)
        if ask.logprobs is None:
            return web.json_response(reply.whole())
        # Up to 20 likely tokens in each place: too much to write out on the loop.
        text = await served.in_thread(lambda: json.dumps(reply.whole()))
        return web.json_response(text=text)


async def _stream(
    request: web.Request, run: Run, reply: _Reply, counts: bool, hides: bool
) -> web.StreamResponse:
    stream = EventStream()
    await stream.prepare(request)

    async def send(
        choice: Choice, text: str, drawn: Sequence[Drawn] = (), end: str | None = None
    ) -> None:
        chunk = reply.chunk(choice, text, drawn, end)
        if counts:
            chunk["usage"] = None
        elif end is not None and all(one.result is not None for one in run.choices):
            chunk["timings"] = timings(run.choices)
        if hides:
            chunk["obfuscation"] = obfuscated(len(json.dumps(text)))
        await stream.send(chunk)

    begun: set[int] = set()
    async for index, event in run:
        choice = run.choices[index]
        if index not in begun:
            begun.add(index)
            if reply.echoes:
                await send(choice, reply.prompt(choice))
        pieces = choice.take(event)
        if choice.result is not None:
            rest = [drawn for piece in pieces for drawn in piece.drawn]
            await send(choice, "", rest, choice.finish_reason)
            continue
        for piece in pieces:
            assert isinstance(piece.part, Content)  # nothing reads thoughts or calls out of it
            await send(choice, piece.part.text, piece.drawn)
    if counts:
        await stream.send(reply.last())
    await stream.done()
    return stream.response


class _Reply:
    """The answer to one request, in OpenAI's form."""

    def __init__(self, served: Served, ask: Ask, run: Run, echoes: bool) -> None:
        self.echoes = echoes
        self._tokenizer = served.model.tokenizer
        self._ask = ask
        self._run = run
        self._offsets = [0] * len(run.choices)  # characters of the tokens told so far
        self._head = {
            "id": new_id("cmpl"),
            "object": "text_completion",
            "created": int(time.time()),
            "model": served.id,
            "system_fingerprint": FINGERPRINT,
        }

    def prompt(self, choice: Choice) -> str:
        """The text that `choice` continues."""
        given = self._ask.prompts[choice.index // self._ask.n]
        return given if isinstance(given, str) else self._tokenizer.decode(given)

    def whole(self) -> dict[str, Any]:
        """All answers, once they have ended."""
        choices = []
        for choice in self._run.choices:
            text = self.prompt(choice) + choice.content if self.echoes else choice.content
            choices.append(self._choice(choice, text, choice.drawn, choice.finish_reason))
        return {**self._head, "choices": choices, **self._counts()}

    def chunk(
        self, choice: Choice, text: str, drawn: Sequence[Drawn], end: str | None
    ) -> dict[str, Any]:
        """A piece of one answer."""
        return {**self._head, "choices": [self._choice(choice, text, drawn, end)]}

    def last(self) -> dict[str, Any]:
        """The piece that has the counts, and no answer."""
        return {**self._head, "choices": [], **self._counts()}

    def _counts(self) -> dict[str, Any]:
        choices = self._run.choices
        return {"usage": usage(choices, self._ask.n), "timings": timings(choices)}

    def _choice(
        self, choice: Choice, text: str, drawn: Sequence[Drawn], end: str | None
    ) -> dict[str, Any]:
        logprobs = None
        if self._ask.logprobs is not None and (drawn or end is not None):
            offset = self._offsets[choice.index]
            logprobs = _logprobs(self._tokenizer, drawn, offset)
            self._offsets[choice.index] += sum(map(len, logprobs["tokens"]))
        return {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": end}


def _logprobs(tokenizer: Tokenizer, drawn: Iterable[Drawn], offset: int) -> dict[str, Any]:
    """The lists of the older form: tokens, their probabilities, the likeliest, where each begins.

    Of likely tokens that read the same, parts of characters for instance, the likeliest is told.
    """
    told: dict[str, Any] = {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [],
        "text_offset": [],
    }
    for one in drawn:
        text = token_text(tokenizer, one.id)
        top: dict[str, float] = {}
        for token, value in one.logprobs.top:
            top.setdefault(token_text(tokenizer, token), logprob(value))
        told["tokens"].append(text)
        told["token_logprobs"].append(logprob(one.logprobs.logprob))
        told["top_logprobs"].append(top)
        told["text_offset"].append(offset)
        offset += len(text)
    return told
