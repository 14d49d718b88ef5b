"""The tokens of an answer as its parts: a detokenizer, a parser, and stop strings on the content.

The tokens that are a format's markers are seen here, whether or not they are shown as text; other
control tokens are left out. What a marker cuts off in the middle of a character ends there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from golem_core.text.answer import ChatFormat, Content, Event, Reply, Thought, Tools
from golem_core.text.detokenize import Detokenizer, StopStrings
from golem_core.text.parse import Parser
from golem_core.text.tokenizer import Tokenizer


class AnswerReader:
    """Reads one answer; a `Request` takes it in place of its own detokenizer.

    tokenizer  of the model
    form       how the family writes
    tools      what may be called
    prompt     the rendered conversation, which may end within a thought
    stop       stop strings. They end the answer where its *content* has them; thoughts and calls
               may say anything. One does not reach over a thought or a call.

    `ended` is True once a stop string is complete or the format's own end was read.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        form: ChatFormat,
        *,
        tools: Tools = (),
        prompt: Sequence[tuple[str, bool]] = (),
        stop: Sequence[str] | str | None = None,
    ) -> None:
        self._markers = {
            token: marker
            for marker in form.markers
            if (token := tokenizer.special_id(marker)) is not None
        }
        self._detokenizer = Detokenizer(tokenizer)
        self._parser = Parser(
            form, tools=tools, tokens=self._markers.values(), thinks=form.thinks(prompt)
        )
        self._strings = stop
        self._stops = StopStrings(stop)
        self._stopped = False
        self.reply = Reply()

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer; None where none did."""
        return self._stops.found

    @property
    def markers(self) -> Collection[int]:
        """The tokens that stand between the parts of the answer and are no part of it."""
        return self._markers.keys()

    @property
    def ended(self) -> bool:
        """Whether nothing that follows belongs to the answer."""
        return self._stopped or self._parser.ended

    def push(self, token: int) -> list[Event]:
        """What this token completes, often nothing."""
        marker = self._markers.get(token)
        if marker is None:
            return self._given(self._parser.push(self._detokenizer.push(token)))
        cut_off = self._parser.push(self._detokenizer.flush())
        events = self._given([*cut_off, *self._parser.mark(marker)])
        return [*events, *self.flush()] if self._parser.ended and not self._stopped else events

    def flush(self) -> list[Event]:
        """What is left when the answer is over; to be called once."""
        rest = self._parser.push(self._detokenizer.flush())
        events = self._given([*rest, *self._parser.flush()])
        return [*events, *self._held()]

    def _given(self, events: list[Event]) -> list[Event]:
        """The events before a stop string in the content, without what may become one."""
        given: list[Event] = []
        for event in events:
            if self._stopped:
                break
            if isinstance(event, Content):
                text, self._stopped = self._stops.push(event.text)
                self._add(given, Content(text))
            else:
                given += self._held()
                self._add(given, event)
        return given

    def _held(self) -> list[Event]:
        """Content that waited for the rest of a stop string which does not come."""
        held: list[Event] = []
        if not self._stopped:
            self._add(held, Content(self._stops.flush()))
            self._stops = StopStrings(self._strings)
        return held

    def _add(self, events: list[Event], event: Event) -> None:
        if not (isinstance(event, (Content, Thought)) and not event.text):
            events.append(event)
            self.reply.add([event])


def said(events: Sequence[Event]) -> str:
    """The content in events."""
    return "".join(event.text for event in events if isinstance(event, Content))
