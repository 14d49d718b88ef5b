"""Byte pair encoding by a file's tokens and merges, which the `tokenizers` package does.

Whatever a text is made into stands in it: of all tokens it can use those only, and of all merges
those that put two such together. So a little text is given a model of these, which has the ids that
the whole one has. That one is made when the texts are no longer few: for 151,936 tokens it takes
0.4 s, in which no other thread of Python runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import PreTokenizer

from golem_core.errors import BadWeights
from golem_core.text.vocabulary import Vocabulary
from golem_core.weights import StringArray, misfit

# Characters of all texts together that are encoded without the whole model.
LITTLE = 2048
# Characters, merged in a millisecond. A longer text goes as a batch of one: only then does the
# package let go of the interpreter while it merges, and it passes the text to a thread of its own,
# which a short one would wait for.
SHORT = 2048


class Merged:
    """The model of one file.

    written  the merges in their order, two tokens and a space each
    hidden   ids that no text is made into, unless a merge makes them
    always   tokens that a text may use though they do not stand in it
    words    cuts a text into what is merged apart, and writes it as the tokens are written
    options  of `tokenizers.models.BPE`

    Raises BadWeights for merges that do not fit the tokens.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        written: StringArray,
        *,
        hidden: Iterable[int] = (),
        always: Iterable[str] = (),
        words: PreTokenizer | None = None,
        **options: Any,
    ) -> None:
        self._texts = vocabulary.texts
        self._merges = written.held()
        self._words, self._options = words, options
        self._absent = np.zeros(len(vocabulary), np.uint8)
        for token in hidden:
            text = self._texts[token]
            pairs = ((text[:at], text[at:]) for at in range(1, len(text)))
            self._absent[token] = all(self._rank(*pair) is None for pair in pairs)
        self._check()
        found = ((text, self._texts.find(text)) for text in always)
        self._always = {text: token for text, token in found if token is not None}
        self._longest = int(np.diff(self._texts.starts).max())  # bytes, and so characters at most
        self._left = LITTLE
        self._whole: Tokenizer | None = None
        self._lock = Lock()

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        if self._whole is None:
            self._left -= len(text)
            if self._left >= 0:
                return self._encode_little(text)
        whole = self.prepare()
        if len(text) < SHORT:
            found: list[int] = whole.encode(text, add_special_tokens=False).ids
        else:
            found = whole.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return found

    def prepare(self) -> Tokenizer:
        """The whole model, made unless it was."""
        with self._lock:
            if self._whole is None:
                self._whole = self._made(*self._everything())
            return self._whole

    def _encode_little(self, text: str) -> list[int]:
        tokens = dict(self._always)
        ranks: dict[tuple[str, str], int] = {}
        cut = [(text, None)] if self._words is None else self._words.pre_tokenize_str(text)
        for word in {word for word, _ in cut}:
            self._find(word, tokens, ranks)
        made = self._made(tokens, sorted(ranks, key=ranks.__getitem__))
        found: list[int] = made.encode(text, add_special_tokens=False).ids
        return found

    def _find(self, word: str, tokens: dict[str, int], ranks: dict[tuple[str, str], int]) -> None:
        """Adds what a word can be made into: tokens with their ids, merges with their ranks."""
        size = len(word)
        ends: list[list[int]] = [[] for _ in range(size)]  # of the tokens that begin at a place
        for start in range(size):
            for end in range(start + 1, min(size, start + self._longest) + 1):
                token = self._texts.find(word[start:end])
                if token is not None and not self._absent[token]:
                    tokens[word[start:end]] = token
                    ends[start].append(end)
        for start in range(size):
            for middle in ends[start]:
                for end in ends[middle] if middle < size else ():
                    pair = (word[start:middle], word[middle:end])
                    rank = self._rank(*pair)
                    if rank is not None:
                        ranks[pair] = rank

    def _rank(self, left: str, right: str) -> int | None:
        # The two of a merge meet at its first space.
        return None if " " in left[1:] else self._merges.find(f"{left} {right}")

    def _everything(self) -> tuple[dict[str, int], list[tuple[str, str]]]:
        absent = self._absent.tolist()
        tokens = {self._texts[i]: i for i, hidden in enumerate(absent) if not hidden}
        return tokens, self._merges.halves()

    def _made(self, tokens: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
        try:
            made = Tokenizer(models.BPE(vocab=tokens, merges=merges, **self._options))
        except Exception as error:  # the package raises plain Exception
            raise BadWeights(f"the file's merges do not fit its tokens: {error}") from None
        if self._words is not None:
            made.pre_tokenizer = self._words
        return made

    def _check(self) -> None:
        failed = misfit(self._merges, self._texts, self._absent)
        if failed < 0:
            return
        merge = self._merges[failed]
        left, space, right = merge[1:].partition(" ")
        if not space or not right:
            raise BadWeights(f"merge {failed} is {merge!r}; expected two tokens and a space")
        left = merge[0] + left
        for text in (left, right, left + right):
            token = self._texts.find(text)
            if token is None or self._absent[token]:
                raise BadWeights(
                    f"the file's merges do not fit its tokens: merge {failed} is {merge!r}, and "
                    f"there is no token {text!r}"
                )
