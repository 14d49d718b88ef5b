"""How Gemma 4 writes thoughts and calls.

    <|channel>thought
    The user wants the weather.
    <channel|>
    <|tool_call>call:weather{city:<|"|>Oslo<|"|>,days:3}<tool_call|><|tool_response>

A thought is a channel of that name. The arguments of a call look like JSON without its quotes:
keys are bare, texts stand between two tokens of their own, and what stands bare is a number, true,
false or null, unless the tool's schema says that it is a text. The model ends its turn by asking
for the response. Gemma 3 writes neither thoughts nor calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from golem_core.text import CallText, ChatFormat, Grammar, JsonPart, Schema, Tools, value_of
from golem_core.text.grammar import kinds, literal

QUOTE = '<|"|>'

_CALL = re.compile(r"\s*call:([^\s{]+)\{")
_BEGUN = re.compile(r"call:[^\s{]*\Z")
_BARE = re.compile(r"[\w$.-]+\Z")
_ANYTHING = {"type": ["string", "number", "boolean", "null", "object", "array"]}
_LONGEST = 1024  # characters of a name; what has more is no call
_DEEPEST = 64


def format_of(template: object) -> ChatFormat | None:
    """The format of a file with this chat template; None where it is not Gemma 4's."""
    if not isinstance(template, str) or "<|channel>" not in template:
        return None
    return ChatFormat(
        thought=("<|channel>", "<channel|>"),
        head="thought\n",
        call=("<|tool_call>", "<tool_call|>"),
        reads=GemmaCall,
        within=(QUOTE,),
        ends=("<|tool_response>",),
    )


class GemmaCall(CallText):
    """``call:name{key:value,…}``."""

    def __init__(self) -> None:
        # Between two quotes each: what stands bare, a text, what stands bare, and so on.
        self._segments: list[list[str]] = [[]]
        self._head: str | None = ""

    def push(self, text: str) -> None:
        """Takes further text."""
        self._segments[-1].append(text)
        if self._head is None:
            return
        self._head += text
        found = _CALL.match(self._head)
        head = self._head.lstrip()
        if found is not None:
            self.name = found[1]
            self._head = None
        elif head:
            begun = "call:".startswith(head) or _BEGUN.match(head)
            self.hopeless = not begun or len(head) > _LONGEST

    def mark(self, marker: str) -> bool:
        """Begins a text, or ends it."""
        self._segments.append([])
        self.hopeless = self.name is None
        return True

    def quoted(self) -> bool:
        """Whether a text is open."""
        return len(self._segments) % 2 == 0

    def arguments(self, tools: Tools) -> dict[str, Any] | None:
        """The object between the braces."""
        if self.name is None or self.quoted():
            return None
        try:
            return _Reader(self._segments).read(Schema.of_tool(tools, self.name))
        except _Unreadable:
            return None

    @classmethod
    def grammar(cls, grammar: Grammar, name: str, parameters: JsonPart) -> str:
        """As the template writes it, the arguments in the order of the schema."""
        part = parameters.resolved()
        return grammar.rule(f"{literal('call:' + name)} {_Writer(grammar).object(part)}")


