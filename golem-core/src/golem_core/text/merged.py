"""The ids that the `tokenizers` package gives a text, without keeping other threads waiting."""

from __future__ import annotations

from tokenizers import Tokenizer

# Characters, merged in a millisecond. A longer text goes as a batch of one: only then does the
# package let go of the interpreter while it merges, and it passes the text to a thread of its own,
# which a short one would wait for.
SHORT = 2048


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text without special tokens."""
    if len(text) < SHORT:
        found: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    else:
        found = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return found
