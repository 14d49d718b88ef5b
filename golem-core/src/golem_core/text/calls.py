"""The two ways of writing a call that several families share: as JSON, and in tags.

{"name": "weather", "arguments": {"city": "Oslo"}}        JsonCall

<function=weather>                                         TaggedCall
<parameter=city>
Oslo
</parameter>
</function>
"""

from __future__ import annotations

import json
import re
from typing import Any

from golem_core.text.answer import CallText, Tools
from golem_core.text.grammar import Grammar, JsonPart, kinds, literal
from golem_core.text.schema import Schema, value_of

_LONGEST = 1024  # characters before and in a name; what has more is no call
_NAME = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")', re.DOTALL)


class JsonCall(CallText):
    """One JSON object with `name` and `arguments`, which may be an object or that as a text."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._head: str | None = ""  # the text so far, while the name may still come first
        self._open = False  # within a string
        self._escaped = False

    def push(self, text: str) -> None:
        """Takes further text; the name is known early where it stands first."""
        self._parts.append(text)
        for character in text:
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = self._open
            elif character == '"':
                self._open = not self._open
        if self._head is None:
            return
        self._head += text
        found = _NAME.match(self._head)
        head = self._head.lstrip()
        if found is not None:
            self.name = _text(found[1])
            self.hopeless = self.name is None
            self._head = None
        elif head:
            self.hopeless = head[0] != "{" or len(self._head) > _LONGEST
            key = head[1:].lstrip()
            if self.hopeless or not (key.startswith('"name"') or '"name"'.startswith(key)):
                self._head = None

    def quoted(self) -> bool:
        """Whether a string of the JSON is open."""
        return self._open

    def arguments(self, tools: Tools) -> dict[str, Any] | None:
        """As they are written; JSON has types of its own."""
        try:
            call = json.loads("".join(self._parts), parse_constant=_refused)
        except (ValueError, RecursionError):
            return None
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return None
        self.name = call["name"]
        arguments = call.get("arguments", call.get("parameters", {}))
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments, parse_constant=_refused)
            except (ValueError, RecursionError):
                return None
        return arguments if isinstance(arguments, dict) else None

    @classmethod
    def grammar(cls, grammar: Grammar, name: str, parameters: JsonPart) -> str:
        """As the templates write it: a line with the name first."""
        head = literal(f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": ')
        return grammar.rule(rf'/\n?/ {head} {grammar.json(parameters, "object")} "}}" /\n?/')


_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>")
_WHOLE = re.compile(r"\s*<function=[^>\n]+>(.*)</function>\s*\Z", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>")
_NEXT = re.compile(r"</parameter>(?=\s*(?:<parameter=[^>\n]+>|\Z))")
_END = "</function>"


class TaggedCall(CallText):
    """A tag for the function and one for each parameter, whose text stands on lines of its own."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._head: str | None = ""
        self._tail = ""

    def push(self, text: str) -> None:
        """Takes further text; the name stands first."""
        self._parts.append(text)
        self._tail += text
        self._tail = self._tail[max(0, len(self._tail.rstrip()) - len(_END)) :]
        if self._head is None:
            return
        self._head += text
        head = self._head.lstrip()
        found = _FUNCTION.match(self._head)
        if found is not None:
            self.name = found[1].strip()
            self._head = None
        elif head:
            tag = "<function="
            begun = tag.startswith(head) or (head.startswith(tag) and "\n" not in head)
            self.hopeless = not begun or len(head) > _LONGEST

    def quoted(self) -> bool:
        """Whether the function's end has not come: a parameter may be any text."""
        return self._head is None and self._tail.rstrip() != _END

    def arguments(self, tools: Tools) -> dict[str, Any] | None:
        """The parameters, typed by the tool's schema."""
        whole = _WHOLE.match("".join(self._parts))
        if whole is None or self.name is None:
            return None
        schema = Schema.of_tool(tools, self.name)
        body = whole[1]
        found: dict[str, Any] = {}
        at = 0
        while body[at:].strip():
            key = _PARAMETER.match(body, at)
            end = _NEXT.search(body, key.end()) if key is not None else None
            if key is None or end is None:
                return None
            value = body[key.end() : end.start()].removeprefix("\n").removesuffix("\n")
            name = key[1].strip()
            found[name] = value_of(value, schema.property(name))
            at = end.end()
        return found

    @classmethod
    def grammar(cls, grammar: Grammar, name: str, parameters: JsonPart) -> str:
        """As the templates write it, the parameters in the order of the schema."""
        part = parameters.resolved()
        part.only("type", "properties", "required", "additionalProperties")
        properties = part.schema.get("properties", {})
        required = part.schema.get("required", [])
        tags = [
            _tag(grammar, key, part.at("properties", key)) + ("" if key in required else "?")
            for key in properties
        ]
        for key in required:
            if key not in properties:
                raise part.refuse(f"{key!r} is required, and no property")
        further = part.schema.get("additionalProperties", not properties)
        if further is not False:
            anything = JsonPart({} if further is True else further, part.root, part.path)
            tags.append(_tag(grammar, None, anything) + "*")
        begin, end = literal(f"<function={name}>\n"), literal("</function>")
        return grammar.rule(rf"/\n?/ {begin} {' '.join(tags)} {end} /\n?/")


def _tag(grammar: Grammar, name: str | None, part: JsonPart) -> str:
    """One parameter; `name` None is any."""
    ways = []
    for kind in kinds(part):
        if kind.is_value:
            value = kind.value
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if _CLOSES in written or value_of(written, Schema(part.schema, part.root)) != value:
                raise part.refuse(f"{value!r} cannot be told from another when it has no quotes")
            ways.append(literal(written + _END_LINE))
        elif kind.type in ("string", None):
            text = kind.part if kind.type else JsonPart({}, part.root, part.path)
            ways.append(grammar.unquoted(text, _CLOSES, _END_LINE))
        else:
            ways.append(f"{grammar.json(kind.part, kind.type)} {literal(_END_LINE)}")
    tag = literal(f"<parameter={name}>\n")
    if name is None:
        tag = f'"<parameter=" {grammar.terminal("/[A-Za-z_][A-Za-z0-9_.-]{0,63}/")} ">\\n"'
    return grammar.rule(f"{tag} ({' | '.join(ways)})")


_CLOSES = "</parameter>"
_END_LINE = f"\n{_CLOSES}\n"


def _text(literal: str) -> str | None:
    try:
        text = json.loads(literal)
    except ValueError:
        return None
    return str(text)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
