"""Reads JSON bodies: each field by its name, its kind and its range, or a 400 that names it.

A field that is absent and one that is null are the same, as the clients send both. Whatever else a
body has is left alone: APIs grow, and clients send fields before servers know them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

from aiohttp import web

from golem_server.errors import ApiError

__all__ = ["Body", "field", "invalid", "object_of", "read_json", "required"]

Body = Mapping[str, Any]
T = TypeVar("T", bool, int, float, str, list[Any], dict[str, Any])

_NAMES: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def invalid(message: str, param: str | None, code: str = "invalid_value") -> ApiError:
    """The 400 for a request that `param` makes impossible."""
    return ApiError(400, message, param=param, code=code)


async def read_json(request: web.Request) -> dict[str, Any]:
    """The body of a request. Raises a 400 for what is no JSON object."""
    return object_of(await request.read())


def object_of(data: bytes | str) -> dict[str, Any]:
    """The JSON object in `data`; NaN and Infinity are no JSON."""
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        body = json.loads(text, parse_constant=_refused)
    except UnicodeDecodeError as error:
        raise invalid(f"the body is no UTF-8: {error.reason} at byte {error.start}", None) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise invalid(f"the body is no JSON: {error.msg} ({where})", None) from None
    except ValueError as error:  # also an integer of thousands of digits
        raise invalid(f"the body is no JSON: {error}", None) from None
    except RecursionError:
        raise invalid("the body is nested too deep", None) from None
    if not isinstance(body, dict):
        raise invalid(f"the body is {_found(body)}; expected a JSON object", None)
    return body


@overload
def field(body: Body, name: str, kind: type[bool], *, within: str = "") -> bool | None: ...
@overload
def field(
    body: Body,
    name: str,
    kind: type[int],
    *,
    low: int | None = None,
    high: int | None = None,
    within: str = "",
) -> int | None: ...
@overload
def field(
    body: Body,
    name: str,
    kind: type[float],
    *,
    low: float | None = None,
    high: float | None = None,
    within: str = "",
) -> float | None: ...
@overload
def field(
    body: Body,
    name: str,
    kind: type[str],
    *,
    choices: Sequence[str] | None = None,
    within: str = "",
) -> str | None: ...
@overload
def field(body: Body, name: str, kind: type[T], *, within: str = "") -> T | None: ...
def field(
    body: Body,
    name: str,
    kind: type,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] | None = None,
    within: str = "",
) -> Any:
    """The field `name` of `body` as a `kind`, or None where it is absent or null.

    low, high  the range of a number, both included
    choices    what a string may be
    within     where `body` stands in the request, for messages: ``tools[0].function``

    A float takes integers, an int takes 5.0, and neither takes true. Raises a 400 that names the
    field, what was found and what was expected.
    """
    value = body.get(name)
    if value is None:
        return None
    place = f"{within}.{name}" if within else name
    expected = _expected(kind, low, high, choices)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = _real(value)
    elif kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if right and kind in (int, float):
        right = math.isfinite(value) and not (
            (low is not None and value < low) or (high is not None and value > high)
        )
    if right and choices is not None:
        right = value in choices
    if not right:
        raise invalid(f"{place} is {_found(value)}, expected {expected}", place)
    return value


def required(body: Body, name: str, kind: type[T], *, within: str = "") -> T:
    """As `field`, for one that must be there."""
    value = field(body, name, kind, within=within)
    if value is None:
        place = f"{within}.{name}" if within else name
        raise invalid(
            f"{place} is missing, expected {_NAMES[kind]}", place, "missing_required_parameter"
        )
    return value


def _expected(
    kind: type, low: float | None, high: float | None, choices: Sequence[str] | None
) -> str:
    if choices is not None:
        return "one of " + ", ".join(choices)
    name = _NAMES[kind]
    if low is not None and high is not None:
        return f"{name} from {low:g} to {high:g}"
    if low is not None:
        return f"{name} of at least {low:g}"
    return name if high is None else f"{name} of at most {high:g}"


def _real(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _found(value: object) -> str:
    """A value as a message shows it: short, and a container by its kind."""
    if value is None:
        return "null"
    if isinstance(value, (list, dict)):
        return _NAMES[type(value)]
    if isinstance(value, bool):
        return str(value).lower()
    try:
        shown = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a huge integer"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
