"""The few words that the schemas are written in; each gives a piece of JSON Schema 2020-12."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

ANY: Schema = {}
BOOL: Schema = {"type": "boolean"}
INT: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}
OBJECT: Schema = {"type": "object"}


def obj(required: str = "", /, **properties: Schema) -> Schema:
    """An object; `required` are names with spaces between them. Other members may be there."""
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required.split()
    return schema


def array(items: Schema, least: int = 0) -> Schema:
    """A list of `items`."""
    schema: Schema = {"type": "array", "items": items}
    return {**schema, "minItems": least} if least else schema


def either(*schemas: Schema) -> Schema:
    """One of several."""
    return {"anyOf": list(schemas)}


def maybe(schema: Schema) -> Schema:
    """`schema`, or null."""
    return either(schema, {"type": "null"})


def one(*values: str) -> Schema:
    """One of these texts."""
    return {"type": "string", "enum": list(values)}


def number(low: float, high: float, kind: str = "number") -> Schema:
    """A number within a range, both ends included."""
    return {"type": kind, "minimum": low, "maximum": high}


def ref(name: str) -> Schema:
    """A component by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def says(schema: Schema, description: str) -> Schema:
    """`schema` with a sentence."""
    return {**schema, "description": description}
