"""A text cut into lines that are each spoken in one go, as the makers cut it.

The models were trained on single sentences. A text is cut after the tokens that end a sentence,
too long a sentence after commas, and what is short is joined again as long as it fits. Every line
is then made ready by itself, so that one that was cut at a comma ends with a full stop.

What the makers leave long, a run of many tokens without any punctuation, is drawn as one line up to
`LONGEST` tokens; beyond that it is cut between words, so that no text needs more memory than a
paragraph does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from golem_core.errors import BadRequest
from golem_core.speech import Line
from golem_pockettts.languages import TextRules
from golem_pockettts.text import checked, prepare
from golem_pockettts.tokenizer import Tokenizer

__all__ = ["lines", "split"]

ENDS, PAUSES = ".!...?", ",;:"
LONGEST = 512  # tokens of a line: about 2,200 frames at most, or 173 s
_NEAR = 16  # tokens that hold the characters beside a place


def lines(text: str, tokenizer: Tokenizer, rules: TextRules, max_tokens: int = 50) -> list[Line]:
    """The lines that a text is spoken in.

    Raises `BadRequest` where there is nothing to speak, or `max_tokens` is below 1.
    """
    if max_tokens < 1:
        raise BadRequest(f"max_tokens is {max_tokens}, expected at least 1", "max_tokens")
    found = []
    for piece in split(text, tokenizer, rules, max_tokens):
        ready, rest = prepare(piece, rules)
        ids = tuple(tokenizer.encode(ready))
        if ids:
            found.append(Line(ready, ids, rest))
    if not found:
        raise BadRequest("there is nothing to speak in the text", "input")
    return found


def split(text: str, tokenizer: Tokenizer, rules: TextRules, max_tokens: int) -> list[str]:
    """The pieces of a text, of at most `max_tokens` tokens where its punctuation allows."""
    ready, _ = prepare(checked(text), rules)
    ids = tokenizer.encode(ready.strip())
    ends, pauses = set(tokenizer.encode(ENDS)[1:]), set(tokenizer.encode(PAUSES)[1:])
    packed: list[str] = []
    current, count = "", 0
    for tokens, sentence in _sentences(ids, ends, pauses, tokenizer, max_tokens):
        if not current:
            current, count = sentence, tokens
        elif count + tokens > max_tokens:
            packed.append(current)
            current, count = sentence, tokens
        else:
            current, count = f"{current} {sentence}", count + tokens
    packed.append(current)
    return [piece for one in packed if (piece := one.strip())]


def _sentences(
    ids: Sequence[int], ends: set[int], pauses: set[int], tokenizer: Tokenizer, most: int
) -> Iterator[tuple[int, str]]:
    """Sentences and parts of them, each with the number of its tokens."""
    for sentence in _cut(ids, [i for i in _after(ids, ends) if not _decimal(ids, i, tokenizer)]):
        text = tokenizer.decode(sentence)
        if len(sentence) <= most:
            yield len(sentence), text
            continue
        again = tokenizer.encode(text.strip())  # without the space that the cut left
        parts = _cut(again, _after(again, pauses))
        if len(parts) < 2:
            parts = [list(sentence)]
        for part in parts:
            for short in _between_words(part, tokenizer, most):
                yield len(short), tokenizer.decode(short)


def _after(ids: Sequence[int], marks: set[int]) -> list[int]:
    """The places that follow a run of marks."""
    return [i for i in range(1, len(ids)) if ids[i - 1] in marks and ids[i] not in marks]


def _cut(ids: Sequence[int], places: Sequence[int]) -> list[list[int]]:
    bounds = [0, *places, len(ids)]
    return [list(ids[start:end]) for start, end in pairwise(bounds)]


def _decimal(ids: Sequence[int], place: int, tokenizer: Tokenizer) -> bool:
    """Whether a place follows a full stop that stands between digits."""
    near = _NEAR
    while len(before := tokenizer.decode(ids[max(0, place - near) : place])) < 4 and near < place:
        near *= 2
    if len(before) < 2 or before[-1] != "." or not before[-2].isdigit():
        return False
    near = _NEAR
    while not (after := tokenizer.decode(ids[place : place + near])) and place + near < len(ids):
        near *= 2
    return bool(after) and after[0].isdigit()


def _between_words(ids: list[int], tokenizer: Tokenizer, most: int) -> Iterator[list[int]]:
    """The ids themselves, or parts of at most `most` where they are more than a line may have."""
    if len(ids) <= max(LONGEST, most):
        yield ids
        return
    start = 0
    while start < len(ids):
        end = min(start + most, len(ids))
        if end < len(ids):
            words = (i for i in range(end, start, -1) if tokenizer.begins(ids[i]))
            end = next(words, None) or _whole(ids, start, end, tokenizer)
        yield ids[start:end]
        start = end


def _whole(ids: Sequence[int], start: int, end: int, tokenizer: Tokenizer) -> int:
    """An end that does not part the bytes of a character that is no piece of its own."""
    for fewer in range(end, max(start, end - 4), -1):
        if not tokenizer.decode(ids[start:fewer]).endswith("\ufffd"):
            return fewer
    return end
