"""The OpenAPI document says what the server does: routes, schemas, answers to made-up requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from golem_server import ServeSettings, make_app
from golem_server.openapi import ROUTES, SCHEMAS, document, served

jsonschema = pytest.importorskip("jsonschema")

THERE = {"id": "tiny", "name": "index.html"}  # what is there for each part of a path
TABLE = {(row.method, row.path) for rows in ROUTES.values() for row in rows}


@pytest.fixture
def described(tiny_model: Path) -> dict[str, Any]:
    return document(make_app(ServeSettings(models=(str(tiny_model),))))


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def test_the_table_and_the_application_have_the_same_routes(tiny_model: Path) -> None:
    app = make_app(ServeSettings(models=(str(tiny_model),)))
    assert served(app) == TABLE
    assert len(TABLE) == sum(map(len, ROUTES.values()))


def test_every_row_is_described(described: dict[str, Any]) -> None:
    found = {
        (method.upper(), path)
        for path, operations in described["paths"].items()
        for method in operations
    }
    assert found == TABLE
    names = [one["operationId"] for path in described["paths"].values() for one in path.values()]
    assert len(set(names)) == len(names)
    for rows in ROUTES.values():
        for row in rows:
            assert row.gives or row.refuses, f"{row.path} answers nothing"


def test_every_component_is_a_schema_and_is_used(described: dict[str, Any]) -> None:
    validator = jsonschema.Draft202012Validator
    for schema in SCHEMAS.values():
        validator.check_schema(schema)
    used = set(references(described))
    assert used == {f"#/components/schemas/{name}" for name in SCHEMAS}


def test_keys_are_described_where_they_are_asked_for(tiny_model: Path) -> None:
    app = make_app(ServeSettings(models=(str(tiny_model),), api_keys=("secret",)))
    about = document(app, keys=True)
    assert about["security"] == [{"bearer": []}, {"key": []}]
    assert "secret" not in json.dumps(about)
    assert "security" not in document(app)


def test_requests_made_up_from_the_document(
    tiny_model: Path, serve_in_thread: Callable[..., Any]
) -> None:
    """No answer is a failure of the server, and each is one that the document describes."""
    schemathesis = pytest.importorskip("schemathesis")
    with serve_in_thread(f"tiny={tiny_model}", max_tokens=4, timeout=10.0) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        failed: list[str] = []
        for result in schema.get_all_operations():
            operation = result.ok()
            try:
                try_out(operation)
            except Exception as error:
                failed.append(f"{operation.label}: {error}")
    assert not failed, "\n\n".join(failed)


def try_out(operation: Any) -> None:
    """Sends what fits an operation and, where it has a body, what does not."""
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi import checks

    told = {int(code) for code in operation.definition.raw["responses"] if code.isdigit()}
    cases = operation.as_strategy()
    if operation.body:
        cases = cases | operation.as_strategy(GenerationMode.NEGATIVE)
    found: set[int] = set()

    @settings(
        max_examples=16,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def send(case: Any) -> None:
        if isinstance(case.body, dict) and "model" in case.body:
            case.body["model"] = "tiny"
        if case.path_parameters:
            case.path_parameters = {name: THERE[name] for name in case.path_parameters}
        response = case.call(timeout=20)
        found.add(response.status_code)
        assert response.status_code < 500 or response.status_code in told, response.text
        case.validate_response(
            response,
            checks=[
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_schema_conformance,
            ],
        )

    send()
    print(operation.label, sorted(found))
