"""Values that a model writes without saying their type: the tool's JSON Schema knows it.

`12345` is a number where the schema says so and a text where it says that; without a schema it is
what JSON makes of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from golem_core.text.answer import Tools

_DEEPEST = 32
_OF_PYTHON = {"None": None, "True": True, "False": False}  # as templates print them


class Schema:
    """A JSON Schema, or a part of one, as far as it says what type a value has."""

    def __init__(self, schema: object, root: object = None) -> None:
        self._root = schema if root is None else root
        self._schema = _resolved(schema, self._root)

    @classmethod
    def of_tool(cls, tools: Tools, name: str) -> Schema:
        """The schema of a tool's arguments; one that says nothing where there is no such tool."""
        for tool in tools:
            function = tool.get("function", tool) if isinstance(tool, Mapping) else None
            if isinstance(function, Mapping) and function.get("name") == name:
                return cls(function.get("parameters", function.get("input_schema")))
        return cls(None)

    def property(self, name: str) -> Schema:
        """What an object's property may be."""
        for part in self._parts():
            properties = part.get("properties")
            if isinstance(properties, Mapping) and name in properties:
                return Schema(properties[name], self._root)
        for part in self._parts():
            if isinstance(part.get("additionalProperties"), Mapping):
                return Schema(part["additionalProperties"], self._root)
        return Schema(None, self._root)

    def items(self) -> Schema:
        """What an array's values may be."""
        for part in self._parts():
            if isinstance(part.get("items"), Mapping):
                return Schema(part["items"], self._root)
        return Schema(None, self._root)

    def types(self) -> frozenset[str]:
        """The types that a value may have; none where the schema does not say."""
        found: set[str] = set()
        for part in self._parts():
            named = part.get("type")
            listed = named if isinstance(named, list) else [named]
            found |= {one.lower() for one in listed if isinstance(one, str)}
            if part.get("nullable") is True:
                found.add("null")
            values = part.get("enum", [part["const"]] if "const" in part else [])
            if named is None and isinstance(values, list):
                found |= {_type_of(value) for value in values}
        return frozenset(found)

    def _parts(self) -> list[Mapping[str, Any]]:
        """The schema and those that it is made of."""
        found: list[Mapping[str, Any]] = []
        waiting = [self._schema]
        while waiting and len(found) < _DEEPEST:
            part = _resolved(waiting.pop(0), self._root)
            if isinstance(part, Mapping):
                found.append(part)
                for key in ("anyOf", "oneOf", "allOf"):
                    waiting += part[key] if isinstance(part.get(key), list) else []
        return found


def value_of(text: str, schema: Schema) -> Any:
    """The value of a text that has no quotes around it; where nothing else fits, the text."""
    types = schema.types()
    value = _json(text.strip())
    if value is _NOTHING:
        return text
    if not types:
        return text if isinstance(value, str) else value
    kind = _type_of(value)
    if kind == "null" and (types & {"null"} or "string" not in types):
        return None
    if "string" in types:
        other = kind in types or (kind == "integer" and "number" in types)
        return value if other and kind != "string" else text
    if kind == "number" and "integer" in types and "number" not in types and value.is_integer():
        return int(value)
    return value


_NOTHING = object()


def _json(text: str) -> Any:
    if text in _OF_PYTHON:
        return _OF_PYTHON[text]
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return _NOTHING


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    for kind, name in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
    ):
        if isinstance(value, kind):
            return name
    return "object"


def _resolved(schema: object, root: object) -> object:
    """What a ``$ref`` within the schema leads to."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            return schema
        path = schema["$ref"].removeprefix("#").split("/")
        schema = root
        for step in filter(None, path):
            step = step.replace("~1", "/").replace("~0", "~")
            schema = schema.get(step) if isinstance(schema, Mapping) else None
    return None