class _Writer:
    """Rules for values without JSON's quotes."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._quote = grammar.marker(QUOTE)

    def object(self, part: JsonPart) -> str:
        """An object that obeys a schema."""
        part.only("type", "properties", "required", "additionalProperties")
        properties = part.schema.get("properties", {})
        required = part.schema.get("required", [])
        for key in required:
            if key not in properties:
                raise part.refuse(f"{key!r} is required, and no property")
        further = part.schema.get("additionalProperties", not properties)
        first = rest = '""'
        if further is not False:
            anything = JsonPart({} if further is True else further, part.root, part.path)
            key = self._grammar.terminal("/[A-Za-z_][A-Za-z0-9_]{0,63}/")
            pair = self._grammar.rule(f'{key} ":" {self.value(anything)}')
            first, rest = f'({pair} ("," {pair})*)?', f'("," {pair})*'
        # From the last to the first: with a comma before it, and as the first that is there.
        for key in reversed(properties):
            pair = f"{self._key(key)} {literal(':')} {self.value(part.at('properties', key))}"
            after = self._grammar.rule(rest)
            none = "" if key in required else "?"
            former = "" if key in required else f" | {self._grammar.rule(first)}"
            pair = self._grammar.rule(pair)
            first, rest = f"{pair} {after}{former}", f'("," {pair}){none} {after}'
        return self._grammar.rule(f'"{{" {self._grammar.rule(first)} "}}"')

    def value(self, part: JsonPart) -> str:
        """Any value that obeys a schema."""
        part = part.resolved()
        name, new = self._grammar.once(part)
        if new:
            ways = []
            for kind in kinds(part):
                if kind.is_value:
                    ways.append(self._literal(kind.value))
                elif kind.type is None:
                    ways.append(self._anything(kind.part))
                elif kind.type == "string":
                    ways.append(f"{self._quote} {self._grammar.unquoted(kind.part)} {self._quote}")
                elif kind.type == "object":
                    ways.append(self.object(kind.part))
                elif kind.type == "array":
                    ways.append(self._array(kind.part))
                else:
                    ways.append(self._grammar.json(kind.part, kind.type))
            self._grammar.define(name, ways)
        return name

    def _anything(self, part: JsonPart) -> str:
        return self.value(JsonPart(_ANYTHING, part.root, part.path))

    def _array(self, part: JsonPart) -> str:
        part.only("type", "items", "minItems", "maxItems")
        low, high = part.whole("minItems", 0) or 0, part.whole("maxItems", None)
        items = part.at("items") if "items" in part.schema else JsonPart(True, part.root, part.path)
        item = self.value(items)
        if high == 0:
            return '"[" "]"'
        more = "" if high is None else str(high - 1)
        some = f'{item} ("," {item}){{{max(low - 1, 0)},{more}}}'
        return f'"[" {some} "]"' if low else f'"[" ({some})? "]"'

    def _key(self, key: str) -> str:
        return literal(key) if _BARE.match(key) else f"{self._quote} {literal(key)} {self._quote}"

    def _literal(self, value: Any) -> str:
        """One value."""
        if isinstance(value, str):
            return f"{self._quote} {literal(value)} {self._quote}"
        if isinstance(value, list):
            return '"[" ' + ' "," '.join(map(self._literal, value)) + ' "]"'
        if isinstance(value, dict):
            pairs = [f'{self._key(key)} ":" {self._literal(one)}' for key, one in value.items()]
            return '"{" ' + ' "," '.join(pairs) + ' "}"'
        return literal(json.dumps(value))


class _Unreadable(Exception):
    pass


class _Quoted(str):
    """A text that stood between quotes."""


class _Reader:
    """Reads values from bare characters and quoted texts."""

    def __init__(self, segments: list[list[str]]) -> None:
        self._atoms: list[str] = []
        for i, parts in enumerate(segments):
            text = "".join(parts)
            self._atoms += [_Quoted(text)] if i % 2 else list(text)
        self._at = 0

    def read(self, schema: Schema) -> dict[str, Any]:
        """The arguments, once `call:` and the name are passed over; nothing may follow."""
        while self._next() != "{":
            self._at += 1
        arguments = self._object(schema, 0)
        if self._next() is not None:
            raise _Unreadable
        return arguments

    def _next(self) -> str | None:
        """What comes after white space; it stays there."""
        while self._at < len(self._atoms):
            atom = self._atoms[self._at]
            if isinstance(atom, _Quoted) or not atom.isspace():
                return atom
            self._at += 1
        return None

    def _takes(self, bare: str) -> bool:
        atom = self._next()
        if isinstance(atom, _Quoted) or atom != bare:
            return False
        self._at += 1
        return True

    def _value(self, schema: Schema, depth: int) -> Any:
        atom = self._next()
        if atom is None or depth > _DEEPEST:
            raise _Unreadable
        if isinstance(atom, _Quoted):
            self._at += 1
            return str(atom)
        if atom == "{":
            return self._object(schema, depth)
        if atom == "[":
            return self._array(schema, depth)
        return value_of(self._bare(",}]"), schema)

    def _bare(self, ends: str) -> str:
        start = self._at
        while self._at < len(self._atoms):
            atom = self._atoms[self._at]
            if isinstance(atom, _Quoted):
                raise _Unreadable
            if atom in ends:
                break
            self._at += 1
        text = "".join(self._atoms[start : self._at]).strip()
        if not text:
            raise _Unreadable
        return text

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def entry() -> None:
            atom = self._next()
            if isinstance(atom, _Quoted):
                self._at += 1
                key = str(atom)
            else:
                key = self._bare(":")
            if not self._takes(":"):
                raise _Unreadable
            found[key] = self._value(schema.property(key), depth + 1)

        self._listed("{", "}", entry)
        return found

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        found: list[Any] = []
        items = schema.items()
        self._listed("[", "]", lambda: found.append(self._value(items, depth + 1)))
        return found

    def _listed(self, opens: str, closes: str, entry: Callable[[], None]) -> None:
        """Entries with commas between them; one at the end does no harm."""
        if not self._takes(opens):
            raise _Unreadable
        while not self._takes(closes):
            entry()
            if not self._takes(","):
                if not self._takes(closes):
                    raise _Unreadable
                return
