"""BPE over a text's own characters, with bytes for those that the vocabulary lacks (Gemma 4).

A space is written as U+2581 and no words are cut: pairs are merged by their rank over the whole
text.
"""

from __future__ import annotations

from collections.abc import Mapping

from golem_core.text.merged import Merged
from golem_core.text.spm import SPACE
from golem_core.text.vocabulary import Vocabulary, string_array


class CharacterMerges:
    """Character-level BPE of one vocabulary."""

    adds_space = False
    adds_bos = True

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, object]) -> None:
        unknown = vocabulary.special_ids.get("unknown")
        unk = None if unknown is None else vocabulary.texts[unknown]
        self._merged = Merged(
            vocabulary,
            string_array(metadata, "tokenizer.ggml.merges"),
            always=[*([unk] if unk else []), *(f"<0x{byte:02X}>" for byte in range(256))],
            unk_token=unk,
            byte_fallback=True,
        )

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        return self._merged.encode(text.replace(" ", SPACE))

    def prepare(self) -> None:
        """See `Tokenizer.prepare`."""
        self._merged.prepare()

    def piece(self, text: str) -> bytes:
        """The bytes that a normal token's text stands for."""
        return text.replace(SPACE, " ").encode()
