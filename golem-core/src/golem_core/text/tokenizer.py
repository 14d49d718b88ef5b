"""Text to token ids and back, as the file of a model says.

    text ─ special tokens found ─ what is between them ─ BPE of its kind, or SentencePiece ─ ids

A token that steers a model (the end of a turn, the beginning of a text) is found only in text that
is trusted: what a template wrote, never what a person or a tool did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from golem_core.errors import BadRequest, BadWeights, Unsupported
from golem_core.text import utf8
from golem_core.text.bytelevel import ByteLevel
from golem_core.text.characters import CharacterMerges
from golem_core.text.specials import Special, Specials
from golem_core.text.spm import ScoredPieces
from golem_core.text.vocabulary import HasMetadata, Kind, Vocabulary


class Tokenizer:
    """The tokenizer of one file. It has no state: threads may share it.

    `bos` and `eos` are ids or None; `add_bos` and `add_eos` say whether a text begins or ends with
    them; `end_ids` are the ids that end an answer.
    """

    def __init__(self, metadata: Mapping[str, object]) -> None:
        vocabulary = Vocabulary.from_metadata(metadata)
        self._vocabulary = vocabulary
        self._model: ByteLevel | CharacterMerges | ScoredPieces
        if vocabulary.model == "llama":
            adds_space = _flag(metadata, "tokenizer.ggml.add_space_prefix", True)
            self._model = ScoredPieces(vocabulary, adds_space)
        elif vocabulary.model == "gpt2":
            self._model = ByteLevel(vocabulary, metadata)
        elif vocabulary.model == "gemma4":
            self._model = CharacterMerges(vocabulary, metadata)
        else:
            raise Unsupported(
                f"the file's tokenizer (tokenizer.ggml.model) is {vocabulary.model!r}; golem has "
                f"'gpt2' (byte-level BPE), 'llama' (SentencePiece BPE with scores) and 'gemma4' "
                f"(character-level BPE)"
            )
        self.bos = vocabulary.special_ids.get("bos")
        self.eos = vocabulary.special_ids.get("eos")
        adds_bos = _flag(metadata, "tokenizer.ggml.add_bos_token", self._model.adds_bos)
        # The first files of Gemma 4 said false, and the model is lost without it.
        adds_bos = adds_bos or vocabulary.model == "gemma4"
        self.add_bos = self.bos is not None and adds_bos
        self.add_eos = self.eos is not None and _flag(
            metadata, "tokenizer.ggml.add_eos_token", False
        )
        self.end_ids = vocabulary.end_ids
        self._specials = _specials(vocabulary, str(metadata.get("general.name", "")))

    @classmethod
    def from_weights(cls, weights: HasMetadata) -> Tokenizer:
        """The tokenizer that a file carries.

        Raises Unsupported for one that golem does not have, by its name, and BadWeights for one
        that is damaged.
        """
        return cls(weights.metadata)

    def __len__(self) -> int:
        return len(self._vocabulary)

    def prepare(self) -> None:
        """Gets ready for long texts, which `encode` otherwise does when they come.

        Up to a second for 262,144 tokens, in which no other thread of Python runs: for a server,
        before it answers anybody.
        """
        self._model.prepare()

    def encode(
        self, text: str, *, special: bool = False, bos: bool = False, eos: bool = False
    ) -> list[int]:
        """The ids of a text.

        special=False: the text is somebody's, and no control token comes of it. special=True: the
        text of a control token is that token. `bos` and `eos` begin and end it as the file says
        (`add_bos`, `add_eos`), and never twice. Raises BadRequest for a text that UTF-8 cannot
        hold.
        """
        return self.encode_marked([(text, special)], bos=bos, eos=eos)

    def encode_marked(
        self, pieces: Iterable[tuple[str, bool]], *, bos: bool = False, eos: bool = False
    ) -> list[int]:
        """The ids of (text, trusted) pieces, such as a rendered template.

        Control tokens are found in trusted pieces only; otherwise the pieces are one text, so that
        words are cut where they would be without the marks. `bos` and `eos` as in `encode`: a
        template that writes its own beginning gets no second one.
        """
        text, trusted = _joined(pieces)
        ids: list[int] = []
        after_special = True
        for part in self._specials.split(text, trusted):
            if isinstance(part, int):
                ids.append(part)
                after_special = True
            else:
                spaced = self._model.adds_space and after_special
                ids += self._model.encode(" " + part if spaced else part)
                after_special = False
        if bos and self.add_bos and self.bos is not None and ids[:1] != [self.bos]:
            ids.insert(0, self.bos)
        if eos and self.add_eos and self.eos is not None and ids[-1:] != [self.eos]:
            ids.append(self.eos)
        return ids

    def decode(self, ids: Sequence[int], *, special: bool = True) -> str:
        """The text of ids; a byte that belongs to no character becomes U+FFFD.

        special=False leaves control tokens out. The spaces that `encode` puts where a text begins
        are taken away again.
        """
        data = []
        after_special = True
        for token in ids:
            piece = self.piece(token)
            if self._kind(token) in (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED):
                after_special = True
                if not special and self.is_control(token):
                    continue
            else:
                if after_special and self._model.adds_space:
                    piece = piece.removeprefix(b" ")
                after_special = False
            data.append(piece)
        return utf8.decode(b"".join(data))

    def piece(self, token: int) -> bytes:
        """The bytes of one token: a character may be spread over several. Unused tokens have none.

        Raises BadRequest for an id that the vocabulary does not have.
        """
        kind = self._kind(token)
        text = self._vocabulary.texts[token]
        if kind == Kind.NORMAL:
            return self._model.piece(text)
        if kind == Kind.BYTE:
            return _byte(token, text)
        if kind in (Kind.UNUSED, Kind.UNDEFINED):
            return b""
        return text.encode()

    def is_control(self, token: int) -> bool:
        """Whether a token steers the model and is no part of the text; BadRequest as `piece`."""
        return self._kind(token) in (Kind.CONTROL, Kind.UNKNOWN)

    def token_id(self, text: str) -> int | None:
        """The id of the token with this text, as the file writes it, or None."""
        return self._vocabulary.texts.find(text)

    def special_id(self, text: str) -> int | None:
        """The id of the token that is matched as this whole text, or None; see `Specials`."""
        token = self.token_id(text)
        special = (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED)
        return token if token is not None and self._kind(token) in special else None

    def token_text(self, token: int) -> str:
        """A token's text as the file writes it; BadRequest as `piece`."""
        self._kind(token)
        return self._vocabulary.texts[token]

    def _kind(self, token: int) -> int:
        if not 0 <= token < len(self._vocabulary):
            raise BadRequest(
                f"there is no token {token}; the vocabulary has ids 0 to {len(self) - 1}"
            )
        return int(self._vocabulary.kinds[token])


