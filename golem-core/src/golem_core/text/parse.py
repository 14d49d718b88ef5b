"""Reads an answer while it is written: text and markers in, thoughts, content and calls out.

    text ─ markers found in it ─┐
                                ├─ content ⇄ thought, either ─ call ─ events
    markers that are tokens ────┘

What comes out does not depend on how the text is cut into pieces. Line breaks that templates put
between the parts belong to none of them: those around a thought, and those before and after a call.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable

from golem_core.text.answer import (
    CallBegun,
    CallBroken,
    CallDone,
    CallText,
    ChatFormat,
    Content,
    Event,
    Reply,
    Thought,
    Tools,
)


def new_id() -> str:
    """An id for a call, unlike any other."""
    return f"call_{uuid.uuid4().hex[:24]}"


class Parser:
    """One answer in `form`; `push` and `mark` give the events that each piece completes.

    form    how the family writes
    tools   what may be called: their schemas type the arguments that are written without types
    tokens  the markers that are tokens and come through `mark`; the others are found in the text
    thinks  whether the prompt has opened a thought already
    ids     makes the ids of calls

    `ended` turns True at a marker that ends the answer; nothing that follows counts.
    """

    def __init__(
        self,
        form: ChatFormat,
        *,
        tools: Tools = (),
        tokens: Iterable[str] = (),
        thinks: bool = False,
        ids: Callable[[], str] = new_id,
    ) -> None:
        self.ended = False
        self._form = form
        self._tools = tools
        self._ids = ids
        known = frozenset(tokens)
        self._typed = _Markers([m for m in dict.fromkeys(form.markers) if m not in known])
        self._events: list[Event] = []
        self._content = _Content(self._events)
        self._thought = _Thoughts(self._events, form.head)
        self._call: _OpenCall | None = None
        self._calls = 0
        self._thinking = thinks
        if thinks:
            self._thought.begin()

    def push(self, text: str) -> list[Event]:
        """Takes a piece of text."""
        for piece, marker in self._typed.push(text):
            self._take(piece, marker, token=False)
        return self._given()

    def mark(self, marker: str) -> list[Event]:
        """Takes a marker that was a token."""
        self._rest()
        self._take(marker, True, token=True)
        return self._given()

    def flush(self) -> list[Event]:
        """The answer is over: what is still open ends here. To be called once."""
        self._rest()
        if self._call is not None:
            self._close_call()
        if self._thinking:
            self._thought.end()
        self._content.end()
        return self._given()

    def _rest(self) -> None:
        rest = self._typed.flush()
        if rest:
            self._take(rest, False, token=False)

    def _given(self) -> list[Event]:
        events = _merged(self._events)
        self._events.clear()
        return events

    def _take(self, piece: str, marker: bool, *, token: bool) -> None:
        if self.ended:
            return
        if self._call is not None:
            self._in_call(self._call, piece, marker, token)
        elif marker:
            self._marker(piece, token)
        else:
            self._say(piece)

    def _say(self, text: str) -> None:
        if self._thinking:
            self._thought.push(text)
        else:
            self._content.push(text)

    def _marker(self, marker: str, token: bool) -> None:
        opens, closes = self._form.thought or ("", "")
        if marker in self._form.ends:
            self.ended = True
        elif self._form.call is not None and marker == self._form.call[0]:
            assert self._form.reads is not None
            self._call = _OpenCall(marker, token, self._form.reads())
        elif marker == closes and self._thinking:
            self._thinking = False
            self._thought.end()
            self._content.after_thought()
        elif marker == opens and not self._thinking and (token or not self._content.said):
            self._thinking = True
            self._content.before_thought()
            self._thought.begin()
        elif token or (marker == opens and self._thinking and not self._thought.said):
            return  # it says nothing here, and no person should see it
        else:
            self._say(marker)

    def _in_call(self, call: _OpenCall, piece: str, marker: bool, token: bool) -> None:
        form = self._form
        assert form.call is not None
        if marker and not call.text.quoted() and piece in (*form.call, *form.ends):
            closing = piece == form.call[1]
            if closing:
                call.add(piece, token)
            self._close_call()
            if not closing:
                self._marker(piece, token)
            return
        call.add(piece, token)
        if not (marker and piece in form.within and call.text.mark(piece)):
            call.text.push(piece)
        if call.index is None and call.text.name is not None:
            self._begin(call, call.text.name)
        elif call.text.hopeless:
            self._call = None
            self._say(call.shown)

    def _begin(self, call: _OpenCall, name: str) -> None:
        call.index = self._calls
        self._calls += 1
        if self._thinking:  # a thought that nothing closed
            self._thinking = False
            self._thought.end()
        self._content.before_call()
        self._events.append(CallBegun(call.index, self._ids(), name))

    def _close_call(self) -> None:
        call, self._call = self._call, None
        assert call is not None
        arguments = call.text.arguments(self._tools)
        if arguments is not None and call.index is None and call.text.name is not None:
            self._begin(call, call.text.name)
        if call.index is not None and arguments is not None:
            self._events.append(CallDone(call.index, arguments))
        elif call.index is not None or call.token:
            self._events.append(CallBroken(call.index, call.raw))
        else:
            self._say(call.raw)


def parse(form: ChatFormat, text: str, *, tools: Tools = (), thinks: bool = False) -> Reply:
    """A whole answer, its markers written as text."""
    parser = Parser(form, tools=tools, thinks=thinks)
    return Reply().add([*parser.push(text), *parser.flush()])


class _OpenCall:
    """A call from its first marker on; `index` is None until its name is known."""

    def __init__(self, marker: str, token: bool, text: CallText) -> None:
        self._pieces: list[tuple[str, bool]] = []
        self.token = token
        self.text = text
        self.index: int | None = None
        self.add(marker, token)

    def add(self, piece: str, token: bool) -> None:
        self._pieces.append((piece, token))

    @property
    def raw(self) -> str:
        """All that was written of it."""
        return "".join(piece for piece, _ in self._pieces)

    @property
    def shown(self) -> str:
        """That without the markers that were tokens: what it says if it turns out to be no call."""
        return "".join(piece for piece, token in self._pieces if not token)


class _Content:
    """Content, without the line breaks beside thoughts and calls."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._held = ""
        self._skips = False  # line breaks that come now are no content
        self._after_call = False
        self.said = False

    def push(self, text: str) -> None:
        if self._skips:
            text = text.lstrip("\n")
        if not text:
            return
        self._skips = False
        text = self._held + text
        said = text.rstrip("\n")
        self._held = text[len(said) :]
        if said:
            self._say(said)

    def _say(self, text: str) -> None:
        self.said = True
        self._after_call = False
        self._events.append(Content(text))

    def before_thought(self) -> None:
        held, self._held = self._held, ""
        if held and self.said:
            self._say(held)

    def after_thought(self) -> None:
        self._skips = True

    def before_call(self) -> None:
        self._held = ""
        self._after_call = True
        # What follows a call goes on where the content stopped, or begins it.
        self._skips = not self.said

    def end(self) -> None:
        held, self._held = self._held, ""
        if held and not self._after_call:
            self._say(held)


