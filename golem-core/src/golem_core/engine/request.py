"""What is asked of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from golem_core.engine.stream import Result, Token
from golem_core.errors import BadRequest, ContextFull
from golem_core.sampling import Ahead, Mask, Sampling
from golem_core.text import AnswerReader, check_stops

MOST_LOGPROBS = 20


@dataclass(frozen=True, eq=False)
class Request:
    """A prompt to continue.

    prompt_ids  token ids, at least one
    max_tokens  the most tokens to generate; None: as many as the context has room for
    stop        a text or at most 4 that end the answer and are no part of it
    logprobs    give each token's logarithmic probability and those of so many of the likeliest
                (0 to 20); None: neither
    ignore_eos  never draw a token that ends the answer
    shared      whether what is known of a like beginning is used, and what is read kept for others
    mask        a constraint on what may come next
    reader      reads thoughts and calls out of the answer, which then is what it says is content;
                made for this request, with the stop strings, so `stop` must be None
    on_event    called on the engine's thread with each `Token` and at last the `Result`, in place
                of the stream's iteration; it must return at once

    Raises `BadRequest` naming the field.
    """

    prompt_ids: Sequence[int] | np.ndarray
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    stop: Sequence[str] | str | None = None
    logprobs: int | None = None
    ignore_eos: bool = False
    shared: bool = True
    mask: Mask | None = None
    reader: AnswerReader | None = None
    on_event: Callable[[Token | Result], None] | None = None

    def __post_init__(self) -> None:
        check_stops(self.stop)
        if self.reader is not None and self.stop:
            raise ValueError("a request with a reader has its stop strings there")
        if self.ignore_eos and isinstance(self.mask, Ahead):
            raise BadRequest(
                "ignore_eos is true, and where a grammar is complete nothing but an end may follow",
                "ignore_eos",
            )
        if self.max_tokens is not None and not _is_whole(self.max_tokens, 1):
            raise BadRequest(
                f"max_tokens is {self.max_tokens!r}, expected an integer of at least 1",
                "max_tokens",
            )
        if self.logprobs is not None and not _is_whole(self.logprobs, 0, MOST_LOGPROBS):
            raise BadRequest(
                f"logprobs is {self.logprobs!r}, expected an integer from 0 to {MOST_LOGPROBS}",
                "logprobs",
            )

    def tokens(self, vocabulary: int, context: int) -> np.ndarray:
        """The prompt as int32, checked against a vocabulary and a context.

        Raises `BadRequest` for no token or one outside the vocabulary, `ContextFull` for a prompt
        that leaves no room for a token of the answer.
        """
        ids = np.asarray(self.prompt_ids)
        if ids.ndim != 1 or not ids.size or not np.issubdtype(ids.dtype, np.integer):
            raise BadRequest(
                f"the prompt is an array {list(ids.shape)} of {ids.dtype}, expected one or more "
                "token ids",
                "prompt",
            )
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= vocabulary:
            raise BadRequest(
                f"the prompt has token {low if low < 0 else high}, and the vocabulary has "
                f"{vocabulary}",
                "prompt",
            )
        if len(ids) >= context:
            raise ContextFull(
                f"the prompt has {len(ids)} tokens and the context {context}, which must hold the "
                "prompt and at least one more; shorten the prompt or ask for a longer context",
                prompt_tokens=len(ids),
                context=context,
            )
        return ids.astype(np.int32)


def _is_whole(value: object, low: int, high: int | None = None) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return value >= low and (high is None or value <= high)
