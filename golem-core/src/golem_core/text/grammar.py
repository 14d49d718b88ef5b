"""Grammars in Lark's notation, as llguidance reads it, made rule by rule.

For what JSON has no notation for: texts without quotes, keys without quotes. JSON itself is left to
``%json``, which llguidance compiles from a schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from golem_core.errors import BadRequest

SPACING = r" |\n {0,16}"
"""White space within JSON: a space, or a line break and an indent. More would have no end."""

ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
     "nullable", "$comment", "$id", "$schema", "$defs", "definitions", "$anchor")
)  # fmt: skip
TEXT_KEYS = frozenset(("type", "minLength", "maxLength", "pattern", "format"))
_DEEPEST = 64
_DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](\.[0-9]{{1,9}})?(Z|[+-]{_CLOCK})"
_BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "ipv4": rf"({_BYTE}\.){{3}}{_BYTE}",
    "hostname": rf"{_LABEL}(\.{_LABEL}){{0,8}}",
    "email": rf"[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+){{0,8}}@{_LABEL}(\.{_LABEL}){{1,8}}",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]+",
}
"""The formats of texts that stand without quotes; JSON's own are llguidance's."""


@dataclass(frozen=True)
class JsonPart:
    """A JSON Schema, or a part of one: `path` says which, `root` is the whole."""

    schema: Any
    root: Any
    path: str

    def at(self, *steps: str | int) -> JsonPart:
        """A part of this part."""
        schema = self.schema
        for step in steps:
            schema = schema[step]
        return JsonPart(schema, self.root, "/".join([self.path, *map(str, steps)]))

    def refuse(self, why: str) -> BadRequest:
        """The error that names the part; its field is where the path begins."""
        return BadRequest(f"{self.path}: {why}", re.split(r"[/\[.]", self.path)[0])

    def resolved(self) -> JsonPart:
        """The part, or the one that its ``$ref`` leads to."""
        part = self
        for _ in range(_DEEPEST):
            if part.schema is True:
                return JsonPart({}, part.root, part.path)
            if not isinstance(part.schema, Mapping):
                raise part.refuse(f"{part.schema!r} is no schema that a value could obey")
            reference = part.schema.get("$ref")
            if reference is None:
                return part
            if not isinstance(reference, str) or not reference.startswith("#"):
                raise part.refuse(f"$ref is {reference!r}, expected one within the schema (#/…)")
            if set(part.schema) - ANNOTATIONS - {"$ref"}:
                raise part.refuse("$ref stands beside other keywords, which cannot be joined")
            found = part.root
            for step in filter(None, reference[1:].split("/")):
                step = step.replace("~1", "/").replace("~0", "~")
                if not isinstance(found, Mapping) or step not in found:
                    raise part.refuse(f"$ref is {reference!r}, which leads nowhere")
                found = found[step]
            part = JsonPart(found, part.root, part.path)
        raise self.refuse("$ref leads back to itself")

    def only(self, *known: str) -> None:
        """Raises for a keyword that is neither an annotation nor one of `known`."""
        for key in self.schema:
            if key not in known and key not in ANNOTATIONS:
                raise self.refuse(f"the keyword {key!r} is not supported here")

    def whole(self, name: str, default: int | None) -> int | None:
        """A keyword that counts something."""
        value = self.schema.get(name, default)
        if value is not default and (
            isinstance(value, bool) or not isinstance(value, int) or value < 0
        ):
            raise self.refuse(f"{name} is {value!r}, expected a whole number")
        return None if value is None else int(value)


@dataclass(frozen=True)
class Kind:
    """One of the things that a part allows: the value itself, a type, or anything (both None)."""

    part: JsonPart
    type: str | None = None
    value: Any = None
    is_value: bool = False


def kinds(part: JsonPart, depth: int = 0) -> Iterator[Kind]:
    """What a part of a schema allows, one type at a time. Raises `BadRequest` naming the part."""
    part = part.resolved()
    if depth > _DEEPEST:
        raise part.refuse("the schema is nested too deeply")
    schema = part.schema
    for key in ("const", "enum"):
        if key in schema:
            part.only("type", "const", "enum")
            values = [schema[key]] if key == "const" else schema[key]
            if not isinstance(values, list) or not values:
                raise part.refuse("enum is no list of values")
            for value in values:
                yield Kind(part, value=value, is_value=True)
            return
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            part.only(key, "type")
            if not isinstance(schema[key], list) or not schema[key]:
                raise part.refuse(f"{key} is no list of schemas")
            if key == "allOf" and len(schema[key]) > 1:
                raise part.refuse("allOf of several schemas is not supported here")
            for i in range(len(schema[key])):
                yield from kinds(part.at(key, i), depth + 1)
            return
    named = schema.get("type", _implied(schema))
    listed = named if isinstance(named, list) else [named]
    for one in listed:
        if one is None:
            yield Kind(part)
        elif one in ("string", "number", "integer", "boolean", "null", "object", "array"):
            yield Kind(part, one)
        else:
            raise part.refuse(f"type is {one!r}, which JSON Schema does not have")
    if schema.get("nullable") is True and "null" not in listed:
        yield Kind(part, "null")


def _implied(schema: Mapping[str, Any]) -> str | None:
    """The type that the keywords of a schema without one are about."""
    about = {
        "object": ("properties", "additionalProperties", "required"),
        "array": ("items", "minItems", "maxItems"),
        "string": ("minLength", "maxLength", "pattern", "format"),
        "number": ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"),
    }
    for kind, keys in about.items():
        if any(key in schema for key in keys):
            return kind
    return None


class Grammar:
    """Rules that are added one after the other; `text` is all of them.

    tokens  the markers that are tokens, and their ids
    """

    def __init__(self, tokens: Mapping[str, int] | None = None) -> None:
        self._tokens = tokens or {}
        self._rules: list[str] = []
        self._named: dict[int, tuple[str, object]] = {}

    @property
    def text(self) -> str:
        """The grammar. All of a token's beginning may be drawn, not just a forced whole."""
        return "\n".join(['%llguidance {"no_forcing": true}', *self._rules, ""])

    def marker(self, marker: str) -> str:
        """A marker: its token, or its text where it has none."""
        token = self._tokens.get(marker)
        return literal(marker) if token is None else f"<[{token}]>"

    def rule(self, body: str, name: str | None = None) -> str:
        """Adds a rule and gives its name."""
        name = name or f"r{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def terminal(self, body: str) -> str:
        """Adds a terminal, whose body is regular expressions and literals, and gives its name."""
        name = f"T{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def once(self, part: JsonPart) -> tuple[str, bool]:
        """The name of the rule for a part, and whether it is new: `define` it then."""
        key = id(part.schema)
        if key in self._named:
            return self._named[key][0], False
        name = f"s{len(self._named)}"
        self._named[key] = name, part.schema  # the schema is kept, so that its id stays its own
        return name, True

    def define(self, name: str, bodies: Sequence[str]) -> str:
        """Adds the rule of a name that `once` gave."""
        self._rules.append(f"{name}: {' | '.join(bodies)}")
        return name

    def json(self, part: JsonPart, type: str | None = None) -> str:
        """A rule for JSON that obeys a part of a schema."""
        schema = part.schema
        if isinstance(schema, Mapping):
            schema = {k: v for k, v in schema.items() if k != "nullable"}
            if type is not None:
                schema["type"] = type
            for key in ("$defs", "definitions"):
                if isinstance(part.root, Mapping) and key in part.root:
                    schema[key] = part.root[key]
        return self.rule(json_rule(schema))

    def unquoted(self, part: JsonPart, without: str | None = None, then: str = "") -> str:
        """A terminal for a text that obeys the schema of a string, and has no `without` in it.

        `then` follows the text. It is part of the terminal: terminals are as long as they can be,
        so one of the text alone would take the beginning of what follows.
        """
        part.only(*TEXT_KEYS)
        low, high = part.whole("minLength", 0), part.whole("maxLength", None)
        wanted = [f"/(?s:.){{{low},{'' if high is None else high}}}/"]
        if "pattern" in part.schema:
            wanted.append(f"/{_unanchored(part)}/")
        if "format" in part.schema:
            if part.schema["format"] not in FORMATS:
                raise part.refuse(
                    f"format is {part.schema['format']!r}, expected one of {', '.join(FORMATS)}"
                )
            wanted.append(f"/{slashed(FORMATS[part.schema['format']])}/")
        if without is not None:
            wanted.append(f"~/(?s:.*){slashed(re.escape(without))}(?s:.*)/")
        return self.terminal(f"({' & '.join(wanted)}){f' {literal(then)}' if then else ''}")


