"""Text to token ids, as the checkpoint says: its tokenizer.json, or the files that stand for one.

    tokenizer.json                          as it is
    vocab.txt                               WordPiece, as BERT
    vocab.json and merges.txt               byte-level BPE, as RoBERTa
    sentencepiece.bpe.model                 Unigram with the ids of fairseq, as XLM-RoBERTa
    GGUF's tokenizer.ggml.*                 WordPiece, Unigram, or what golem_core.text reads

The ids are those of Hugging Face's tokenizers, whose library does the work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from golem_core.errors import BadRequest, BadWeights, NotFound, Unsupported
from golem_core.weights import Weights


class Ids(Protocol):
    """Who makes ids of texts, or of pairs of texts; nothing is cut or padded."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, with those that begin and end it."""

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """The ids of each pair as a cross-encoder reads them, and which text each is of."""


class Fast:
    """A tokenizer of the library `tokenizers`."""

    def __init__(self, inner: Tokenizer) -> None:
        inner.no_padding()
        inner.no_truncation()
        self.inner = inner

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Ids.encode`."""
        _check(texts)
        if len(texts) == 1:
            return [self.inner.encode(texts[0]).ids]
        return [made.ids for made in self.inner.encode_batch_fast(list(texts))]

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """See `Ids.pairs`."""
        for pair in pairs:
            _check(pair)
        return [(made.ids, made.type_ids) for made in self.inner.encode_batch(list(pairs))]

    def sizes(self) -> int:
        """Tokens of the vocabulary, added ones included."""
        return int(self.inner.get_vocab_size(with_added_tokens=True))


class Own:
    """The tokenizer of golem's own, for what GGUF files of language models carry."""

    def __init__(self, weights: Weights) -> None:
        from golem_core.text import Tokenizer as Text

        self.inner = Text.from_weights(weights)
        self._between: tuple[int, ...] = ()
        if weights.metadata.get("tokenizer.ggml.add_sep_token") is True:
            self._between = (_id(weights, "separator", _id(weights, "seperator", 0)),)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Ids.encode`. Control tokens in a text are found, as Hugging Face's tokenizers do."""
        return [self.inner.encode(text, special=True, bos=True, eos=True) for text in texts]

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """See `Ids.pairs`. The first begins and ends as a text does, the second only ends so."""
        made = []
        for query, document in pairs:
            first = [*self.inner.encode(query, special=True, bos=True, eos=True), *self._between]
            second = self.inner.encode(document, special=True, eos=True)
            made.append((first + second, [0] * len(first) + [1] * len(second)))
        return made


def _check(texts: Sequence[str]) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadRequest(f"a text cannot be UTF-8: {error.reason} at {error.start}") from None


def from_weights(weights: Weights) -> Ids:
    """The tokenizer of a checkpoint. Raises NotFound, BadWeights and Unsupported."""
    if weights.container == "gguf":
        return _of_gguf(weights)
    folder = weights.path if weights.path.is_dir() else weights.path.parent
    settings = _settings(folder)
    try:
        if (folder / "tokenizer.json").is_file():
            return Fast(Tokenizer.from_file(str(folder / "tokenizer.json")))
        if (folder / "vocab.txt").is_file():
            return Fast(_wordpiece(folder, settings, weights.architecture))
        if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            return Fast(_roberta(folder))
    except NotFound:
        raise
    except Exception as error:  # the library raises Exception itself
        raise BadWeights(f"the tokenizer of {folder} cannot be read: {error}") from None
    for name in ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model"):
        if (folder / name).is_file():
            return Fast(_sentencepiece(folder / name))
    raise NotFound(
        f"{folder} has no tokenizer: none of tokenizer.json, vocab.txt, vocab.json with "
        "merges.txt, sentencepiece.bpe.model"
    )


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadWeights(f"{path} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}


def _text_of(settings: Mapping[str, Any], key: str, usual: str) -> str:
    """A special token, written as a text or as an object with one."""
    value = settings.get(key, usual)
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else usual


def _framed(
    begin: tuple[str, int], end: tuple[str, int], two: bool
) -> processors.TemplateProcessing:
    """What begins and ends a text; between those of a pair stands the end, for RoBERTa twice."""
    (first, _), (last, _) = begin, end
    between = f"{last} {last}" if two else last
    kind = "0" if two else "1"
    return processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {between} $B:{kind} {last}:{kind}",
        special_tokens=[begin, end],
    )


