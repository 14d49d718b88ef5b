"""Requests made up from the documents that OpenAI and Anthropic publish, and what becomes of them.

A request that a document allows is answered, or refused by the name of what golem does not do; the
same request without what was refused is answered, and the answer is what the document says. One
that a document does not allow is answered or refused, never a failure. The documents are fetched
by tests/fetch_documents.py.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

jsonschema = pytest.importorskip("jsonschema")
schemathesis = pytest.importorskip("schemathesis")

JSON = "application/json"
EXAMPLES = 6  # of each kind, for each operation
TIMEOUT = 10.0  # seconds for a request, both sides

TURNS = [{"role": "user", "content": "Hi"}]


@dataclass(frozen=True)
class Operation:
    """What is served of a document.

    events  the schema of what a stream has; OpenAI's document has none for completions
    least   what stands for a field that is refused as it is, and must be there
    never   the status of a model that cannot do it, as the one that is served here cannot
    """

    method: str
    path: str
    events: str = ""
    least: Mapping[str, Any] = field(default_factory=dict)
    never: int | None = None


# Of each document where its paths begin, and what is served of it.
PUBLISHED: dict[str, tuple[str, tuple[Operation, ...]]] = {
    "openai": (
        "/v1",
        (
            Operation("post", "/chat/completions", "CreateChatCompletionStreamResponse",
                      {"messages": TURNS}),
            Operation("post", "/completions", least={"prompt": "Hi"}),
            Operation("post", "/embeddings", never=501),
            Operation("post", "/responses", "ResponseStreamEvent", {"input": "Hi"}),
            Operation("post", "/responses/input_tokens", least={"input": "Hi"}),
            Operation("get", "/models"),
            Operation("get", "/models/{model}"),
            Operation("post", "/audio/speech", never=501),
            Operation("post", "/audio/transcriptions", never=503),
        ),
    ),
    "anthropic": (
        "",
        (
            Operation("post", "/v1/messages", "MessageStreamEvent",
                      {"messages": TURNS, "max_tokens": 4}),
            Operation("post", "/v1/messages/count_tokens", least={"messages": TURNS}),
        ),
    ),
}  # fmt: skip


def published(name: str) -> dict[str, Any]:
    """The document, with the operations that are served and the components that they need."""
    folder = os.environ.get("GOLEM_TEST_DOCUMENTS")
    if not folder:
        pytest.skip("GOLEM_TEST_DOCUMENTS names no folder of published OpenAPI documents")
    import yaml

    text = (Path(folder) / f"{name}.yml").read_text(encoding="utf-8")
    whole = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    _, served = PUBLISHED[name]
    paths = {one.path: {one.method: whole["paths"][one.path][one.method]} for one in served}
    for one in served:
        body = paths[one.path][one.method].get("requestBody", {})
        if JSON in body.get("content", {}):  # a form of the same is not for programs
            schema = body["content"][JSON]["schema"]
            there = {"type": "object", "required": list(one.least)}
            body |= {"content": {JSON: {"schema": {"allOf": [schema, there]}}}, "required": True}
    schemas = whole["components"]["schemas"]
    kept: dict[str, Any] = {}
    wanted = [*references(paths), *(one.events for one in served if one.events), "ErrorResponse"]
    while wanted:
        component = wanted.pop()
        if component not in kept:
            kept[component] = schemas[component]
            wanted += references(kept[component])
    about = {"title": name, "version": "1"}
    return {
        "openapi": whole["openapi"],
        "info": about,
        "paths": paths,
        "components": {"schemas": kept},
    }


def references(value: Any) -> Iterator[str]:
    """The names of the schemas that `value` refers to."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix("#/components/schemas/")
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