def json_rule(schema: Any) -> str:
    """The body of a rule for JSON that obeys a schema."""
    if schema is True:
        schema = {}
    options = {"whitespace_pattern": SPACING}
    return f"%json {json.dumps({**schema, 'x-guidance': options})}"


def literal(text: str) -> str:
    """A text as it stands."""
    return json.dumps(text)


def slashed(pattern: str) -> str:
    """A regular expression between Lark's slashes."""
    return re.sub(r"(\\.)|(/)|(\n)", lambda m: m[1] or ("\\/" if m[2] else "\\n"), pattern)


def _unanchored(part: JsonPart) -> str:
    """A schema's pattern, which may match anywhere, as one that matches the whole."""
    pattern = part.schema["pattern"]
    if not isinstance(pattern, str):
        raise part.refuse(f"pattern is {pattern!r}, expected a text")
    begins, ends = pattern.startswith("^"), re.search(r"(?<!\\)(\\\\)*\$\Z", pattern)
    inner = pattern[1 if begins else 0 : len(pattern) - 1 if ends else None]
    before, after = "" if begins else "(?s:.*)", "" if ends else "(?s:.*)"
    # An alternative beside an anchor is anchored on one side only, which is not what it says here.
    if (begins or ends) and "|" in re.sub(r"\\.|\[[^]]*\]|\([^()]*\)", "", inner):
        raise part.refuse(f"pattern is {pattern!r}: put ( ) around what | separates")
    return f"{before}({slashed(_ascii(inner))}){after}"


def _ascii(pattern: str) -> str:
    """A pattern whose digits and words are ASCII's, as JSON Schema has them."""
    written, within = "", False
    for found in re.finditer(r"\\.|.", pattern, re.DOTALL):
        one = found[0]
        if one in _CLASSES:
            written += _CLASSES[one] if within else f"[{_CLASSES[one]}]"
            continue
        within = one == "[" or (within and one != "]")
        written += one
    return written


_CLASSES = {r"\d": "0-9", r"\w": "0-9A-Za-z_"}
