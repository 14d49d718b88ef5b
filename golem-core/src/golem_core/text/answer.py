"""What an answer consists of, and how a family writes it: thoughts, content, calls of tools.

A file's template turns a conversation into text; a `ChatFormat` is the way back. Its *markers* are
what stands between the parts. Where a marker is a token of the vocabulary, only that token is the
marker: the same characters, typed, are text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from golem_core.errors import Unsupported

if TYPE_CHECKING:
    from golem_core.text.grammar import Grammar, JsonPart

Tools = Sequence[Mapping[str, Any]]
"""Tools as a request gives them: ``{"type": "function", "function": {"name": …, …}}``."""


@dataclass(frozen=True)
class Thought:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True)
class Content:
    """A piece of the answer itself."""

    text: str


@dataclass(frozen=True)
class CallBegun:
    """The model begins to call the tool `name`; `index` counts the calls of an answer from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class CallDone:
    """The call `index` is complete; its arguments are what JSON can hold."""

    index: int
    arguments: dict[str, Any]


@dataclass(frozen=True)
class CallBroken:
    """The call `index` was cut off, or is none that can be read; `text` is how it was written.

    `index` is None for a call whose name was not known yet: it had not begun.
    """

    index: int | None
    text: str


Event = Thought | Content | CallBegun | CallDone | CallBroken


@dataclass(frozen=True)
class Call:
    """A finished call of a tool."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class Reply:
    """The parts of an answer, gathered from its events.

    `unfinished` is the text of calls that were cut off or could not be read, mostly empty.
    """

    content: str = ""
    thoughts: str = ""
    calls: list[Call] = field(default_factory=list)
    unfinished: str = ""
    _begun: dict[int, CallBegun] = field(default_factory=dict, repr=False, compare=False)

    def add(self, events: Iterable[Event]) -> Reply:
        """Takes further events in; gives itself."""
        for event in events:
            if isinstance(event, Content):
                self.content += event.text
            elif isinstance(event, Thought):
                self.thoughts += event.text
            elif isinstance(event, CallBegun):
                self._begun[event.index] = event
            elif isinstance(event, CallDone):
                begun = self._begun[event.index]
                self.calls.append(Call(begun.id, begun.name, event.arguments))
            else:
                self.unfinished += event.text
        return self


def turn(content: str, thoughts: str = "", calls: Iterable[Call] = ()) -> dict[str, Any]:
    """An answer as the assistant's turn of a conversation, in the form that templates read."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if thoughts:
        message["reasoning_content"] = thoughts
    made = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]
    if made:
        message["tool_calls"] = made
    return message


class CallText(ABC):
    """What stands between the markers of one call, as it comes. Made anew for each call.

    `name` is the tool's, once it is known. `hopeless` says that the text can be no call, so that
    it is content and need not be waited for.
    """

    name: str | None = None
    hopeless: bool = False

    @abstractmethod
    def push(self, text: str) -> None:
        """Takes further text."""

    def mark(self, marker: str) -> bool:
        """Takes one of `ChatFormat.within`; False where it means nothing and is text."""
        return False

    @abstractmethod
    def quoted(self) -> bool:
        """Whether the text has come to within a value, where a marker is text."""

    @abstractmethod
    def arguments(self, tools: Tools) -> dict[str, Any] | None:
        """The arguments at the end, typed by the tool's schema; None where they cannot be read."""

    @classmethod
    def grammar(cls, grammar: Grammar, name: str, parameters: JsonPart) -> str:
        """What a call of the tool `name` is between the markers, as a name in `grammar`.

        It allows what `arguments` reads back as arguments that obey the schema `parameters`, and
        nothing else. Raises `BadRequest` naming the part of the schema that cannot be written.
        """
        raise Unsupported(f"{cls.__name__} has no grammar, so its calls cannot be forced")


@dataclass(frozen=True)
class ChatFormat:
    """How a family writes the parts of an answer.

    thought  the markers around a thought, or None for a family without thoughts
    head     what stands after the first of them and is no part of the thought (Gemma 4's channel)
    call     the markers around a call, or None
    reads    makes what reads the text between those
    within   further markers that mean something inside a call
    ends     markers that end the answer
    """

    thought: tuple[str, str] | None = None
    head: str = ""
    call: tuple[str, str] | None = None
    reads: type[CallText] | None = None
    within: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """All of the format's markers."""
        return (*(self.thought or ()), *(self.call or ()), *self.within, *self.ends)

    def thinks(self, prompt: Sequence[tuple[str, bool]]) -> bool:
        """Whether a rendered prompt ends within a thought that the template has opened."""
        if self.thought is None or not prompt or not prompt[-1][1]:
            return False
        tail = prompt[-1][0].rstrip()
        opening = (self.thought[0] + self.head).rstrip()
        return tail.endswith((opening, self.thought[0]))
