"""One request while it is in the engine: its tokens, its pages and its text so far."""

from __future__ import annotations

import secrets
import time

import numpy as np

from golem_core.engine.request import Request
from golem_core.engine.stream import Result, Stream, Timings, Token
from golem_core.graph.program import PAGE
from golem_core.memory import Hold, token_keys
from golem_core.sampling import Sampler, logprobs
from golem_core.text import Detokenizer, Event, StopStrings, Tokenizer, said


class Sequence:
    """A request and how far it has come.

    `tokens[:count]` is the text: the prompt and what was generated. `hold` is None while it waits
    or is set aside; else the first `hold.length` tokens have been read into pages.
    """

    def __init__(
        self,
        request: Request,
        stream: Stream,
        prompt: np.ndarray,
        context: int,
        tok: Tokenizer,
        suppressed: frozenset[int] = frozenset(),
    ) -> None:
        self.request = request
        self.stream = stream
        self.prompt_tokens = len(prompt)
        self.count = len(prompt)
        limit = context if request.max_tokens is None else self.count + request.max_tokens
        self.limit = min(context, limit)
        self.tokens = np.empty(self.limit, dtype=np.int32)
        self.tokens[: self.count] = prompt
        # With a first page like no other nothing that follows is found, by it or by others.
        own = None if request.shared else {0: secrets.token_bytes(16)}
        self.keys = token_keys(self.tokens, own)
        self.hold: Hold | None = None
        self.cached = 0
        self.set_aside = 0  # times
        # One that reads the same beginning, and how many pages of it are worth waiting for.
        self.follows: tuple[Sequence, int] | None = None
        self.drafted = 0
        self.accepted = 0  # of the drafted tokens
        self._ends = frozenset() if request.ignore_eos else tok.end_ids
        banned = tok.end_ids if request.ignore_eos else frozenset()
        self._sampler = Sampler(request.sampling, banned | suppressed, request.mask)
        self._detokenizer = Detokenizer(tok)
        self._stops = StopStrings(request.stop) if request.stop else None
        self._pieces: list[str] = []
        self._submitted = time.perf_counter()
        self._begun: float | None = None
        self._first: float | None = None

    @property
    def place(self) -> Hold:
        """`hold`, of a sequence that has one."""
        assert self.hold is not None  # only what is running has a place
        return self.hold

    @property
    def pending(self) -> int:
        """Tokens that are not in pages yet; at least one, of which the next token comes."""
        return self.count - self.place.length

    @property
    def is_following(self) -> bool:
        """Whether the one that it follows is still on its way to where the two part."""
        if self.follows is None:
            return False
        other, pages = self.follows
        if other.hold is not None and len(other.hold.nodes) < pages:
            return True
        self.follows = None
        return False

    def alike(self, other: Sequence) -> int:
        """How many pages both texts begin with, of those that `other` has to read."""
        pages = min(other.count // PAGE, (self.count - 1) // PAGE)
        return next((p for p in range(pages) if self.keys(p) != other.keys(p)), pages)

    def begin(self, hold: Hold) -> None:
        """The sequence is running from now on."""
        self.hold = hold
        if self._begun is None:
            self._begun = time.perf_counter()

    def draw(self, logits: np.ndarray) -> int:
        """The next token. Raises `PassFailed` when `logits` [vocabulary] allow none."""
        return self._sampler.draw(logits, self.tokens[: self.count])

    def accept(self, token: int, logits: np.ndarray) -> Result | None:
        """Hands `token` out, and gives the result if it is the last."""
        if self._first is None:
            self._first = time.perf_counter()
        if token in self._ends:
            tail, events, stopped = self._end()
            if tail or events:
                self._put(None, tail, events, None)
            return self.result("stop", None if stopped else token)
        self.tokens[self.count] = token
        self.count += 1
        text, events, stopped = self._push(token)
        ended = self.count >= self.limit
        if not ended and not stopped:
            self._sampler.accepted(token)
        if ended and not stopped:
            tail, rest, stopped = self._end()
            text += tail
            events += rest
        self._put(token, text, events, logits)
        if stopped:
            return self.result("stop")
        return self.result("length") if ended else None

    def result(
        self, reason: str, end_id: int | None = None, error: Exception | None = None
    ) -> Result:
        """How the sequence ends."""
        now = time.perf_counter()
        begun = now if self._begun is None else self._begun
        first = now if self._first is None else self._first
        return Result(
            ids=tuple(self.tokens[self.prompt_tokens : self.count].tolist()),
            text="".join(self._pieces),
            finish_reason=reason,
            end_id=end_id,
            timings=Timings(
                queued_seconds=begun - self._submitted,
                prompt_tokens=self.prompt_tokens,
                cached_tokens=self.cached,
                prompt_seconds=first - begun,
                generated_tokens=self.count - self.prompt_tokens,
                generate_seconds=now - first,
                drafted_tokens=self.drafted,
                accepted_tokens=self.accepted,
            ),
            seed=self._sampler.seed,
            error=error,
            stop=self._stop_string,
        )

    def _put(
        self, token: int | None, text: str, events: list[Event], logits: np.ndarray | None
    ) -> None:
        self._pieces.append(text)
        asked = self.request.logprobs
        likely = None
        if asked is not None and token is not None and logits is not None:
            likely = logprobs(logits, token, asked)
        self.stream.put(Token(token, text, likely, tuple(events)))

    @property
    def _stop_string(self) -> str | None:
        """The one that ended the answer, if one did."""
        if self.request.reader is not None:
            return self.request.reader.stop
        return None if self._stops is None else self._stops.found

    def _push(self, token: int) -> tuple[str, list[Event], bool]:
        """What `token` says as text and as parts of the answer, and whether it ends it."""
        reader = self.request.reader
        if reader is not None:
            events = reader.push(token)
            return said(events), events, reader.ended
        text, stopped = self._text(self._detokenizer.push(token))
        return text, [], stopped

    def _text(self, text: str) -> tuple[str, bool]:
        """What of `text` may be said now, and whether a stop string is complete."""
        return (text, False) if self._stops is None else self._stops.push(text)

    def _end(self) -> tuple[str, list[Event], bool]:
        """What was held back, and whether this completes a stop string."""
        reader = self.request.reader
        if reader is not None:
            events = reader.flush()
            return said(events), events, reader.ended
        text, stopped = self._text(self._detokenizer.flush())
        if self._stops is not None and not stopped:
            text += self._stops.flush()
        return text, [], stopped
