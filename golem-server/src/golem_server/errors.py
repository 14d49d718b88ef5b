"""What a client is told when something is wrong: OpenAI's envelope, whatever went wrong where."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from golem_core.errors import (
    BadRequest,
    BadWeights,
    ContextFull,
    DeviceError,
    GolemError,
    NoMemory,
    NotFound,
    PassFailed,
    Unsupported,
)

__all__ = [
    "ENVELOPES",
    "FAILURE",
    "NO_RETRY",
    "REQUEST_ID",
    "STREAM",
    "ApiError",
    "FailingStream",
    "Handler",
    "envelope",
    "error_middleware",
    "error_response",
    "from_exception",
]

log = logging.getLogger("golem.server")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Envelope = Callable[["ApiError"], dict[str, Any]]

# An API whose errors look different says so when its routes are added: path prefix to envelope.
ENVELOPES: web.AppKey[dict[str, Envelope]] = web.AppKey("envelopes", dict)

# The clients try again after 408, 409, 429 and whatever is 500 or more; not where this says false.
NO_RETRY = {"x-should-retry": "false"}

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    501: "not_supported_error",
    503: "unavailable_error",
    504: "timeout_error",
    507: "unavailable_error",
}


class ApiError(Exception):
    """An answer that is an error.

    status   the HTTP status
    message  one sentence: what was found, what was expected
    type     OpenAI's kind of error; None: the one usual for the status
    param    the part of the request that is wrong, such as ``messages[0].role``
    code     a stable word for programs, such as ``model_not_found``
    headers  of the response
    extra    further members of the error object

    `request_id` is that of the request, once the error is about to be told.
    """

    request_id: str | None = None

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str | None = None,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type or TYPES.get(status, "server_error")
        self.param = param
        self.code = code
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


class FailingStream(Protocol):
    """A response that has begun and can still say that it failed."""

    response: web.StreamResponse

    async def fail(self, error: ApiError) -> None:
        """Says the error as the API's clients expect it, and ends the response."""

    def close(self) -> None:
        """Stops whatever still writes to the response."""


# Of a request whose response has begun, what it is written through: errors are said in its way.
STREAM: web.RequestKey[FailingStream] = web.RequestKey("stream")
# Of every request its id: the client's own if it sent one.
REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)
# Of a request that was answered with an error, which: for the log and the counts.
FAILURE: web.RequestKey[ApiError] = web.RequestKey("failure", ApiError)


def envelope(error: ApiError) -> dict[str, Any]:
    """The body of an error as OpenAI's clients read it."""
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
            **error.extra,
        }
    }


def from_exception(error: BaseException) -> ApiError:
    """Whatever was raised, as what a client is told; what is no known kind is a 500."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, web.HTTPException):
        return _from_http(error)
    if isinstance(error, ContextFull):
        return ApiError(
            400,
            str(error),
            param=error.field,
            code="context_length_exceeded",
            extra={"n_prompt_tokens": error.prompt_tokens, "n_ctx": error.context},
        )
    if isinstance(error, BadRequest):
        return ApiError(400, str(error), param=error.field, code="invalid_value")
    if isinstance(error, NotFound):
        return ApiError(404, str(error), param="model", code="model_not_found")
    if isinstance(error, Unsupported):
        return ApiError(400, str(error), code="unsupported")
    if isinstance(error, NoMemory):
        return ApiError(507, str(error), code="insufficient_memory", headers=NO_RETRY)
    if isinstance(error, PassFailed):
        return ApiError(500, str(error), code=error.kind, headers=NO_RETRY)
    if isinstance(error, DeviceError):
        return ApiError(503, str(error), code="device_error", headers=NO_RETRY)
    if isinstance(error, BadWeights):
        return ApiError(500, str(error), code="bad_weights", headers=NO_RETRY)
    if isinstance(error, GolemError):
        return ApiError(500, str(error), code="model_error", headers=NO_RETRY)
    return ApiError(
        500,
        f"the server failed: {type(error).__name__}; its log says more under the request's id",
        code="internal_error",
        headers=NO_RETRY,
    )


def _from_http(error: web.HTTPException) -> ApiError:
    """An error of the HTTP library: a path that is not there, a method, a body too large."""
    headers = {name: value for name, value in error.headers.items() if name == "Allow"}
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return ApiError(413, f"{error.text}; --max-body allows more", code="body_too_large")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"{error.method} is not allowed here, only {allowed}"
        return ApiError(405, message, code="method_not_allowed", headers=headers)
    if error.status == 404:
        return ApiError(404, "nothing is served at this path", code="not_found")
    return ApiError(error.status, error.text or error.reason, headers=headers)


def error_response(request: web.Request, error: ApiError) -> web.Response:
    """An error that nothing was sent before, in the envelope of the request's API."""
    request[FAILURE] = error
    error.request_id = request.get(REQUEST_ID)
    make: Envelope = envelope
    for prefix, other in request.app[ENVELOPES].items():
        if request.path == prefix or request.path.startswith(prefix.rstrip("/") + "/"):
            make = other
    return web.json_response(make(error), status=error.status, headers=error.headers)


@web.middleware
async def error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns what a handler raises into an answer, also in the middle of a stream."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return error_response(request, from_exception(error))
    except ConnectionError:
        raise  # nobody is there to be told
    except Exception as error:
        told = from_exception(error)
        if told.code == "internal_error":
            log.exception("%s %s failed", request.method, request.path)
        stream: FailingStream | None = request.get(STREAM)
        if stream is None:
            return error_response(request, told)
        request[FAILURE] = told
        told.request_id = request.get(REQUEST_ID)
        await stream.fail(told)
        return stream.response
    finally:
        if STREAM in request:
            request[STREAM].close()
