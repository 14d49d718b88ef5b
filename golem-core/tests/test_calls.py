"""Arguments of calls: typed by the tool's schema, and given to a template as it wants them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from golem_core.text import (
    Schema,
    Template,
    value_of,
)

# Types


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("12345", {"type": "string"}, "12345"),
        ("12345", {"type": "integer"}, 12345),
        ("5.0", {"type": "integer"}, 5),
        ("5.5", {"type": "integer"}, 5.5),
        ("5", {"type": "number"}, 5),
        ("true", {"type": "boolean"}, True),
        ("True", {"type": "BOOLEAN"}, True),
        ("true", {"type": "string"}, "true"),
        ("null", {"type": ["string", "null"]}, None),
        ("None", {"type": "string", "nullable": True}, None),
        ("null", {"type": "string"}, "null"),
        ("5", {"type": ["string", "integer"]}, 5),
        ("5", {"type": ["string", "number"]}, 5),
        ("5", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "5"),
        ("5", {"enum": ["5", "6"]}, "5"),
        ("5", {"enum": [5, 6]}, 5),
        ("5", {"const": "5"}, "5"),
        ("[1]", {"$ref": "#/$defs/l", "$defs": {"l": {"type": "string"}}}, "[1]"),
        ("[1]", {"$ref": "#/$defs/none"}, [1]),
        ("[1]", {"$ref": "#"}, [1]),
        ("[1]", None, [1]),
        ("celsius", None, "celsius"),
        ('"x"', None, '"x"'),
        (" x ", {"type": "string"}, " x "),
        ("NaN", {"type": "number"}, "NaN"),
        ("[" * 100_000, None, "[" * 100_000),
    ],
)
def test_a_schema_types_what_has_no_quotes(text: str, schema: object, value: object) -> None:
    got = value_of(text, Schema(schema))
    assert (got, type(got)) == (value, type(value))


def test_a_schema_is_found_and_looked_into() -> None:
    items = {"type": "array", "items": {"$ref": "#/$defs/one"}}
    parameters = {
        "allOf": [{"properties": {"list": items}}],
        "additionalProperties": {"type": "string"},
        "$defs": {"one": {"type": "string"}},
    }
    tools: list[Any] = [3, {"name": "g", "parameters": parameters}]
    schema = Schema.of_tool(tools, "g")
    assert schema.property("list").items().types() == {"string"}
    assert Schema.of_tool(tools, "h").property("list").types() == set()
    assert Schema({"additionalProperties": {"type": "string"}}).property("x").types() == {"string"}
    assert Schema({"properties": 3, "items": [1], "type": 4}).property("x").items().types() == set()


# The way back into a conversation


def given_as(arguments: object) -> list[dict[str, Any]]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]


@pytest.mark.parametrize(
    ("forms", "want"),
    [
        (({"a": "é"}, '{"a": "é"}', '{"a":"\\u00e9"}', '"{\\"a\\": \\"é\\"}"'), '{"a": "é"}'),
        (({}, "{}", "", None), "{}"),
        (("{not", "{not"), "{not"),
    ],
)
def test_a_call_is_rendered_once(forms: Sequence[object], want: str) -> None:
    arguments = "messages[1].tool_calls[0].function.arguments"
    dumped = Template(f"{{{{ {arguments} if {arguments} is string else {arguments} | tojson }}}}")
    printed = Template(f"{{{{ {arguments} }}}}")
    for form in forms:
        assert dumped.render(given_as(form)) == [(want, False)]
        assert printed.render(given_as(form)) == [(want, False)]


def test_an_absent_content_is_none_where_the_template_can_tell() -> None:
    messages = [*given_as("{}")[:1], {**given_as("{}")[1], "content": None}]
    assert Template("{{ messages[1].content is none }}").render(messages) == [("True", False)]
    looks = Template("{{ 'x' in messages[1].content }}")
    assert looks.render(messages) == [("False", False)]
