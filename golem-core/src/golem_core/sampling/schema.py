"""Which part of a JSON Schema it is that cannot be compiled."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from golem_core.sampling.vocabulary import library
from golem_core.text.grammar import json_rule

_EACH = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_MOST = 1000  # parts that are tried
_SECONDS = 2.0


def part_that_fails(schema: Any) -> tuple[str, str] | None:
    """Pointer (``/properties/a``) and reason of the smallest part that does not compile, or None.

    A part that fails only as a part of the whole is named by the whole: the pointer is empty.
    """
    whole = _reason(schema, schema)
    if whole is None:
        return None
    until = time.monotonic() + _SECONDS
    for pointer, part in sorted(_parts(schema), key=lambda found: -found[0].count("/")):
        if time.monotonic() > until:
            break
        reason = _reason(part, schema)
        if reason is not None:
            return pointer if len(pointer) < 200 else f"{pointer[:200]}…", reason
    return "", whole


def _reason(part: Any, root: Any) -> str | None:
    if not isinstance(part, Mapping):
        return None if isinstance(part, bool) else f"{part!r} is no schema"
    defined = {
        key: root[key]
        for key in ("$defs", "definitions")
        if isinstance(root, Mapping) and key in root
    }
    try:
        rule = json_rule({**part, **defined} if part is not root else part)
    except (ValueError, RecursionError, TypeError) as error:
        return str(error)
    failed: bool
    failed, said = library().LLMatcher.validate_grammar_with_warnings(f"start: {rule}")
    return plain(said[0]) if failed else None


def plain(said: str) -> str:
    """What llguidance says, in one line, without the place in the grammar that golem wrote."""
    lines = [line.strip() for line in said.strip().splitlines()]
    text = " ".join(line for line in lines if line.strip("^ ")) if "regex" in said else lines[0]
    text = re.sub(r" 1 \| %llguidance.*", "", text)  # the grammar itself, once more
    text = re.sub(r"^at \d+\(\d+\): ", "", text).removeprefix("failed to compile JSON schema: ")
    return text[:400]


def _parts(schema: Any) -> Iterator[tuple[str, Any]]:
    waiting = [("", schema)]
    found = 0
    while waiting and found < _MOST:
        pointer, part = waiting.pop(0)
        if not isinstance(part, Mapping):
            continue
        further = [(f"{pointer}/{key}", part[key]) for key in _ONE if key in part]
        for key in _EACH:
            if isinstance(part.get(key), Mapping):
                further += [(f"{pointer}/{key}/{name}", one) for name, one in part[key].items()]
        for key in _LISTS:
            if isinstance(part.get(key), list):
                further += [(f"{pointer}/{key}/{i}", one) for i, one in enumerate(part[key])]
        found += len(further)
        yield from further
        waiting += further
