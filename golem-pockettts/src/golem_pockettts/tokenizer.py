"""The pieces that a model reads texts in: SentencePiece's own file, or the same as tokenizer.json.

No token is added at the start or the end. A file must have as many pieces as the table of the
model has rows, but for the one that pads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from golem_core.errors import BadWeights, NotFound
from golem_pockettts.text import checked

__all__ = ["Tokenizer"]

LARGEST = 64 << 20  # bytes; the published ones have less than one million
SPACE = "\u2581"  # what stands for a space in a piece


class Tokenizer:
    """Text to ids and back."""

    def __init__(self, path: Path, pieces: int) -> None:
        """Opens a vocabulary of `pieces` pieces.

        Raises `NotFound` if there is no such file, and `BadWeights`, naming it, for a file that is
        no vocabulary or one of another size.
        """
        self.path = path
        try:
            if path.stat().st_size > LARGEST:
                raise BadWeights(f"{path} has more than {LARGEST >> 20} MiB: it is no vocabulary")
            data = path.read_bytes()
        except OSError as error:
            raise NotFound(f"{path} cannot be read: {error.strerror}") from None
        json = path.suffix == ".json" or data[:1] == b"{"
        reader: Any = (_from_json if json else _from_model)(data, path)
        self._json: Any = reader if json else None
        self._model: Any = None if json else reader
        found = reader.get_vocab_size() if json else reader.vocab_size()
        if found != pieces:
            raise BadWeights(f"{path} has {found} pieces, but the model's table is of {pieces}")

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Raises `BadRequest` for what is not text."""
        if self._json is not None:
            ids: list[int] = self._json.encode(checked(text)).ids
        else:
            ids = self._model.encode(checked(text), out_type=int)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without a space at its start; pieces of no text are left out."""
        text: str = (self._json or self._model).decode(list(ids))
        return text

    def begins(self, token: int) -> bool:
        """Whether a piece begins a word."""
        if self._json is not None:
            piece: str = self._json.id_to_token(token) or ""
        else:
            piece = self._model.id_to_piece(token)
        return piece.startswith(SPACE)


def _from_json(data: bytes, path: Path) -> Any:
    from tokenizers import Tokenizer as Reader

    try:
        return Reader.from_str(data.decode("utf-8"))
    except Exception as error:  # the library raises nothing more exact
        raise BadWeights(f"{path} is no tokenizer.json: {error}") from None


def _from_model(data: bytes, path: Path) -> Any:
    from sentencepiece import SentencePieceProcessor

    found = SentencePieceProcessor()
    try:
        # An empty message parses as a model of nothing, which the library then falls over.
        if not data or not found.LoadFromSerializedProto(data):
            raise RuntimeError("it has no pieces")
    except RuntimeError as error:
        raise BadWeights(f"{path} is no SentencePiece model: {error}") from None
    return found
