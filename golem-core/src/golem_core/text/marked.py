"""A string that remembers which of its characters a chat template wrote.

A template's own text is trusted: control tokens in it are meant. Everything else, what people and
tools said, is not. `Marked` is a `str` in every comparison, search and lookup; what its methods and
operators make of it carries the marks along. A plain `str` is untrusted, and so is the result of
anything that is not written here: marks can get lost on the way, but they cannot be won.
"""

# ruff: noqa: D102 - the methods are those of str
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

# The mask is one byte a character: 1 where the template wrote it.
_OWN, _FOREIGN = b"\1", b"\0"


class Marked(str):
    """A string with `mask`, bytes of its length: 1 for a trusted character, 0 for another."""

    __slots__ = ("mask",)
    mask: bytes

    def __new__(cls, text: str = "", mask: bytes | None = None) -> Marked:
        """A string with its mask; without one it is untrusted."""
        marked = super().__new__(cls, text)
        if mask is None:
            mask = _FOREIGN * len(marked)
        if len(mask) != len(marked):
            raise ValueError(f"a mask of {len(mask)} for {len(marked)} characters")
        marked.mask = mask
        return marked

    @classmethod
    def trusted(cls, text: str) -> Marked:
        """A string that is trusted throughout."""
        return cls(text, _OWN * len(text))

    def runs(self) -> Iterator[tuple[str, bool]]:
        """The string as (text, trusted) pieces, neighbours differing."""
        at = 0
        while at < len(self):
            own = self.mask[at] == 1
            end = self.mask.find(_FOREIGN if own else _OWN, at)
            end = len(self) if end < 0 else end
            yield str.__getitem__(self, slice(at, end)), own
            at = end

    def _cut(self, start: int, end: int) -> Marked:
        return Marked(str.__getitem__(self, slice(start, end)), self.mask[start:end])

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> Marked:
        text = str.__getitem__(self, key)
        mask = self.mask[key] if isinstance(key, slice) else bytes((self.mask[key],))
        return Marked(text, mask)

    def __iter__(self) -> Iterator[str]:
        return (self._cut(i, i + 1) for i in range(len(self)))

    def __add__(self, other: object) -> Any:
        # Markup escapes what it is added to, and numbers are refused, as for any string.
        if not isinstance(other, str) or hasattr(other, "__html__"):
            return NotImplemented
        return Marked(str.__add__(self, other), self.mask + mask_of(other))

    def __radd__(self, other: object) -> Any:
        if not isinstance(other, str):
            return NotImplemented
        return Marked(str.__add__(other, str_of(self)), mask_of(other) + self.mask)

    def __mul__(self, times: SupportsIndex) -> Marked:
        return Marked(str.__mul__(self, times), self.mask * int(times))

    __rmul__ = __mul__

    def join(self, parts: Iterable[str]) -> Marked:
        return joined(parts, self)

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> Marked:
        count = int(count)
        new = mark(new)
        if not old:
            places = list(range(len(self) + 1))
        else:
            places = []
            at = self.find(old)
            while at >= 0:
                places.append(at)
                at = self.find(old, at + len(old))
        if count >= 0:
            places = places[:count]
        texts: list[str] = []
        at = 0
        for place in places:
            texts += [self._cut(at, place), new]
            at = place + len(old)
        return joined([*texts, self._cut(at, len(self))])

    def strip(self, chars: str | None = None) -> Marked:
        end = len(str.rstrip(self, chars))
        return self._cut(min(len(self) - len(str.lstrip(self, chars)), end), end)

    def lstrip(self, chars: str | None = None) -> Marked:
        return self._cut(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None) -> Marked:
        return self._cut(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> Marked:
        return self._cut(len(prefix) if self.startswith(prefix) else 0, len(self))

    def removesuffix(self, suffix: str, /) -> Marked:
        ends = bool(suffix) and self.endswith(suffix)
        return self._cut(0, len(self) - len(suffix) if ends else len(self))

    # Parts stand in the string in their order, so each is found where the search has come to.
    def _found(self, parts: Iterable[str]) -> list[Any]:
        found = []
        at = 0
        for part in parts:
            at = self.index(part, at)
            found.append(self._cut(at, at + len(part)))
            at += len(part)
        return found

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        return self._split(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        return self._split(str.rsplit(self, sep, maxsplit), sep)

    def _split(self, parts: list[str], sep: str | None) -> list[Any]:
        if sep is None:
            return self._found(parts)
        found = []
        at = 0
        for part in parts:
            found.append(self._cut(at, at + len(part)))
            at += len(part) + len(sep)
        return found

    def splitlines(self, keepends: bool = False) -> list[Any]:
        found = []
        at = 0
        for line, whole in zip(str.splitlines(self), str.splitlines(self, True), strict=True):
            found.append(self._cut(at, at + len(whole if keepends else line)))
            at += len(whole)
        return found

    def partition(self, sep: str, /) -> tuple[Any, Any, Any]:
        head, found, tail = self._found(str.partition(self, sep))
        return head, found, tail

    def rpartition(self, sep: str, /) -> tuple[Any, Any, Any]:
        head, found, _ = str.rpartition(self, sep)
        at = len(head)
        return (
            self._cut(0, at),
            self._cut(at, at + len(found)),
            self._cut(at + len(found), len(self)),
        )

    def _same_places(self, text: str) -> Marked:
        """For what changes characters one by one; else only uniform marks survive."""
        if len(text) == len(self):
            return Marked(text, self.mask)
        own = _FOREIGN not in self.mask
        return Marked(text, (_OWN if own else _FOREIGN) * len(text))

    def lower(self) -> Marked:
        return self._same_places(str.lower(self))

    def upper(self) -> Marked:
        return self._same_places(str.upper(self))

    def capitalize(self) -> Marked:
        return self._same_places(str.capitalize(self))

    def title(self) -> Marked:
        return self._same_places(str.title(self))

    def swapcase(self) -> Marked:
        return self._same_places(str.swapcase(self))

    def casefold(self) -> Marked:
        return self._same_places(str.casefold(self))

    def _padded(self, text: str, at: int, fill: str = " ") -> Marked:
        before = max(at, 0)
        after = len(text) - before - len(self)
        fill_mask = mask_of(fill)
        return Marked(text, fill_mask * before + self.mask + fill_mask * after)

    def ljust(self, width: SupportsIndex, fill: str = " ") -> Marked:
        return self._padded(str.ljust(self, width, fill), 0, fill)

    def rjust(self, width: SupportsIndex, fill: str = " ") -> Marked:
        text = str.rjust(self, width, fill)
        return self._padded(text, len(text) - len(self), fill)


def str_of(text: str) -> str:
    """The plain string of a marked one."""
    return "".join([str.__getitem__(text, slice(None))]) if isinstance(text, Marked) else text


def mask_of(text: str) -> bytes:
    """The mask of any string; a plain one is untrusted throughout."""
    return text.mask if isinstance(text, Marked) else _FOREIGN * len(text)


def mark(text: str) -> Marked:
    """Any string as a marked one."""
    return text if isinstance(text, Marked) else Marked(text)


def joined(parts: Iterable[str], separator: str = "") -> Marked:
    """`separator.join(parts)` with the marks of all."""
    parts = list(parts)
    text = str.join(separator, parts)
    return Marked(text, mask_of(separator).join(map(mask_of, parts)))