class _Thoughts:
    """Thoughts, without their heading and the line breaks around them."""

    def __init__(self, events: list[Event], head: str) -> None:
        self._events = events
        self._head = head
        self._rest: str | None = None  # the text so far, where it may still be the heading
        self._held = ""
        self._earlier = False  # another thought has said something
        self.said = False  # by this thought

    def begin(self) -> None:
        self._rest = "" if self._head else None
        self._held = ""
        self._earlier = self._earlier or self.said
        self.said = False

    def push(self, text: str) -> None:
        if self._rest is not None:
            text = self._rest + text
            if len(text) < len(self._head) and self._head.startswith(text):
                self._rest = text
                return
            self._rest = None
            text = text.removeprefix(self._head)
        if not self.said:
            text = text.lstrip("\n")
            if not text:
                return
            if self._earlier:
                self._held = "\n\n"  # between one thought and the next
        text = self._held + text
        said = text.rstrip("\n")
        self._held = text[len(said) :]
        if said:
            self.said = True
            self._events.append(Thought(said))

    def end(self) -> None:
        rest, self._rest = self._rest, None
        if rest and rest != self._head.rstrip("\n"):
            self.push(rest)
        self._held = ""


class _Markers:
    """Finds markers in text that comes in pieces; holds back what may be the beginning of one."""

    def __init__(self, markers: list[str]) -> None:
        self._markers = markers
        pattern = "|".join(map(re.escape, sorted(markers, key=len, reverse=True)))
        self._pattern = re.compile(pattern) if markers else None
        self._held = ""

    def push(self, text: str) -> list[tuple[str, bool]]:
        """(text, whether it is a marker) in order, none empty."""
        text = self._held + text
        found: list[tuple[str, bool]] = []
        at = 0
        if self._pattern is not None:
            for match in self._pattern.finditer(text):
                if at < match.start():
                    found.append((text[at : match.start()], False))
                found.append((match[0], True))
                at = match.end()
        keep = self._begun(text[at:])
        if at < len(text) - keep:
            found.append((text[at : len(text) - keep], False))
        self._held = text[len(text) - keep :]
        return found

    def flush(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return held

    def _begun(self, text: str) -> int:
        """How many characters at the end may be the beginning of a marker."""
        longest = max(map(len, self._markers), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            tail = text[len(text) - size :]
            if any(len(marker) > size and marker.startswith(tail) for marker in self._markers):
                return size
        return 0


def _merged(events: list[Event]) -> list[Event]:
    """Neighbours of one kind as one."""
    merged: list[Event] = []
    for event in events:
        last = merged[-1] if merged else None
        if isinstance(event, Thought) and isinstance(last, Thought):
            merged[-1] = Thought(last.text + event.text)
        elif isinstance(event, Content) and isinstance(last, Content):
            merged[-1] = Content(last.text + event.text)
        else:
            merged.append(event)
    return merged
