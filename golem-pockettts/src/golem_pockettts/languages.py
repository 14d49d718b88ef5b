"""How texts of a language are made ready for the published models of it.

Characters that a model never saw in training have embeddings that mean nothing, so each language
has a table of what to put in their place. A yaml beside the weights says so by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class TextRules:
    """How a text is made ready; see the makers' configuration.

    tokenizer  the file of the vocabulary, beside the weights; None if there is none
    rest       frames after the end, None: by the number of words
    """

    tokenizer: Path | None = None
    replace: Mapping[str, str] = field(default_factory=dict)
    pad_short: bool = False
    no_semicolons: bool = False
    terminal: bool = True
    capitalise: bool = True
    rest: int | None = None


_CURLY = {"’": "'", "‘": "'"}
_DELETED = dict.fromkeys('"“”„«»()[]', "")
_DASH = {"–": ","}
_LONG = {"—": ","}

# What is replaced, and whether semicolons become commas.
LANGUAGES: Mapping[str, tuple[Mapping[str, str], bool]] = {
    "dutch": (_DELETED | _CURLY | _DASH, False),
    "english": (_CURLY, False),
    "french": (_DELETED | _CURLY | _DASH | {":": ","}, True),
    "german": (_DELETED | _CURLY | _DASH | _LONG, True),
    "italian": (_DELETED | _CURLY | _DASH, False),
    "portuguese": (_DELETED | _CURLY | _DASH, False),
    "spanish": (_DELETED | _CURLY | _DASH | {"¡": "", "¿": ""}, False),
}
# Who speaks where nobody says; Alba, where a language has nobody of its own.
DEFAULT_VOICES = {
    "dutch": "daan",
    "french": "estelle",
    "german": "juergen",
    "italian": "giovanni",
    "portuguese": "rafael",
    "spanish": "lola",
}
SMALL = ("english_2m", "english_7m", "english_18m")


def published_rules(folder: str, tokenizer: Path | None) -> TextRules:
    """The rules of a published model by its folder's name; English where that says nothing."""
    replace, no_semicolons = LANGUAGES.get(folder.split("_")[0], LANGUAGES["english"])
    if folder.startswith(SMALL):
        replace = {**replace, **_DASH, **_LONG}
    return TextRules(
        tokenizer, replace, no_semicolons=no_semicolons, pad_short=folder == "english_2026-01"
    )


def default_voice(folder: str) -> str:
    """The usual voice of a published model by its folder's name."""
    return DEFAULT_VOICES.get(folder.split("_")[0], "alba")
