"""An answer that ends with its first call of a tool."""

from __future__ import annotations

from golem_core.text import AnswerReader, CallDone, Event

__all__ = ["OneCall"]


class OneCall(AnswerReader):
    """As `AnswerReader`; the answer is over once a call is complete."""

    _called = False

    @property
    def ended(self) -> bool:
        """Whether nothing that follows belongs to the answer."""
        return self._called or super().ended

    def push(self, token: int) -> list[Event]:
        """What this token completes, until the first call is."""
        events = super().push(token)
        self._called = self._called or any(isinstance(event, CallDone) for event in events)
        return events
