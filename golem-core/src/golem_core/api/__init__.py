"""Golem from Python: `load` a model, then generate, chat, tokenise, close.

    import golem_core

    with golem_core.load("SmolLM2-135M-Instruct.Q4_1.gguf") as model:
        for piece in model.chat("Why is the sky blue?", max_tokens=100):
            print(piece, end="", flush=True)

`load_speaker` gives a `golem_core.Speaking`, `load_embedder` a `golem_core.Embedding`.
"""

from golem_core.api.answer import Answer, Completion
from golem_core.api.language import GenerateOptions, LanguageModel, Message
from golem_core.api.loading import load, load_embedder, load_speaker, open_generator

__all__ = [
    "Answer",
    "Completion",
    "GenerateOptions",
    "LanguageModel",
    "Message",
    "load",
    "load_embedder",
    "load_speaker",
    "open_generator",
]
