"""Byte-level BPE: a text's bytes written as printable characters, merged pair by pair."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from tokenizers import Regex, pre_tokenizers

from golem_core.text import pretokenizers
from golem_core.text.merged import Merged
from golem_core.text.vocabulary import Kind, Vocabulary, string_array


def _alphabet() -> dict[int, str]:
    """GPT-2's table: printable Latin-1 bytes stand for themselves, the others follow U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in printable:
            table[byte] = chr(0x100 + len(table) - len(printable))
    return table


BYTE_OF = {character: byte for byte, character in _alphabet().items()}


class ByteLevel:
    """Byte-level BPE of one vocabulary."""

    adds_space = False

    def __init__(self, vocabulary: Vocabulary, metadata: Mapping[str, object]) -> None:
        row = pretokenizers.find(vocabulary.pre or "default")
        self.adds_bos = row.adds_bos
        self._composes = row.composes
        steps = [pre_tokenizers.Split(Regex(e), "isolated") for e in row.expressions]
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        # The file's control tokens are left out, so that no text can be merged into one. Not where
        # a merge makes one: Qwen's merges make `</s>`, which by its text ends an answer.
        self._merged = Merged(
            vocabulary,
            string_array(metadata, "tokenizer.ggml.merges"),
            hidden=(vocabulary.kinds == Kind.CONTROL).nonzero()[0].tolist(),
            words=pre_tokenizers.Sequence([*steps, last]),
            ignore_merges=row.whole_words,
        )

    def encode(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        if self._composes and not text.isascii():
            text = unicodedata.normalize("NFC", text)
        return self._merged.encode(text)

    def prepare(self) -> None:
        """See `Tokenizer.prepare`."""
        self._merged.prepare()

    def piece(self, text: str) -> bytes:
        """The bytes that a normal token's text stands for."""
        try:
            return bytes([BYTE_OF[character] for character in text])
        except KeyError:
            # No byte is written so: the token was added as plain text.
            return text.encode()
