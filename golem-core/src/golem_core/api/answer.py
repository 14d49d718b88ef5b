"""What a language model answers: an `Answer` as it is drawn, a `Completion` once it is finished."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from golem_core.engine import Stream, Timings
    from golem_core.text import AnswerReader, Call, Event


@dataclass(frozen=True)
class Completion:
    """A finished answer.

    `finish_reason` is ``stop`` (the model ended it, or a stop string did), ``length`` (the most
    tokens, or the end of the context) or ``cancelled``. `ids` are those of the answer, without
    the token that ended it. With `seed` and the same request the answer can be had again.

    Where the model has a format for it, `thoughts` is what it thought before it answered, `calls`
    are the tools that it calls, and `text` has neither; `unfinished` is the text of a call that was
    cut off or cannot be read.
    """

    text: str
    ids: list[int]
    prompt_ids: list[int]
    finish_reason: str
    timings: Timings
    seed: int
    thoughts: str = ""
    calls: tuple[Call, ...] = ()
    unfinished: str = ""

    @property
    def message(self) -> dict[str, Any]:
        """The answer as the assistant's turn, to go on with: text, thoughts and calls."""
        from golem_core.text import turn

        return turn(self.text, self.thoughts, self.calls)


class Answer(Iterator[str]):
    """Text as it is drawn, a piece at a time; never half a character.

    Iterate it, or `events` for its thoughts and calls as well, or call `complete` for the whole;
    what was taken by one is not given by another, and `complete` has all of it. Whoever stops
    listening calls `cancel`, or uses the answer as a context manager, which does; otherwise the
    engine draws it to its end.
    Raises `PassFailed` where the model computes what no token can be drawn from.
    """

    def __init__(
        self, stream: Stream, prompt_ids: list[int], reader: AnswerReader | None = None
    ) -> None:
        self._stream = stream
        self._reader = reader
        self.prompt_ids = prompt_ids

    def __iter__(self) -> Answer:
        return self

    def __next__(self) -> str:
        while True:
            token = next(self._stream)
            if token.text:
                return token.text

    def events(self) -> Iterator[Event]:
        """The parts of the answer as they come.

        `Thought` and `Content` with their text; `CallBegun` with index, id and name of a call, then
        `CallDone` with its arguments, or `CallBroken`. All are in `golem_core`.
        """
        from golem_core.text import Content

        for token in self._stream:
            if self._reader is not None:
                yield from token.events
            elif token.text:
                yield Content(token.text)

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Stops the answer; `complete` has what was drawn until then.

        A pass that it shares with others is finished first; one of its own is given up.
        """
        self._stream.cancel()

    def complete(self) -> Completion:
        """Waits for the end and gives the whole answer, with what was iterated before."""
        from golem_core.text import Reply

        result = self._stream.result()
        reply = Reply() if self._reader is None else self._reader.reply
        return Completion(
            text=result.text,
            ids=list(result.ids),
            prompt_ids=self.prompt_ids,
            finish_reason=result.finish_reason,
            timings=result.timings,
            seed=result.seed,
            thoughts=reply.thoughts,
            calls=tuple(reply.calls),
            unfinished=reply.unfinished,
        )
