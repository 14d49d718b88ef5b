"""One request while it is in the engine: its tokens, its pages and its text so far."""

from __future__ import annotations

import time

import numpy as np

from golem_core.engine.request import Request
from golem_core.engine.stream import Result, Stream, Timings, Token
from golem_core.memory import Hold, token_keys
from golem_core.sampling import Sampler, logprobs
from golem_core.text import Detokenizer, StopStrings, Tokenizer


class Sequence:
    """A request and how far it has come.

    `tokens[:count]` is the text: the prompt and what was generated. `hold` is None while it waits
    or is set aside; else the first `hold.length` tokens have been read into pages.
    """

    def __init__(
        self, request: Request, stream: Stream, prompt: np.ndarray, context: int, tok: Tokenizer
    ) -> None:
        self.request = request
        self.stream = stream
        self.prompt_tokens = len(prompt)
        self.count = len(prompt)
        limit = context if request.max_tokens is None else self.count + request.max_tokens
        self.limit = min(context, limit)
        self.tokens = np.empty(self.limit, dtype=np.int32)
        self.tokens[: self.count] = prompt
        self.keys = token_keys(self.tokens)
        self.hold: Hold | None = None
        self.cached = 0
        self.set_aside = 0  # times
        self._ends = frozenset() if request.ignore_eos else tok.end_ids
        banned = tok.end_ids if request.ignore_eos else frozenset()
        self._sampler = Sampler(request.sampling, banned, request.mask)
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
            tail, stopped = self._end()
            if tail:
                self._put(None, tail, None)
            return self.result("stop", None if stopped else token)
        self.tokens[self.count] = token
        self.count += 1
        text, stopped = self._text(self._detokenizer.push(token))
        ended = self.count >= self.limit
        if ended and not stopped:
            tail, stopped = self._end()
            text += tail
        self._put(token, text, logits)
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
            ),
            seed=self._sampler.seed,
            error=error,
        )

    def _put(self, token: int | None, text: str, logits: np.ndarray | None) -> None:
        self._pieces.append(text)
        asked = self.request.logprobs
        if asked is None or token is None or logits is None:
            self.stream.put(Token(token, text))
        else:
            self.stream.put(Token(token, text, logprobs(logits, token, asked)))

    def _text(self, text: str) -> tuple[str, bool]:
        """What of `text` may be said now, and whether a stop string is complete."""
        return (text, False) if self._stops is None else self._stops.push(text)

    def _end(self) -> tuple[str, bool]:
        """What was held back, and whether this completes a stop string."""
        text, stopped = self._text(self._detokenizer.flush())
        if self._stops is not None and not stopped:
            text += self._stops.flush()
        return text, stopped
