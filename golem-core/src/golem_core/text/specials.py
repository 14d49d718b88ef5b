"""Finds the tokens that are matched as whole texts, before a tokenizer sees what is between them.

llama.cpp's rule: the longest token first, wherever it stands, then the next longest in what is
left. Here it takes one look at every position instead of one sweep of the text for every token, so
that a vocabulary of 6,000 such tokens costs what a vocabulary of 10 does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# What the C library calls space, which is what `strips` removes.
_SPACE = " \t\n\v\f\r"


class Special(NamedTuple):
    """A token matched as a whole text; `guarded` ones are matched in trusted text only."""

    text: str
    id: int
    guarded: bool


class Specials:
    """The special tokens of a vocabulary, ready to be looked for.

    `strips` are ids that swallow the white space after them.
    """

    def __init__(self, tokens: Iterable[Special], strips: frozenset[int] = frozenset()) -> None:
        self._strips = strips
        tokens = [token for token in tokens if token.text]
        self._all = _Table(tokens)
        self._open = _Table([token for token in tokens if not token.guarded])

    def split(self, text: str, trusted: Sequence[tuple[int, int]]) -> list[str | int]:
        """The text as a list of token ids and of the texts between them, none empty.

        `trusted` are ranges [start, end) in ascending order, apart from each other; a guarded
        token is found only if it lies wholly inside one.
        """
        if not text:
            return []
        table = self._all if trusted else self._open
        taken: list[tuple[int, int, int]] = table.find(text, _mask(len(text), trusted))
        parts: list[str | int] = []
        at = 0
        for start, end, token in sorted(taken):
            if at < start:
                parts.append(text[at:start])
            parts.append(token)
            at = end
            if token in self._strips:
                at += len(text[at:]) - len(text[at:].lstrip(_SPACE))
        if at < len(text):
            parts.append(text[at:])
        return parts


def _mask(size: int, trusted: Sequence[tuple[int, int]]) -> bytearray:
    mask = bytearray(size)
    for start, end in trusted:
        mask[start:end] = b"\1" * (end - start)
    return mask


class _Table:
    """Special tokens by their first one and two characters, and then by length."""

    def __init__(self, tokens: Sequence[Special]) -> None:
        self._tokens = {token.text: token for token in tokens}
        lengths: dict[str, set[int]] = {}
        for text in self._tokens:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths: dict[str, list[int]] = {
            key: sorted(sizes | ({1} & lengths.get(key[0], set())), reverse=True)
            for key, sizes in lengths.items()
        }
        firsts = sorted({text[0] for text in self._tokens})
        self._firsts = re.compile(f"[{''.join(map(re.escape, firsts))}]") if firsts else None

    def find(self, text: str, mask: bytearray) -> list[tuple[int, int, int]]:
        """(start, end, id) of every token taken, in no order."""
        if self._firsts is None:
            return []
        waiting: dict[int, list[tuple[int, Special]]] = {}
        for match in self._firsts.finditer(text):
            self._wait(waiting, text, match.start(), mask, len(text))
        found = []
        taken = bytearray(len(text))
        while waiting:
            size = max(waiting)
            for at, token in sorted(waiting.pop(size)):
                if taken[at]:
                    continue
                end = at + len(token.text)
                clash = taken.find(1, at, end)
                if clash < 0:
                    taken[at:end] = b"\1" * (end - at)
                    found.append((at, end, token.id))
                else:
                    self._wait(waiting, text, at, mask, clash - at)
        return found

    def _wait(
        self,
        waiting: dict[int, list[tuple[int, Special]]],
        text: str,
        at: int,
        mask: bytearray,
        limit: int,
    ) -> None:
        """Files the longest token that begins at `at`, of `limit` characters at most."""
        lengths = self._lengths.get(text[at : at + 2]) or self._lengths.get(text[at]) or []
        for length in lengths:
            if length > limit:
                continue
            token = self._tokens.get(text[at : at + length])
            if token is None or (token.guarded and mask.find(0, at, at + length) >= 0):
                continue
            size = length if token.text.isascii() else len(token.text.encode())
            waiting.setdefault(size, []).append((at, token))
            return
