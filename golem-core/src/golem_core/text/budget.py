"""How much a chat template may do: processor time, characters made, the size of what it nests.

A template comes with a file from anywhere. It runs in the caller's thread, where nothing can stop
one long operation of Python, so every operation that can grow is measured before it is done.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from golem_core.errors import BadRequest

# A real template takes a few milliseconds and makes a few times what it is given.
_SECONDS = 1.0
_CHARACTERS = 16 << 20
_CHARACTERS_A_CHARACTER = 256
_CHARACTERS_A_SECOND = 1 << 20
# What one small object costs beside its characters.
_OBJECT = 64

_VIEWS: tuple[type[Any], ...] = (type({}.items()), type({}.keys()), type({}.values()))


class Budget:
    """What one rendering has left. `given` is the number of characters that it works on."""

    def __init__(self, given: int) -> None:
        self._characters = _CHARACTERS + _CHARACTERS_A_CHARACTER * given
        self._largest = self._characters
        self._end = time.thread_time() + _SECONDS + given / _CHARACTERS_A_SECOND
        # Sizes of the containers seen, and the containers, so that no identity is used twice.
        self._sizes: dict[int, tuple[int, object]] = {}

    def step(self) -> None:
        """Counts an operation; raises BadRequest when the time is up."""
        if time.thread_time() > self._end:
            raise BadRequest("the chat template took too long and was stopped", "messages")

    def spend(self, characters: int) -> None:
        """Counts characters about to be made; raises BadRequest when there are too many."""
        self._characters -= characters
        if self._characters < 0:
            raise BadRequest("the chat template made too much text and was stopped", "messages")
        self.step()

    def objects(self, count: int) -> None:
        """Counts small objects about to be made."""
        self.spend(_OBJECT * count)

    def ticked(self, iterable: Iterable[Any]) -> Ticked:
        """The same values, each of them counted."""
        return Ticked(iterable, self)

    def made(self, value: Any) -> Any:
        """Passes a value on, having refused a container that nests too much text to be written.

        A list that holds a list twice, and so on forty times, is small until it is printed.
        """
        children = _children(value)
        if children is not None:
            self.objects(len(children))
            if self._size(value) > self._largest:
                raise BadRequest("the chat template made too much text and was stopped", "messages")
        return value

    def _size(self, value: Any) -> int:
        if isinstance(value, str):
            return len(value)
        known = self._sizes.get(id(value))
        if known is None:
            children = _children(value)
            if children is None:
                return 1
            known = self._sizes[id(value)] = (1 + sum(map(self._size, children)), value)
        return known[0]


def _children(value: Any) -> Collection[Any] | None:
    """What is inside a container that prints its inside; None for any other value."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set)):
        return value
    return list(value) if isinstance(value, _VIEWS) else None


class Ticked:
    """An iterable that counts what is taken from it, and otherwise is as long as it was."""

    def __init__(self, iterable: Iterable[Any], budget: Budget) -> None:
        self._iterable = iterable
        self._budget = budget

    def __iter__(self) -> Iterator[Any]:
        for value in self._iterable:
            self._budget.step()
            yield value

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # a TypeError is what jinja2 expects