class Tried:
    """One operation of a document, and what the document says of its answers."""

    def __init__(self, document: Mapping[str, Any], base: str, operation: Any) -> None:
        self.document = document
        self.operation = operation
        self.base = base
        _, served = PUBLISHED[document["info"]["title"]]
        self.known = next(one for one in served if one.path == operation.path)
        self.least, self.never = self.known.least, self.known.never
        self.told: Counter[Any] = Counter()

    def send(self, case: Any) -> Any:
        """The answer to a request for the model that there is."""
        body = case.body if isinstance(case.body, dict) else {}
        if "model" in body:
            body["model"] = "served"
        if body.get("n") in range(3, 129):  # they are as the first, and take as long each
            body["n"] = 2
        if case.path_parameters:
            case.path_parameters = dict.fromkeys(case.path_parameters, "served")
        response = case.call(base_url=self.base, timeout=TIMEOUT + 10)
        self.told[response.status_code] += 1
        if response.status_code == 200:
            self.check_answer(response)
        else:
            self.check(response.json(), "ErrorResponse")
        return response

    def conforms(self, case: Any) -> None:
        """Sends a request and, without what is refused, sends it again, until it is answered."""
        names: list[str] = []
        while True:
            response = self.send(case)
            if response.status_code in (200, self.never):
                return
            assert response.status_code == 400, (names, response.text)
            assert isinstance(case.body, dict), response.text
            name = refused(response)
            assert name in case.body or name in self.least, (names, response.text)
            assert name not in names, (names, response.text)
            names.append(name)
            self.told[name] += 1
            case.body.pop(name, None)
            if name in self.least:
                case.body[name] = self.least[name]

    def survives(self, case: Any) -> None:
        """Sends what no request is: it is answered or refused."""
        status = self.send(case).status_code
        assert status < 500 or status == self.never, status

    def check(self, value: Any, name: str) -> None:
        """Raises for a value that is no `name`."""
        schema = {
            "$ref": f"#/components/schemas/{name}",
            "components": self.document["components"],
        }
        error = jsonschema.exceptions.best_match(
            jsonschema.Draft202012Validator(schema).iter_errors(value)
        )
        if error is not None:
            raise AssertionError(
                f"{json.dumps(value)[:2000]} is no {name}: {error.json_path}: {error.message[:500]}"
            )

    def check_answer(self, response: Any) -> None:
        """Raises for an answer that is not what the document says."""
        kind = response.headers["content-type"][0].partition(";")[0]
        if kind == "text/event-stream":
            events = list(data_of(response.text))
            assert events, "an empty stream"
            for event in events:
                assert "error" not in event, event
                if event.get("type") == "ping":  # Anthropic describes it beside the document
                    continue
                if self.known.events:
                    self.check(event, self.known.events)
            return
        content = self.operation.definition.raw["responses"]["200"]["content"]
        self.check(response.json(), *references(content[kind]["schema"]))


def data_of(text: str) -> Iterator[dict[str, Any]]:
    """What the events of a stream hold."""
    for line in re.split(r"\r\n|\r|\n", text):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[len("data: ") :])


def refused(response: Any) -> str:
    """The first part of the place of what a refusal names; empty where it names nothing."""
    error = response.json()["error"]
    # Anthropic's errors have no field for it; the message begins with it.
    place = error["param"] or "" if "param" in error else error["message"]
    found = re.match(r"\w+", place)
    return found.group() if found else ""


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_parameter_that_is_published_is_spoken_of(name: str) -> None:
    """The pages say of each whether it is obeyed, refused, or changes nothing."""
    pages = ("requests.md", "apis.md")
    folder = Path(__file__).parents[2] / "docs"
    text = "".join((folder / page).read_text(encoding="utf-8") for page in pages)
    spoken = set(re.findall(r"`([\w]+)", text))
    document = published(name)
    for one in PUBLISHED[name][1]:
        body = document["paths"][one.path][one.method].get("requestBody")
        if body is None or one.never is not None:
            continue
        found = properties(body["content"][JSON]["schema"], document)
        assert found, one.path
        assert found - spoken == set(), one.path


def properties(schema: Mapping[str, Any], document: Mapping[str, Any]) -> set[str]:
    """The names of the fields of an object."""
    found = set(schema.get("properties", {}))
    for part in schema.get("allOf", []):
        found |= properties(part, document)
    if "$ref" in schema:
        (name,) = references(schema)
        found |= properties(document["components"]["schemas"][name], document)
    return found


def try_out(strategy: Any, test: Callable[[Any], None]) -> None:
    from hypothesis import HealthCheck, Phase, given, settings

    limits = settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def one(case: Any) -> None:
        test(case)

    limits(given(case=strategy)(one))()


@pytest.fixture(scope="module")
def server(trained_model: Path, serve_in_thread: Callable[..., Any]) -> Iterator[Any]:
    with serve_in_thread(
        f"served={trained_model}", context=2048, max_tokens=8, timeout=TIMEOUT
    ) as served:
        yield served


@pytest.mark.parametrize("name", PUBLISHED)
def test_requests_that_are_made_up_from_what_is_published(name: str, server: Any) -> None:
    document = published(name)
    base = server.url + PUBLISHED[name][0]
    failed: list[str] = []
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = result.ok()
        tried = Tried(document, base, operation)
        modes = [(schemathesis.GenerationMode.POSITIVE, tried.conforms)]
        if operation.body:
            modes.append((schemathesis.GenerationMode.NEGATIVE, tried.survives))
        for mode, test in modes:
            try:
                try_out(operation.as_strategy(mode), test)
            except Exception as error:
                failed.append(f"{operation.label} ({mode.value}): {error}")
        print(operation.label, dict(tried.told))
    assert not failed, "\n\n".join(failed)