def _flag(metadata: Mapping[str, object], key: str, default: bool) -> bool:
    value = metadata.get(key, default)
    if not isinstance(value, bool):
        raise BadWeights(f"{key} is {value!r}; expected true or false")
    return value


def _specials(vocabulary: Vocabulary, name: str) -> Specials:
    guarded = (Kind.CONTROL, Kind.UNKNOWN)
    kinds = vocabulary.kinds
    places = ((kinds >= Kind.UNKNOWN) & (kinds <= Kind.USER_DEFINED)).nonzero()[0].tolist()
    tokens = [
        Special(vocabulary.texts[i], i, int(kinds[i]) in guarded or i in vocabulary.marker_ids)
        for i in places
    ]
    strips: frozenset[int] = frozenset()
    # Phi-3's tokenizer drops white space after its tokens, which no key of the file tells.
    if any(word in name.lower() for word in ("phi-3", "phi3")):
        keep = {vocabulary.texts.find(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
        strips = frozenset(i for i in places if i not in keep)
    return Specials(tokens, strips)


def _joined(pieces: Iterable[tuple[str, bool]]) -> tuple[str, list[tuple[int, int]]]:
    """One text and its trusted ranges; trusted pieces that touch are one range."""
    texts = []
    ranges: list[tuple[int, int]] = []
    at = 0
    for text, trusted in pieces:
        if trusted and text:
            if ranges and ranges[-1][1] == at:
                ranges[-1] = (ranges[-1][0], at + len(text))
            else:
                ranges.append((at, at + len(text)))
        texts.append(text)
        at += len(text)
    joined = "".join(texts)
    try:
        joined.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"character {error.start} of the text is half of a surrogate pair "
            f"(U+{ord(joined[error.start]):04X}); expected whole characters"
        ) from None
    return joined, ranges


def _byte(token: int, text: str) -> bytes:
    try:
        return bytes.fromhex(text[3:5]) if text.startswith("<0x") else text.encode("latin-1")
    except ValueError:
        raise BadWeights(f"token {token} is {text!r}; expected a byte such as <0x0A>") from None
