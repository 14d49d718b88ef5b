"""One answer as an API tells it: pieces as they come, then the whole with its counts.

`take` what the engine gives and pass on what comes of it. A call of a tool is given when it is
complete and can be read; one that cannot, or was cut off, is content as it was written. The
logarithmic probabilities are those of the content's tokens, and a token is given no sooner than its
text: what a stop string takes away has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from golem_core.engine import Result, Token
from golem_core.sampling import Logprobs
from golem_core.text import (
    AnswerReader,
    Call,
    CallBegun,
    CallBroken,
    CallDone,
    Content,
    Detokenizer,
    Event,
    Thought,
    Tokenizer,
)

__all__ = ["Choice", "Drawn", "Piece"]


@dataclass(frozen=True)
class Drawn:
    """A token of the content, its logarithmic probability and the likeliest in its place."""

    id: int
    logprobs: Logprobs


@dataclass(frozen=True)
class Piece:
    """What may be told now: a part of the answer, and the tokens whose text that completes.

    `part` None: nothing but the tokens.
    """

    part: Content | Thought | Call | None
    drawn: tuple[Drawn, ...] = ()


@dataclass
class Choice:
    """The answer `index` of a request, by its `reader`. `result` is None until it has ended."""

    index: int
    tokenizer: Tokenizer
    reader: AnswerReader | None = None
    content: str = ""
    thoughts: str = ""
    calls: list[Call] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)
    reasoning_tokens: int = 0
    result: Result | None = None

    def __post_init__(self) -> None:
        self._begun: dict[int, CallBegun] = {}
        self._unsaid = 0  # tokens since the last event
        self._pending: list[tuple[int, Drawn]] = []  # with the place where its text begins
        self._markers = frozenset(() if self.reader is None else self.reader.markers)
        self._restart()

    @property
    def finish_reason(self) -> str:
        """Why it ended: ``stop``, ``length`` or ``tool_calls``."""
        assert self.result is not None
        reason = self.result.finish_reason
        return "tool_calls" if self.calls and reason == "stop" else reason

    def take(self, event: Token | Result) -> list[Piece]:
        """What a token completes, often nothing; what is left, at the end."""
        if isinstance(event, Result):
            return self._end(event)
        if event.id is not None:
            self._unsaid += 1
            self._note(event.id, event.logprobs)
        events: tuple[Event, ...] = event.events
        if not events and event.text:
            events = (Content(event.text),)
        pieces = [piece for one in events if (piece := self._piece(one)) is not None]
        if events:
            self._unsaid = 0
        if event.id in self._markers:
            self._forget()
        return pieces

    def _piece(self, event: Event) -> Piece | None:
        if isinstance(event, CallBroken):
            self._forget()
            self.content += event.text
            return Piece(Content(event.text))
        if isinstance(event, Content):
            self.content += event.text
            self._said += event.text
            return Piece(event, self._released())
        self._forget()
        if isinstance(event, Thought):
            self.thoughts += event.text
            self.reasoning_tokens += self._unsaid
            self._unsaid = 0
            return Piece(event)
        if isinstance(event, CallBegun):
            self._begun[event.index] = event
            return None
        assert isinstance(event, CallDone)
        begun = self._begun[event.index]
        call = Call(begun.id, begun.name, event.arguments)
        self.calls.append(call)
        return Piece(call)

    def _end(self, result: Result) -> list[Piece]:
        self.result = result
        if result.stop is not None:
            self._forget()
        rest = tuple(drawn for _, drawn in self._pending)
        self._pending.clear()
        self.drawn += rest
        return [Piece(None, rest)] if rest else []

    # Which tokens are told with which text: both are counted from the last thought, call or
    # marker on.

    def _restart(self) -> None:
        self._detokenizer = Detokenizer(self.tokenizer)
        self._written = ""  # what the tokens say
        self._said = ""  # what was given

    def _forget(self) -> None:
        self._pending.clear()
        self._restart()

    def _note(self, token: int, logprobs: Logprobs | None) -> None:
        if logprobs is not None:
            self._pending.append((len(self._written), Drawn(token, logprobs)))
            self._written += self._detokenizer.push(token)

    def _released(self) -> tuple[Drawn, ...]:
        """The tokens whose text begins within what was given."""
        if not self._pending:
            return ()
        # Line breaks before the content are no part of it, but were drawn.
        skipped = 0
        if not self._said.startswith("\n"):
            skipped = len(self._written) - len(self._written.lstrip("\n"))
        end = len(self._said) + skipped
        given = [drawn for at, drawn in self._pending if at < end]
        self._pending = self._pending[len(given) :]
        self.drawn += given
        return tuple(given)
