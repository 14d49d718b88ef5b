"""Bytes to text where some bytes are no characters: each such byte becomes one U+FFFD.

One for each byte, so that the text does not depend on how the bytes are cut into tokens.
"""

from __future__ import annotations

import codecs

_NAME = "golem.each-byte"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(_NAME, _replace)


def decode(data: bytes) -> str:
    """All of the bytes as text."""
    return data.decode("utf-8", _NAME)


def decoder() -> codecs.IncrementalDecoder:
    """A decoder that keeps the beginning of a character until its end arrives."""
    return codecs.getincrementaldecoder("utf-8")(_NAME)
