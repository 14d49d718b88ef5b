r"""llama.cpp's notation of grammars (GBNF) as Lark's.

    root  ::= item ("," item)*        # a comment
    item  ::= [a-z]+ | "\"" [^"]* "\""

Rules that lead to no recursion become terminals, so that llguidance reads them as one regular
expression. It reads the others by terminals, the longest first: a grammar in which a shorter one
must be taken for the rest to fit (``[a-z]* "end"`` within a recursive rule) allows less than
llama.cpp would.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from golem_core.errors import BadRequest

_NAME = re.compile(r"[A-Za-z0-9-]+")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_HEX = {"x": 2, "u": 4, "U": 8}
_DEEPEST = 100


@dataclass
class _Item:
    """``text`` (a regular expression), ``rule`` (a name), ``all`` of items or ``any`` of them."""

    kind: str
    value: str = ""
    items: tuple[_Item, ...] = ()
    times: str = ""


def to_lark(source: str, field: str = "grammar") -> str:
    """The grammar in Lark's notation. Raises `BadRequest` naming line and cause."""
    rules = _Reader(source, field).rules()
    if "root" not in rules:
        raise BadRequest(f"{field}: there is no rule root", field)
    for name, rule in rules.items():
        for used in _used(rule):
            if used not in rules:
                raise BadRequest(f"{field}: rule {name} uses {used}, which is no rule", field)
    plain: set[str] = set()  # rules that lead to none but plain ones
    while True:
        more = {name for name, rule in rules.items() if set(_used(rule)) <= plain} - plain
        if not more:
            break
        plain |= more
    names = {name: f"{'T' if name in plain else 'r'}{i}" for i, name in enumerate(rules)}
    lines = [f"start: {names['root']}"]
    lines += [f"{names[name]}: {_written(rule, names)}" for name, rule in rules.items()]
    return "\n".join(lines) + "\n"


def _used(item: _Item) -> list[str]:
    if item.kind == "rule":
        return [item.value]
    return [name for one in item.items for name in _used(one)]


def _written(item: _Item, names: dict[str, str]) -> str:
    if item.kind == "text":
        text = f"/{item.value}/" if item.value else '""'
    elif item.kind == "rule":
        text = names[item.value]
    else:
        parts = [_written(one, names) for one in item.items] or ['""']
        text = (" " if item.kind == "all" else " | ").join(parts)
        text = f"({text})"
    return text + item.times


class _Reader:
    """Reads the notation from left to right."""

    def __init__(self, source: str, field: str) -> None:
        self._source = source
        self._field = field
        self._at = 0

    def rules(self) -> dict[str, _Item]:
        """All rules by their names."""
        found: dict[str, _Item] = {}
        self._space(lines=True)
        while self._at < len(self._source):
            name = self._name()
            self._space(lines=True)
            if not self._takes("::="):
                raise self._error("expected ::=")
            self._space(lines=True)
            if name in found:
                raise self._error(f"rule {name} is there twice")
            found[name] = self._alternatives(0)
            if self._at < len(self._source) and self._source[self._at] not in "\r\n":
                raise self._error("expected the end of the rule")
            self._space(lines=True)
        return found

    def _error(self, what: str) -> BadRequest:
        line = self._source.count("\n", 0, self._at) + 1
        rest = self._source[self._at : self._at + 20]
        return BadRequest(f"{self._field}, line {line}: {what}, found {rest!r}", self._field)

    def _peek(self) -> str:
        return self._source[self._at : self._at + 1]

    def _takes(self, text: str) -> bool:
        if not self._source.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _space(self, lines: bool) -> None:
        while (next := self._peek()) and (
            next in " \t" or next == "#" or (lines and next in "\r\n")
        ):
            if next == "#":
                end = self._source.find("\n", self._at)
                self._at = len(self._source) if end < 0 else end
            else:
                self._at += 1

    def _name(self) -> str:
        found = _NAME.match(self._source, self._at)
        if found is None:
            raise self._error("expected the name of a rule")
        self._at = found.end()
        return found[0]

    def _alternatives(self, depth: int) -> _Item:
        if depth > _DEEPEST:
            raise self._error("brackets are nested too deeply")
        ways = [self._sequence(depth)]
        while self._takes("|"):
            self._space(lines=True)
            ways.append(self._sequence(depth))
        return ways[0] if len(ways) == 1 else _Item("any", items=tuple(ways))

    def _sequence(self, depth: int) -> _Item:
        items: list[_Item] = []
        while (next := self._peek()) and next not in "|)\r\n":
            if next == '"':
                self._at += 1
                items.append(_Item("text", self._literal()))
            elif next == "[":
                self._at += 1
                items.append(_Item("text", self._characters()))
            elif next == ".":
                self._at += 1
                items.append(_Item("text", "(?s:.)"))
            elif next == "(":
                self._at += 1
                self._space(lines=True)
                inner = self._alternatives(depth + 1)
                self._space(lines=True)
                if not self._takes(")"):
                    raise self._error("expected )")
                items.append(_Item("all", items=(inner,)))
            elif next in "<!":
                raise self._error("tokens (<name>, <[id]>) are not supported in this notation")
            else:
                items.append(_Item("rule", self._name()))
            self._space(lines=depth > 0)
            self._repeated(items)
            self._space(lines=depth > 0)
        return _Item("all", items=tuple(items))

    def _repeated(self, items: list[_Item]) -> None:
        found = re.compile(r"[*+?]|\{\s*\d+\s*(?:,\s*\d*\s*)?\}").match(self._source, self._at)
        if found is None:
            if self._peek() == "{":
                raise self._error("expected {m}, {m,} or {m,n}")
            return
        self._at = found.end()
        items[-1] = _Item("all", items=(items[-1],), times=re.sub(r"\s", "", found[0]))

    def _literal(self) -> str:
        text = ""
        while not self._takes('"'):
            text += _code(self._character())
        return text

    def _characters(self) -> str:
        text = "[^" if self._takes("^") else "["
        while not self._takes("]"):
            low = self._character()
            high = low
            if self._peek() == "-" and self._source[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._character()
            if high < low:
                raise self._error(f"{low!r} to {high!r} is no range")
            text += _code(low) + (f"-{_code(high)}" if high != low else "")
        if text in ("[", "[^"):
            raise self._error("a class of no characters")
        return text + "]"

    def _character(self) -> str:
        if self._at >= len(self._source) or self._peek() in "\r\n":
            raise self._error("a text or a class has no end")
        if not self._takes("\\"):
            self._at += 1
            return self._source[self._at - 1]
        kind = self._peek()
        self._at += 1
        if kind in _ESCAPES and kind:
            return _ESCAPES[kind]
        if kind in _HEX and kind:
            digits = self._source[self._at : self._at + _HEX[kind]]
            self._at += _HEX[kind]
            if re.fullmatch(r"[0-9A-Fa-f]+", digits) and len(digits) == _HEX[kind]:
                code = int(digits, 16)
                if code < 0x110000 and not 0xD800 <= code < 0xE000:
                    return chr(code)
        self._at -= 2
        raise self._error("there is no such escape")


def _code(character: str) -> str:
    return f"\\x{{{ord(character):X}}}"
