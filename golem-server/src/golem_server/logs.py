"""One line a request: what was asked of which model, how long each part took, how it ended.

    12:03:11 POST /v1/chat/completions 200 1.234s smol read 20 (100 known) wrote 50 · waiting 0.001
    reading 0.204 drawing 1.011 · stop · 5f0c…

Never the text of a prompt or an answer, unless that was asked for.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Middleware

from golem_core.engine import Result
from golem_server.errors import FAILURE, REQUEST_ID, Handler

__all__ = ["Json", "RequestLog", "Text", "current", "logs_middleware", "set_up"]


access = logging.getLogger("golem.access")

# What a client may choose as the id of a request: nothing that could forge a line of the log.
_ID = re.compile(r"[\w.:/+=@-]{1,128}")
QUIET = {"/health", "/v1/health", "/metrics"}  # asked every few seconds by machines

LONGEST_TEXT = 1 << 16  # characters of a text that are logged

_current: ContextVar[RequestLog | None] = ContextVar("golem_request_log", default=None)


@dataclass
class RequestLog:
    """What is gathered about one request while it is answered."""

    id: str
    keeps_texts: bool = False
    model: str | None = None
    results: list[Result] = field(default_factory=list)
    error: str | None = None
    texts: list[tuple[str, str]] = field(default_factory=list)  # kind and text

    def add(self, model: str, result: Result) -> None:
        """Adds the end of one of the request's answers."""
        self.model = model
        self.results.append(result)
        self.note("answer", result.text)

    def note(self, kind: str, text: str) -> None:
        """Keeps a text for the log, where that was asked for."""
        if self.keeps_texts and text:
            self.texts.append((kind, text[:LONGEST_TEXT]))

    def fields(self) -> dict[str, Any]:
        """Sums over the answers; times are the longest."""
        found: dict[str, Any] = {}
        if self.model is not None:
            found["model"] = self.model
        if self.results:
            timings = [result.timings for result in self.results]
            found |= {
                "prompt_tokens": sum(t["prompt_tokens"] for t in timings),
                "cached_tokens": sum(t["cached_tokens"] for t in timings),
                "generated_tokens": sum(t["generated_tokens"] for t in timings),
                "waiting_seconds": max(t["queued_seconds"] for t in timings),
                "reading_seconds": max(t["prompt_seconds"] for t in timings),
                "drawing_seconds": max(t["generate_seconds"] for t in timings),
                "reason": ",".join(dict.fromkeys(r.finish_reason for r in self.results)),
            }
            if any(t["drafted_tokens"] for t in timings):
                found["drafted_tokens"] = sum(t["drafted_tokens"] for t in timings)
                found["accepted_tokens"] = sum(t["accepted_tokens"] for t in timings)
        if self.error is not None:
            found["error"] = self.error
        return found


def current() -> RequestLog | None:
    """The record of the request that the running task answers."""
    return _current.get()


def request_id(request: web.BaseRequest) -> str:
    """The id that the client gave the request, or a new one."""
    given = request.headers.get("X-Request-Id", "")
    return given if _ID.fullmatch(given) else uuid.uuid4().hex


def logs_middleware(log_prompts: bool) -> Middleware:
    """Writes the line when the request has ended, also when its client has left."""

    @web.middleware
    async def write(request: web.Request, handler: Handler) -> web.StreamResponse:
        record = RequestLog(request_id(request), log_prompts)
        request[REQUEST_ID] = record.id
        token = _current.set(record)
        begun = time.perf_counter()
        status: int | None = None
        try:
            response = await handler(request)
            status = response.status
            if log_prompts and request.content_type == "application/json":
                body = await request.read()  # read already: it was answered
                record.note("request", body.decode("utf-8", "replace"))
            return response
        finally:
            _current.reset(token)
            failure = request.get(FAILURE)
            if failure is not None:
                record.error = failure.message
            if request.path not in QUIET or (status or 500) >= 500:
                _write(request, record, status, time.perf_counter() - begun)

    return write


def _write(request: web.Request, record: RequestLog, status: int | None, seconds: float) -> None:
    """The line; a status of None says that the client left before the end."""
    level = logging.ERROR if status is not None and status >= 500 else logging.INFO
    access.log(
        level,
        "%s",
        request.path,
        extra={
            "golem": {
                "id": record.id,
                "method": request.method,
                "path": request.path,
                "status": status,
                "seconds": seconds,
                **record.fields(),
            }
        },
    )
    for kind, text in record.texts:
        access.info("%s", kind, extra={"golem": {"id": record.id, "kind": kind, "text": text}})


class Text(logging.Formatter):
    """Lines for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The time, then what happened."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields: dict[str, Any] | None = getattr(record, "golem", None)
        if fields is None:
            return f"{clock} {super().format(record)}"
        if "text" in fields:
            return f"{clock} {fields['kind']} {fields['id']}: {json.dumps(fields['text'])}"
        return f"{clock} {' '.join(_parts(fields))}"


def _parts(fields: dict[str, Any]) -> list[str]:
    status = fields["status"]
    # A path can have any character that a client likes to send.
    path = json.dumps(fields["path"])[1:-1]
    parts = [fields["method"], path, "left" if status is None else str(status)]
    parts.append(f"{fields['seconds']:.3f}s")
    if "model" in fields:
        parts.append(fields["model"])
    if "prompt_tokens" in fields:
        known = fields["cached_tokens"]
        parts.append(
            f"read {fields['prompt_tokens'] - known}" + (f" ({known} known)" * bool(known))
        )
        parts.append(f"wrote {fields['generated_tokens']}")
        if fields.get("drafted_tokens"):
            parts.append(f"guessed {fields['accepted_tokens']}/{fields['drafted_tokens']}")
        for name in ("waiting", "reading", "drawing"):
            parts.append(f"{name} {fields[f'{name}_seconds']:.3f}")
        parts.append(fields["reason"])
    if "error" in fields:
        parts.append(f"error: {json.dumps(fields['error'], ensure_ascii=False)}")
    parts.append(fields["id"])
    return parts


class Json(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time and level, then what happened by names."""
        fields: dict[str, Any] = {"time": record.created, "level": record.levelname.lower()}
        golem: dict[str, Any] | None = getattr(record, "golem", None)
        fields |= {"message": record.getMessage()} if golem is None else golem
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Not for what is no HTTP: anybody can send it, and a traceback says nothing of it."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def set_up(log_json: bool) -> None:
    """Sends golem's lines to standard error; what other libraries log only from warnings on."""
    logging.getLogger("aiohttp.server").addFilter(_is_worth_a_line)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if log_json else Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("golem").setLevel(logging.INFO)
