"""How a text is cut into words before byte pairs are merged, by the names that files use.

Each name (``tokenizer.ggml.pre``) stands for expressions applied one after the other: every match,
and everything between matches, is a piece of its own. They are those of the models' own tokenizers,
under the names that llama.cpp gave them.
"""

from __future__ import annotations

from dataclasses import dataclass

from golem_core.errors import Unsupported

# A contraction, a run of letters or digits or of anything else with the space before it, white
# space but for the one that belongs to the next word.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"

_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class PreTokenizer:
    """One row: the expressions, and what else comes with the name.

    `whole_words`: a word that is a token is that token, whatever its merges would make of it.
    `composes`: the text is brought to Unicode's composed form (NFC) first, as the model's own
    tokenizer does. `adds_bos`: the default where a file does not say.
    """

    expressions: tuple[str, ...]
    whole_words: bool = False
    composes: bool = False
    adds_bos: bool = False


_LLAMA3 = PreTokenizer(
    (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}",
    ),
    whole_words=True,
    adds_bos=True,
)

PRETOKENIZERS = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer((_GPT2,)),
    "modern-bert": PreTokenizer((_GPT2,), composes=True),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": PreTokenizer(
        (
            rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}",
        ),
        composes=True,
    ),
    "qwen35": PreTokenizer(
        (
            rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
        ),
    ),
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
}


def find(name: str) -> PreTokenizer:
    """The row of a name; raises Unsupported for one that golem does not know."""
    try:
        return PRETOKENIZERS[name]
    except KeyError:
        raise Unsupported(
            f"the file's pre-tokenizer (tokenizer.ggml.pre) is {name!r}; golem knows "
            f"{', '.join(sorted(PRETOKENIZERS))}"
        ) from None
