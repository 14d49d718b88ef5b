"""Golem runs language models on your own machine. `load` a model and ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golem_core.errors import (
    BadRequest,
    BadWeights,
    ContextFull,
    DeviceError,
    GolemError,
    NoMemory,
    NotFound,
    PassFailed,
    PluginConflict,
    UnknownArchitecture,
    Unsupported,
)

if TYPE_CHECKING:
    from golem_core.api import Answer, Completion, LanguageModel, load, load_embedder, load_speaker
    from golem_core.embedding import Embedded, Embedding, Ranked, TokenVectors
    from golem_core.speech import Delivery, Speaking, Speech, Voice
    from golem_core.text import Call, CallBegun, CallBroken, CallDone, Content, Thought

__all__ = [
    "Answer",
    "BadRequest",
    "BadWeights",
    "Call",
    "CallBegun",
    "CallBroken",
    "CallDone",
    "Completion",
    "Content",
    "ContextFull",
    "Delivery",
    "DeviceError",
    "Embedded",
    "Embedding",
    "GolemError",
    "LanguageModel",
    "NoMemory",
    "NotFound",
    "PassFailed",
    "PluginConflict",
    "Ranked",
    "Speaking",
    "Speech",
    "Thought",
    "TokenVectors",
    "UnknownArchitecture",
    "Unsupported",
    "Voice",
    "load",
    "load_embedder",
    "load_speaker",
]

_API = ("Answer", "Completion", "LanguageModel", "load", "load_embedder", "load_speaker")
_EMBEDDING = ("Embedded", "Embedding", "Ranked", "TokenVectors")
_SPEECH = ("Delivery", "Speaking", "Speech", "Voice")
_TEXT = ("Call", "CallBegun", "CallBroken", "CallDone", "Content", "Thought")

if not TYPE_CHECKING:  # a checker would take every unknown name for one that is found here

    def __getattr__(name: str) -> object:
        """What stands elsewhere, imported when first asked for: the command line starts here."""
        if name in _API:
            from golem_core import api

            return getattr(api, name)
        if name in _EMBEDDING:
            from golem_core import embedding

            return getattr(embedding, name)
        if name in _SPEECH:
            from golem_core import speech

            return getattr(speech, name)
        if name in _TEXT:
            from golem_core import text

            return getattr(text, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
