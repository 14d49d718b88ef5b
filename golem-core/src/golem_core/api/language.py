"""A language model that is loaded and answers.

Everything runs on the engine that a server uses; a `LanguageModel` may be asked from several
threads, and answers that are drawn at the same time share its passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from golem_core.api.answer import Answer, Completion
from golem_core.closing import Closing
from golem_core.errors import Unsupported

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Unpack

    from golem_core.engine import Engine
    from golem_core.model import Generator
    from golem_core.text import AnswerReader, ChatFormat, Template, Tokenizer, Tools
    from golem_core.weights import Weights

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


class LanguageModel(Closing):
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
