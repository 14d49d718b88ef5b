"""The OpenAPI document: every route of the server, what it takes and what it answers.

It is built from one table, and describes of it what an application really serves. A test walks the
table and the application both ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from aiohttp import web

from golem_core.media.encode import FORMATS
from golem_server.schemas import anthropic, native, ollama, openai, responses, speech
from golem_server.schemas.words import Schema, ref

__all__ = ["ROUTES", "SCHEMAS", "Route", "document", "served"]

JSON = "application/json"
EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
PLAIN = "text/plain"
PAGE = "text/html"
SOUNDS = tuple(form.media for form in FORMATS.values())
NO_SPEECH = (501, "the model that is asked for writes text and does not speak")

SCHEMAS: dict[str, Schema] = {
    **openai.SCHEMAS,
    **responses.SCHEMAS,
    **anthropic.SCHEMAS,
    **ollama.SCHEMAS,
    **native.SCHEMAS,
    **speech.SCHEMAS,
}


@dataclass(frozen=True)
class Route:
    """One row of the table.

    takes    the component of the request's body; None: it has none
    gives    the components of what is answered with 200, by media type; "" is text
    refuses  a status that is the only answer, because no model can do it yet, and why
    error    the component of an error's body
    query    parameters of the query, each a text
    form     whether the body is a form with files
    """

    method: str
    path: str
    summary: str
    takes: str | None = None
    gives: Mapping[str, str] = field(default_factory=dict)
    refuses: tuple[int, str] | None = None
    error: str = "Error"
    query: tuple[str, ...] = ()
    form: bool = False


# What stands in a path, by its name.
PLACES = {"id": "of a model; there may be slashes in it", "name": "of a file"}

NO_EMBEDDINGS = (501, "a model that makes no embeddings")
NO_RERANKING = (501, "a model that does not rerank")

ROUTES: dict[str, tuple[Route, ...]] = {
    "OpenAI": (
        Route("POST", "/v1/chat/completions", "Answer a conversation", "ChatRequest",
              {JSON: "ChatCompletion", EVENTS: "ChatChunk"}),
        Route("POST", "/v1/completions", "Continue texts", "CompletionRequest",
              {JSON: "Completion", EVENTS: "Completion"}),
        Route("POST", "/v1/responses", "Answer a conversation, as items", "ResponseRequest",
              {JSON: "Response", EVENTS: "ResponseEvent"}),
        Route("POST", "/v1/responses/input_tokens", "Count the tokens of an input",
              "InputTokensRequest", {JSON: "InputTokens"}),
        Route("GET", "/v1/models", "The models that can be asked for", None, {JSON: "ModelList"}),
        Route("GET", "/v1/models/{id}", "One model", None, {JSON: "Model"}),
        Route("POST", "/v1/embeddings", "Vectors of texts", "EmbeddingRequest",
              {JSON: "EmbeddingList"}, refuses=NO_EMBEDDINGS),
        Route("POST", "/v1/rerank", "Documents of a query, best first", "RerankRequest",
              {JSON: "RerankList"}, refuses=NO_RERANKING),
        Route("POST", "/v1/audio/speech", "Speak a text", "SpeechRequest",
              {**dict.fromkeys(SOUNDS, ""), EVENTS: "SpeechEvent"}, refuses=NO_SPEECH),
        Route("GET", "/v1/audio/models", "The models that speak", None, {JSON: "SpeakerList"}),
        Route("GET", "/v1/audio/voices", "The voices of a model that speaks", None,
              {JSON: "VoiceList"}, refuses=NO_SPEECH, query=("model",)),
        Route("POST", "/v1/audio/transcriptions", "Write down what is said",
              "TranscriptionRequest", refuses=(503, "no model that is offered can transcribe"),
              form=True),
    ),
    "OpenAI, without /v1": (
        Route("POST", "/chat/completions", "Answer a conversation", "ChatRequest",
              {JSON: "ChatCompletion", EVENTS: "ChatChunk"}),
        Route("POST", "/responses", "Answer a conversation, as items", "ResponseRequest",
              {JSON: "Response", EVENTS: "ResponseEvent"}),
        Route("POST", "/responses/input_tokens", "Count the tokens of an input",
              "InputTokensRequest", {JSON: "InputTokens"}),
        Route("GET", "/models", "The models that can be asked for", None, {JSON: "ModelList"}),
        Route("GET", "/models/{id}", "One model", None, {JSON: "Model"}),
        Route("POST", "/embeddings", "Vectors of texts", "EmbeddingRequest",
              {JSON: "EmbeddingList"}, refuses=NO_EMBEDDINGS),
        Route("POST", "/rerank", "Documents of a query, best first", "RerankRequest",
              {JSON: "RerankList"}, refuses=NO_RERANKING),
    ),
    "Anthropic": (
        Route("POST", "/v1/messages", "Answer a conversation, as blocks", "MessageRequest",
              {JSON: "Message", EVENTS: "MessageEvent"}, error="MessagesError"),
        Route("POST", "/v1/messages/count_tokens", "Count the tokens of a prompt",
              "CountTokensRequest", {JSON: "TokenCount"}, error="MessagesError"),
    ),
    "ollama": (
        Route("POST", "/api/chat", "Answer a conversation", "OllamaChatRequest",
              {LINES: "OllamaChat", JSON: "OllamaChat"}, error="OllamaError"),
        Route("POST", "/api/generate", "Answer a prompt", "GenerateRequest",
              {LINES: "Generated", JSON: "Generated"}, error="OllamaError"),
        Route("POST", "/api/embed", "Vectors of texts", "OllamaEmbedRequest",
              {JSON: "OllamaEmbedList"}, refuses=NO_EMBEDDINGS, error="OllamaError"),
        Route("GET", "/api/tags", "The models that can be asked for", None, {JSON: "Tags"},
              error="OllamaError"),
        Route("GET", "/api/ps", "The models that are loaded", None, {JSON: "Running"},
              error="OllamaError"),
        Route("POST", "/api/show", "What a model's file says", "ShowRequest", {JSON: "Shown"},
              error="OllamaError"),
        Route("GET", "/api/version", "The version of this API, and golem's", None,
              {JSON: "Version"}, error="OllamaError"),
    ),
    "Pocket TTS": (
        Route("POST", "/tts", "Speak a text", "TtsRequest", {"audio/wav": ""},
              refuses=NO_SPEECH, error="TtsError", form=True),
    ),
    "Text": (
        Route("POST", "/tokenize", "The ids of a text or a conversation", "TokenizeRequest",
              {JSON: "Tokens"}),
        Route("POST", "/v1/tokenize", "The ids of a text or a conversation", "TokenizeRequest",
              {JSON: "Tokens"}),
        Route("POST", "/detokenize", "The text of ids", "DetokenizeRequest",
              {JSON: "Detokenized"}),
        Route("POST", "/v1/detokenize", "The text of ids", "DetokenizeRequest",
              {JSON: "Detokenized"}),
        Route("POST", "/apply-template", "A conversation as the model reads it",
              "TemplateRequest", {JSON: "Rendered"}),
    ),
    "Server": (
        Route("GET", "/health", "Whether it can answer", None, {JSON: "Health"}),
        Route("GET", "/v1/health", "Whether it can answer", None, {JSON: "Health"}),
        Route("GET", "/metrics", "All counts, for Prometheus", None, {PLAIN: ""}),
        Route("GET", "/props", "What a model is and can do", None, {JSON: "Props"},
              query=("model",)),
        Route("GET", "/slots", "The places of a model's passes", None, {JSON: "Slots"},
              query=("model", "fail_on_no_slot")),
        Route("GET", "/version", "The versions of what runs", None, {JSON: "Versions"}),
        Route("GET", "/openapi.json", "This document", None, {JSON: ""}),
    ),
    "Page": (
        Route("GET", "/", "A small chat client", None, {PAGE: ""}),
        Route("GET", "/ui/{name}", "One of its files", None,
              dict.fromkeys((PAGE, "text/javascript", "text/css", "image/svg+xml"), "")),
    ),
}  # fmt: skip


def served(app: web.Application) -> set[tuple[str, str]]:
    """Method and path of every route of an application, as the table writes them."""
    return {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method not in ("HEAD", "OPTIONS")
    }


def document(app: web.Application, *, keys: bool = False) -> dict[str, Any]:
    """The OpenAPI 3.1 document of an application; with `keys` it lets in who has one."""
    there = served(app)
    paths: dict[str, Any] = {}
    for tag, rows in ROUTES.items():
        for row in rows:
            if (row.method, row.path) in there:
                paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, tag)
    about: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "golem",
            "version": version("golem-server"),
            "description": "Language models on your own machine. A field that is not described "
            "here is ignored; what is described and not done is refused by its name.",
        },
        "tags": [{"name": tag} for tag in ROUTES],
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }
    if keys:
        about["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
        about["security"] = [{"bearer": []}, {"key": []}]
    return about


def _operation(row: Route, tag: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [tag],
        "summary": row.summary,
        "operationId": re.sub(r"\W+", "_", f"{row.method.lower()}{row.path}").rstrip("_"),
        "responses": {},
    }
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
        for name in row.query
    ]
    parameters += [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PLACES[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in re.findall(r"{(\w+)}", row.path)
    ]
    if parameters:
        operation["parameters"] = parameters
    if row.takes is not None:
        media = "multipart/form-data" if row.form else JSON
        operation["requestBody"] = {
            "required": True,
            "content": {media: {"schema": ref(row.takes)}},
        }
    if row.gives:
        operation["responses"]["200"] = {
            "description": row.summary,
            "content": {
                media: {"schema": _answer(media, name)} for media, name in row.gives.items()
            },
        }
    error = {JSON: {"schema": ref(row.error)}}
    if row.refuses is not None:
        status, reason = row.refuses
        operation["responses"][str(status)] = {"description": reason, "content": error}
    operation["responses"]["default"] = {"description": "What is wrong", "content": error}
    return operation


def _answer(media: str, name: str) -> Schema:
    if media == EVENTS:
        return _event(ref(name))
    if name:
        return ref(name)
    return {"type": "object"} if media == JSON else {"type": "string"}


def _event(content: Schema) -> Schema:
    """One event of a stream: its data are JSON, but for OpenAI's last word."""
    parts = {"type": "string", "contentMediaType": JSON, "contentSchema": content}
    data = {"anyOf": [{"const": "[DONE]"}, parts]}
    return {"type": "object", "properties": {"data": data}, "required": ["data"]}