def _wordpiece(folder: Path, settings: Mapping[str, Any], architecture: str) -> Tokenizer:
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    lines = lines[:-1] if not lines[-1] else lines
    vocab = {line.rstrip("\r"): i for i, line in enumerate(lines)}
    mpnet = architecture == "mpnet"
    begin = _text_of(settings, "cls_token", "<s>" if mpnet else "[CLS]")
    end = _text_of(settings, "sep_token", "</s>" if mpnet else "[SEP]")
    unknown = _text_of(settings, "unk_token", "[UNK]")
    for token in (begin, end, unknown):
        if token not in vocab:
            raise BadWeights(f"{folder / 'vocab.txt'} has no {token}")
    made = Tokenizer(models.WordPiece(vocab, unk_token=unknown, max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
        lowercase=bool(settings.get("do_lower_case", True)),
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = _framed((begin, vocab[begin]), (end, vocab[end]), mpnet)
    special = {
        _text_of(settings, key, usual)
        for key, usual in (
            ("cls_token", begin),
            ("sep_token", end),
            ("unk_token", unknown),
            ("pad_token", "<pad>" if mpnet else "[PAD]"),
            ("mask_token", "<mask>" if mpnet else "[MASK]"),
        )
    }
    made.add_special_tokens(sorted(token for token in special if token in vocab))
    return made


def _roberta(folder: Path) -> Tokenizer:
    made = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    begin, end = made.token_to_id("<s>"), made.token_to_id("</s>")
    if begin is None or end is None:
        raise BadWeights(f"{folder / 'vocab.json'} has no <s> or no </s>")
    made.post_processor = processors.RobertaProcessing(
        ("</s>", end), ("<s>", begin), trim_offsets=True, add_prefix_space=False
    )
    plain = [t for t in ("<s>", "<pad>", "</s>", "<unk>") if made.token_to_id(t) is not None]
    made.add_special_tokens(plain)
    if made.token_to_id("<mask>") is not None:
        made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return made


def _sentencepiece(path: Path) -> Tokenizer:
    """XLM-RoBERTa's: <s>, <pad>, </s> and <unk> are 0 to 3, other pieces one above their own."""
    try:
        from sentencepiece import sentencepiece_model_pb2 as proto_of
    except ImportError:
        raise Unsupported(
            f"{path} is read with the packages sentencepiece and protobuf: install them, or "
            "put a tokenizer.json beside it"
        ) from None
    proto: Any = proto_of.ModelProto.FromString(path.read_bytes())  # type: ignore[attr-defined]
    if proto.trainer_spec.model_type != 1:
        raise Unsupported(f"{path} is no Unigram model")
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    vocab = [
        ("<s>", 0.0),
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        *pieces[3:],
        ("<mask>", 0.0),
    ]
    return _unigram(vocab, bytes(proto.normalizer_spec.precompiled_charsmap))


def _unigram(vocab: list[tuple[str, float]], charsmap: bytes) -> Tokenizer:
    made = Tokenizer(models.Unigram(vocab, unk_id=3))
    steps = [normalizers.Precompiled(charsmap)] if charsmap else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    ids = {piece: i for i, (piece, _) in enumerate(vocab)}
    made.post_processor = _framed(("<s>", ids["<s>"]), ("</s>", ids["</s>"]), True)
    made.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    if "<mask>" in ids:
        made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return made


def _of_gguf(weights: Weights) -> Ids:
    model = weights.metadata.get("tokenizer.ggml.model")
    if model in ("gpt2", "llama"):
        return Own(weights)
    if model == "bert":
        return Fast(_gguf_wordpiece(weights))
    if model == "t5":
        return Fast(_gguf_unigram(weights))
    raise Unsupported(
        f"tokenizer.ggml.model is {model!r}; golem_embed reads bert, t5, gpt2 and llama "
        f"({weights.path})"
    )


def _tokens(weights: Weights) -> list[str]:
    tokens = weights.metadata.get("tokenizer.ggml.tokens")
    if tokens is None or isinstance(tokens, (str, int, float)):
        raise BadWeights(f"tokenizer.ggml.tokens is missing ({weights.path})")
    return [str(token) for token in tokens]  # type: ignore[attr-defined]


def _id(weights: Weights, key: str, usual: int) -> int:
    value = weights.metadata.get(f"tokenizer.ggml.{key}_token_id", usual)
    return value if isinstance(value, int) else usual


def _gguf_wordpiece(weights: Weights) -> Tokenizer:
    """llama.cpp writes a word's beginning with U+2581, and what goes on without the ``##``."""
    texts = _tokens(weights)
    kinds = np.asarray(weights.metadata.get("tokenizer.ggml.token_type", np.ones(len(texts))))
    vocab: dict[str, int] = {}
    special = []
    for i, text in enumerate(texts):
        if kinds[i] in (2, 3) or (text.startswith("[") and text.endswith("]") and len(text) > 2):
            word = text.removeprefix("▁")
            special.append(word)
        elif text.startswith("▁"):
            word = text[1:]
        else:
            word = "##" + text
        vocab.setdefault(word, i)
    begin, end = _id(weights, "cls", _id(weights, "bos", 101)), _id(weights, "seperator", 102)
    end = _id(weights, "separator", _id(weights, "eos", end))
    unknown = texts[_id(weights, "unknown", 100)].removeprefix("▁")
    made = Tokenizer(models.WordPiece(vocab, unk_token=unknown, max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = [texts[i].removeprefix("▁") for i in (begin, end)]
    made.post_processor = _framed((names[0], begin), (names[1], end), False)
    made.add_special_tokens([word for word in special if word])
    return made


def _gguf_unigram(weights: Weights) -> Tokenizer:
    texts = _tokens(weights)
    scores = np.asarray(weights.metadata.get("tokenizer.ggml.scores"), np.float64)
    if scores.shape != (len(texts),):
        raise BadWeights(f"tokenizer.ggml.scores does not fit the tokens ({weights.path})")
    charsmap = weights.metadata.get("tokenizer.ggml.precompiled_charsmap")
    data = b"" if charsmap is None else np.asarray(charsmap).astype(np.uint8).tobytes()
    return _unigram([(text, float(score)) for text, score in zip(texts, scores, strict=True)], data)
