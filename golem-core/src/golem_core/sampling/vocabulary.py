"""A model's tokens as llguidance wants them: made once for each tokenizer, in the background.

Of golem's own tokenizer, so that a constraint sees the bytes that the answer will have. Tokens that
are markers or steer the model are *special*: no text of a grammar is made of them.
"""

from __future__ import annotations

import weakref
from concurrent.futures import Future
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from golem_core.errors import Unsupported

if TYPE_CHECKING:
    from golem_core.text import Tokenizer

_made: weakref.WeakKeyDictionary[Tokenizer, Future[Any]] = weakref.WeakKeyDictionary()
_lock = Lock()


def library() -> Any:
    """llguidance. Raises `Unsupported` where it is not installed."""
    try:
        import llguidance
    except ImportError:
        raise Unsupported("grammars and schemas need llguidance: pip install llguidance") from None
    return llguidance


def prepare(tokenizer: Tokenizer) -> Future[Any]:
    """Begins to make the tokens of `tokenizer` ready, once; the future has the result.

    A vocabulary of 262,144 takes a second or two of one core, 8,192 a twentieth.
    """
    library()
    with _lock:
        future = _made.get(tokenizer)
        if future is None:
            future = _made[tokenizer] = Future()
            Thread(
                target=_make, args=(tokenizer, future), name="golem-vocabulary", daemon=True
            ).start()
    return future


def is_special(tokenizer: Tokenizer, token: int) -> bool:
    """Whether a token is no text: a control token, or a marker such as ``<tool_call>``."""
    if tokenizer.is_control(token):
        return True
    piece = tokenizer.piece(token)
    marked = piece[:1] == b"<" and piece[-1:] == b">" and len(piece) > 2
    return marked and tokenizer.special_id(tokenizer.token_text(token)) == token


class _Tokens:
    """What `llguidance.TokenizerWrapper` asks for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        every = range(len(tokenizer))
        self.eos_token_id = min(tokenizer.end_ids, default=tokenizer.eos or 0)
        self.bos_token_id = tokenizer.bos
        self.tokens = [tokenizer.piece(token) for token in every]
        self.special_token_ids = [token for token in every if is_special(tokenizer, token)]

    def __call__(self, text: bytes) -> list[int]:
        # Only asked where a grammar forces its tokens, which ours forbid (`no_forcing`).
        raise ValueError("no text is made tokens here")


def _make(tokenizer: Tokenizer, future: Future[Any]) -> None:
    try:
        guidance = library()
        tokens = _Tokens(tokenizer)
        ends = sorted(tokenizer.end_ids) or [tokens.eos_token_id]
        wrapper = guidance.TokenizerWrapper(tokens)
        made = guidance.LLTokenizer(wrapper, eos_token=ends)
        wrapper.tokens = tokens.tokens = []  # it has its own
        future.set_result(made)
    except BaseException as error:
        future.set_exception(error)
