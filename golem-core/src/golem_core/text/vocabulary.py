"""What a file says of its tokens: texts, kinds, scores, and which of them begin and end a text.

The keys are GGUF's ``tokenizer.ggml.*``. Which tokens end an answer follows llama.cpp's rule: the
ids that the file names, and the texts below wherever they stand in the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from golem_core.errors import BadWeights, Unsupported
from golem_core.weights import StringArray, Strings


class Kind(IntEnum):
    """The kind of a token, numbered as in ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class HasMetadata(Protocol):
    """Weights, as far as text needs them: the mapping of a file's keys to values."""

    @property
    def metadata(self) -> Mapping[str, object]:
        """Keys to scalars, numeric arrays and sequences of strings."""


# Each list is in order of preference: the first that a vocabulary holds is taken, unless the file
# names an id. `pad`, `repo` and `separator` are those of fill-in-the-middle.
_BY_TEXT = {
    "eot": (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
        "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
        "<|code_prefix|>", "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
        "<|code_suffix|>", "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
        "<|code_middle|>", "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip

_OLD_KEYS = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}

_END_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip

# Always shown, so they count as user-defined whatever the file says.
_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")

# Converters mark these as user-defined, which would let anybody who types one open a picture or a
# sound. They are control tokens here: only a template writes them.
_MEDIA = (
    "<start_of_image>", "<end_of_image>", "<image_soft_token>", "[multimodal]",
    "<start_of_audio>", "<end_of_audio>", "<audio_soft_token>",
)  # fmt: skip

# These are user-defined too, so that an answer shows where a thought or a call begins. They are
# shown, but like control tokens they come of a template's text only.
_MARKERS = (
    "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
    "<tool_response|>", '<|"|>',
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
)  # fmt: skip


@dataclass(frozen=True)
class Vocabulary:
    """A file's tokens. Ids are positions in `texts`; `kinds` is uint8 [size], one `Kind` each.

    `scores` is float32 [size], or None. `special_ids` has the names of `tokenizer.ggml.*_token_id`
    as keys (``bos``, ``eos``, ``unknown``, ...); a name that the file leaves out is absent.
    `marker_ids` are tokens that are part of an answer and yet no part of anybody's text.
    """

    model: str
    pre: str
    texts: Strings
    kinds: npt.NDArray[np.uint8]
    scores: npt.NDArray[np.float32] | None
    special_ids: Mapping[str, int]
    end_ids: frozenset[int]
    marker_ids: frozenset[int]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Vocabulary:
        """Reads and checks the tokens; raises BadWeights or Unsupported naming the key."""
        model = metadata.get("tokenizer.ggml.model")
        if not isinstance(model, str):
            raise Unsupported(
                "the file has no tokenizer (no key tokenizer.ggml.model); golem reads the one that "
                "GGUF files carry"
            )
        texts = string_array(metadata, "tokenizer.ggml.tokens").held()
        size = len(texts)
        kinds = _array(metadata, "tokenizer.ggml.token_type", size)
        codes = np.full(size, Kind.NORMAL, np.uint8)
        if kinds is not None:
            numbers = kinds.astype(np.int64)
            known = (numbers >= Kind.UNDEFINED) & (numbers <= Kind.BYTE)
            codes = np.where(known, numbers, Kind.UNDEFINED).astype(np.uint8)
        scores = _array(metadata, "tokenizer.ggml.scores", size)
        if texts.repeated >= 0 or texts.find("") is not None:
            texts = _without_empty(texts)
        special = _special_ids(metadata, model, size)
        _find_by_text(special, texts, codes)
        return cls(
            model=model,
            pre=str(metadata.get("tokenizer.ggml.pre", "")),
            texts=texts,
            kinds=codes,
            scores=None if scores is None else scores.astype(np.float32),
            end_ids=_end_ids(special, texts, codes),
            special_ids=special,
            marker_ids=frozenset(_found(texts, _MARKERS)),
        )

    def __len__(self) -> int:
        return len(self.texts)


def string_array(metadata: Mapping[str, object], key: str) -> StringArray:
    """The strings of a key; raises BadWeights for one that is absent, empty or no strings."""
    value = metadata.get(key)
    if value is None:
        raise BadWeights(f"the file has a tokenizer but no key {key}; convert it again")
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise BadWeights(f"{key} is {type(value).__name__}; expected an array of strings")
    if not len(value):
        raise BadWeights(f"{key} is empty; convert the file again")
    if isinstance(value, StringArray):
        return value
    other = next((each for each in value if not isinstance(each, str)), None)
    if other is not None:
        raise BadWeights(f"{key} holds {type(other).__name__}; expected strings")
    return StringArray.of(value, key)


def _array(metadata: Mapping[str, object], key: str, size: int) -> npt.NDArray[Any] | None:
    value = metadata.get(key)
    if value is None:
        return None
    array: npt.NDArray[Any] = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "iuf" or len(array) < size:
        raise BadWeights(
            f"{key} has shape {array.shape} and type {array.dtype}; expected {size} numbers, one "
            f"a token"
        )
    return array[:size]


def _without_empty(texts: Strings) -> Strings:
    """Names empty tokens, which no text can produce; any other repetition is an error."""
    named = [texts[i] or f"[EMPTY_{i}]" for i in range(len(texts))]
    held = StringArray.of(named, "tokenizer.ggml.tokens").held()
    if held.repeated >= 0:
        text = named[held.repeated]
        raise BadWeights(
            f"tokenizer.ggml.tokens has {text!r} twice, as {named.index(text)} and as "
            f"{held.repeated}; every token's text must be its own"
        )
    return held


def _found(texts: Strings, wanted: Iterable[str]) -> list[int]:
    """The ids of those that are there."""
    return [i for i in map(texts.find, wanted) if i is not None]


def _special_ids(metadata: Mapping[str, object], model: str, size: int) -> dict[str, int]:
    found = {"bos": 1, "eos": 2, "unknown": 0} if model == "llama" else {}
    found = {name: i for name, i in found.items() if i < size}
    names = ("bos", "eos", "unknown", "padding", "seperator", "mask", *_BY_TEXT)
    for name in names:
        keys = [f"tokenizer.ggml.{name}_token_id"]
        if name in _OLD_KEYS:
            keys.append(f"tokenizer.ggml.{_OLD_KEYS[name]}_token_id")
        for key in keys:
            value = metadata.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise BadWeights(f"{key} is {value!r}; expected a token's id")
            if not 0 <= value < size:
                raise BadWeights(f"{key} is {value}; the vocabulary has ids 0 to {size - 1}")
            found[name] = int(value)
    return found


def _find_by_text(special: dict[str, int], texts: Strings, codes: npt.NDArray[np.uint8]) -> None:
    """Fills in what the file does not name, and marks what is found as control."""
    for name, candidates in _BY_TEXT.items():
        if name not in special:
            found = _found(texts, candidates)
            if found:
                special[name] = found[0]
                codes[found[0]] = Kind.CONTROL
    for token in _found(texts, _MEDIA):
        if codes[token] == Kind.USER_DEFINED:
            codes[token] = Kind.CONTROL


def _end_ids(
    special: Mapping[str, int], texts: Strings, codes: npt.NDArray[np.uint8]
) -> frozenset[int]:
    ends = {special[name] for name in ("fim_pad", "fim_rep", "fim_sep") if name in special}
    named = _found(texts, _END_TEXTS)
    ends.update(named)
    codes[named] = Kind.CONTROL
    codes[_found(texts, _SHOWN)] = Kind.USER_DEFINED
    ends |= {special[name] for name in ("eos", "eot", "eom") if name in special}

    def holds(text: str) -> bool:
        return texts.find(text) in ends

    def spare(text: str, kind: Kind) -> None:
        for token in _found(texts, [text]):
            ends.discard(token)
            codes[token] = kind

    # A vocabulary with <|return|> and <|call|> ends its messages with <|end|>, not its answers.
    called = holds("<|call|>") or holds("<|calls|>")
    if holds("<|end|>") and called and (holds("<|return|>") or holds("<|flush|>")):
        spare("<|end|>", Kind.USER_DEFINED)
    # Where these are, </s> is a normal token.
    if holds("</s>") and (holds("<|tool_response>") or holds("<|plamo:eos|>")):
        spare("</s>", Kind.NORMAL)
    return frozenset(ends)
