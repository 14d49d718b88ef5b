"""A text made ready to be spoken: what the models were trained on, and what they were not.

They know sentences that begin with a capital and end with a full stop, a question mark or an
exclamation mark. Characters that no training text had are put away by the language's table, and a
text that ends otherwise gets a full stop. The makers' own order of the steps is kept, since some
of them undo what another did.
"""

from __future__ import annotations

import re

from golem_core.errors import BadRequest
from golem_pockettts.languages import TextRules

__all__ = ["checked", "prepare"]

TERMINAL = ".!?\u2026"
WEAK = ",;:-\u2013\u2014"  # what a sentence does not end with
CLOSERS = "\"'\u201d\u2019)]\u00bb"  # what may follow its end

SHORT_WORDS = 4  # up to so many, the end of a text is given two more frames
SHORT_REST, REST = 5, 3  # frames after the one in which the model finds the end
PADDED_WORDS = 5  # fewer are padded, where the model wants it
PADDING = " " * 8


def checked(text: str) -> str:
    """The text itself. Raises `BadRequest` for what is not text: a lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"the text has half a character at {error.start}: it is not Unicode", "input"
        ) from None
    return text


def prepare(text: str, rules: TextRules) -> tuple[str, int]:
    """The text as the model reads it, and the frames that follow its end.

    Raises `BadRequest` where nothing is left to speak.
    """
    text = text.strip()
    if rules.replace:
        text = " ".join(
            text.translate({ord(old): new for old, new in rules.replace.items()}).split()
        )
        # Where a closing quote went, a sentence's end would be followed by a comma.
        text = re.sub(r"([.!?\u2026])\s*[,;:]", r"\1", text)
    if not text:
        raise BadRequest("there is nothing to speak in the text", "input")
    text = text.replace("\n", " ").replace("\r", " ").replace("  ", " ")
    if rules.no_semicolons:
        text = text.replace(";", ",")
    rest = SHORT_REST if len(text.split()) <= SHORT_WORDS else REST
    if rules.capitalise and not text[0].isupper():
        text = text[0].upper() + text[1:]
    if rules.terminal:
        text = _ended(text)
    if rules.pad_short and len(text.split()) < PADDED_WORDS:
        text = PADDING + text
    return text, rest if rules.rest is None else rules.rest


def _ended(text: str) -> str:
    """A text that ends as sentences do, before what closes a quotation or a bracket."""
    core = text.rstrip(CLOSERS + " ")
    closers = text[len(core) :].strip()
    if not core or core[-1] in TERMINAL:
        return text
    if core[-1] in WEAK:
        return f"{core.rstrip(WEAK + ' ')}.{closers}"
    return f"{text}."
