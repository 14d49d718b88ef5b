"""BPE over a text's own characters, with bytes for those that the vocabulary lacks (Gemma 4).

A space is written as U+2581 and no words are cut: pairs are merged by their rank over the whole
text. The merging is done by the `tokenizers` package, built in memory from the file's tokens and
merges; for the 262,144 tokens and 514,906 merges of Gemma 4 that takes most of a second.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import Tokenizer, models

from golem_core.errors import BadWeights
from golem_core.text import merged
from golem_core.text.spm import SPACE
from golem_core.text.vocabulary import Vocabulary, string_array


class CharacterMerges:
    """Character-level BPE of one vocabulary."""

    adds_space = False
    adds_bos = True

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, object]) -> None:
        merges = []
        for i, merge in enumerate(string_array(metadata, "tokenizer.ggml.merges")):
            # No token holds a space, so the one in a merge is where its two tokens meet.
            left, space, right = merge.partition(" ")
            if not space:
                raise BadWeights(f"merge {i} is {merge!r}; expected two tokens and a space")
            merges.append((left, right))
        unknown = vocabulary.special_ids.get("unknown")
        try:
            model = models.BPE(
                vocab=dict(vocabulary.ids),
                merges=merges,
                unk_token=None if unknown is None else vocabulary.texts[unknown],
                byte_fallback=True,
            )
        except Exception as error:  # the package raises plain Exception
            raise BadWeights(f"the file's merges do not fit its tokens: {error}") from None
        self._tokenizer = Tokenizer(model)

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        return merged.ids(self._tokenizer, text.replace(" ", SPACE))

    def piece(self, text: str) -> bytes:
        """The bytes that a normal token's text stands for."""
        return text.replace(SPACE, " ").encode()
