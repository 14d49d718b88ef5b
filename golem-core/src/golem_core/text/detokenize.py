"""A growing answer as text: whole characters only, and never a part of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from golem_core.errors import BadRequest
from golem_core.text import utf8
from golem_core.text.tokenizer import Tokenizer

MOST_STOPS = 4


class Detokenizer:
    """Turns tokens into text as they come; what it gave out is never taken back.

    special=True writes control tokens, which are otherwise left out. All texts together equal
    `Tokenizer.decode` of all tokens, but for the space that some files put before a text: an
    answer goes on from a prompt, so it keeps its first space.
    """

    def __init__(self, tokenizer: Tokenizer, *, special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._decoder = utf8.decoder()

    def push(self, token: int) -> str:
        """The characters that this token completes, often none."""
        if not self._special and self._tokenizer.is_control(token):
            return ""
        return self._decoder.decode(self._tokenizer.piece(token))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for each byte of a character that was cut off."""
        return self._decoder.decode(b"", True)


class StopStrings:
    """Ends a text before the first stop string in it.

    The stop string that is complete first counts; of several complete at the same character, the
    longest. The result does not depend on how the text is cut into pieces. `found` is the one that
    ended the text, None before.
    """

    def __init__(self, stops: Sequence[str] | str | None) -> None:
        """Takes one string, up to four, or None; raises BadRequest as `check_stops`."""
        self._stops = check_stops(stops)
        self._failures = [_failures(stop) for stop in self._stops]
        self._states = [0] * len(self._stops)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> tuple[str, bool]:
        """(what may be given out, whether the text ends here)."""
        if self.found is not None or not self._stops:
            return (text, False) if self.found is None else ("", True)
        for at, character in enumerate(text):
            whole = 0
            for i, stop in enumerate(self._stops):
                state = self._states[i]
                while state and (state == len(stop) or stop[state] != character):
                    state = self._failures[i][state - 1]
                if stop[state] == character:
                    state += 1
                self._states[i] = state
                if state == len(stop):
                    whole = max(whole, state)
            if whole:
                text = self._held + text[: at + 1]
                self._held = ""
                self.found = text[len(text) - whole :]
                return text[: len(text) - whole], True
        text = self._held + text
        keep = max(self._states)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """What was held back and turned out to be no stop string."""
        held, self._held = self._held, ""
        return held


def check_stops(stops: object) -> tuple[str, ...]:
    """Stop strings as a request gives them: one, up to four in a list, or None.

    Raises BadRequest, field ``stop``, for more than four, an empty one, or what is no string.
    """
    if stops is None:
        return ()
    found = (stops,) if isinstance(stops, str) else stops
    if not isinstance(found, Sequence) or not all(isinstance(stop, str) for stop in found):
        raise BadRequest("stop is neither a string nor a list of strings", "stop")
    if len(found) > MOST_STOPS:
        raise BadRequest(f"stop has {len(found)} strings; at most {MOST_STOPS} are taken", "stop")
    if not all(found):
        raise BadRequest(
            "stop has an empty string, which every text contains; leave it out", "stop"
        )
    return tuple(found)


def _failures(stop: str) -> list[int]:
    """For each prefix of a stop string, the longest proper prefix of it that also ends it."""
    failures = [0]
    state = 0
    for character in stop[1:]:
        while state and stop[state] != character:
            state = failures[state - 1]
        state += stop[state] == character
        failures.append(state)
    return failures
