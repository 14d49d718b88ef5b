"""The neutral request: what every API translates to, and what becomes engine requests.

    body ─ a route reads its fields ─ Ask ─ prepare: template, ids, reader, mask ─ Requests

An `Ask` is either a conversation (`messages`) or texts to continue (`prompts`). `prepare` renders,
tokenises and compiles, which may take long for a long prompt or a large grammar, so it belongs on a
thread of its own; `Run` puts it there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from golem_core import LanguageModel
from golem_core.engine import Request
from golem_core.errors import BadRequest, GolemError
from golem_core.sampling import Mask, Sampling
from golem_core.text import AnswerReader, ChatFormat, check_stops
from golem_server.errors import ApiError, from_exception
from golem_server.models import Served
from golem_server.parse import invalid
from golem_server.readers import OneCall

__all__ = ["MOST_CHOICES", "Ask", "Constraint"]

MOST_CHOICES = 128  # the clients refuse answers with more

# Parts of a message by what they are to a person; the names are those of all the APIs.
_SEEN = ("image", "image_url", "input_image")
_HEARD = ("input_audio", "audio", "audio_url")
_SAID = ("text", "input_text", "output_text")


@dataclass(frozen=True)
class Constraint:
    """What an answer must be.

    kind    the language of `source`
    source  a JSON Schema, or the text of a grammar; empty for ``json_object``
    param   the part of the request that asked for it
    """

    kind: Literal["json_schema", "json_object", "gbnf", "lark", "regex"]
    source: Any
    param: str


@dataclass(frozen=True)
class Ask:
    """One request, in whatever API it came.

    messages      a conversation to answer; None: `prompts` are to be continued
    prompts       texts or token ids, each continued `n` times
    special       whether control tokens written out in a prompt's text are those tokens
    tools         what may be called, in OpenAI's form
    tool_choice   ``auto``, ``none``, ``required``, or ``named`` with `tool`
    tool          the name of the tool that must be called
    parallel      whether an answer may have several calls
    sampling      fields of `golem_core.sampling.Sampling`; None or absent: as the file recommends
    stop          texts that end the answer and are no part of it
    n             answers to each prompt; those after the first have the seeds after the first's
    max_tokens    the most tokens of an answer; None: what the context has room for
    logprobs      give each token's logarithmic probability, and those of so many of the likeliest
    constraint    what the answer must be
    thinking      whether it thinks before it answers, if it can; None: as its template does
    variables     further variables of the template
    ignore_eos    draw on where the model would end
    cache_prompt  whether what is known of a prompt's beginning may be used and kept
    names         what the API calls a field of this class or of `sampling`, where it differs
    """

    messages: Sequence[Mapping[str, Any]] | None = None
    prompts: Sequence[str | Sequence[int]] = ()
    special: bool = True
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: Literal["auto", "none", "required", "named"] = "auto"
    tool: str | None = None
    parallel: bool = True
    sampling: Mapping[str, Any] = field(default_factory=dict)
    stop: Sequence[str] | str | None = None
    n: int = 1
    max_tokens: int | None = None
    logprobs: int | None = None
    constraint: Constraint | None = None
    thinking: bool | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    ignore_eos: bool = False
    cache_prompt: bool = True
    names: Mapping[str, str] = field(default_factory=dict)

    def prepare(self, served: Served) -> list[Request]:
        """What the engine is asked: `n` requests for each prompt, in the order of the choices.

        Takes as long as a template and a tokenizer do. Raises `ApiError` naming the parameter.
        """
        try:
            return self._requests(served.model, served.most_tokens(self.max_tokens))
        except ApiError:
            raise
        except GolemError as error:
            raise self.error(error) from None

    def error(self, error: BaseException) -> ApiError:
        """What was raised for this request, by the names that its API has for the fields."""
        told = from_exception(error)
        if told.param is None and isinstance(error, BadRequest):
            told.param = "prompt"  # the tokenizer knows no name for what it is given
        if told.param is None:
            return told
        api = {"prompt": "prompt" if self.messages is None else "messages", **self.names}
        param = api.get(told.param, told.param)
        if isinstance(error, BadRequest) and told.message.startswith(told.param):
            told.message = param + told.message[len(told.param) :]
        told.param = param
        return told

    def _requests(self, model: LanguageModel, most: int | None) -> list[Request]:
        sampling = Sampling.from_metadata(model.weights.metadata, **self.sampling)
        sampling.check_vocabulary(model.engine.vocabulary)
        stop = check_stops(self.stop) or None
        self = dataclasses.replace(self, max_tokens=most)
        asked: list[Request] = []
        if self.messages is None:
            for prompt in self.prompts:
                ids = (
                    model.tokenize(prompt, special=self.special)
                    if isinstance(prompt, str)
                    else list(prompt)
                )
                asked += self._choices(model, ids, sampling, stop, None, ())
        else:
            self._check_messages(model)
            pieces = self._rendered(model)
            ids = model.tokenizer.encode_marked(pieces, bos=True)
            asked += self._choices(model, ids, sampling, stop, self._format(model), pieces)
        return asked

    @property
    def offered(self) -> Sequence[Mapping[str, Any]]:
        """The tools that the model is told of."""
        return () if self.tool_choice == "none" else self.tools

    def _choices(
        self,
        model: LanguageModel,
        ids: list[int],
        sampling: Sampling,
        stop: tuple[str, ...] | None,
        form: ChatFormat | None,
        pieces: Sequence[tuple[str, bool]],
    ) -> list[Request]:
        """The requests for one prompt."""
        # Checked once here, and not for each on the event loop.
        prompt = Request(prompt_ids=ids).tokens(model.engine.vocabulary, model.context)
        mask = self._mask(model, pieces)
        requests = []
        for index in range(self.n):
            drawn = sampling
            if index and sampling.seed is not None:
                drawn = dataclasses.replace(sampling, seed=_seed(sampling.seed + index))
            reader = None
            if form is not None:
                kind = AnswerReader if self.parallel else OneCall
                reader = kind(model.tokenizer, form, tools=self.offered, prompt=pieces, stop=stop)
            requests.append(
                Request(
                    prompt_ids=prompt,
                    sampling=drawn,
                    max_tokens=self.max_tokens,
                    stop=stop if reader is None else None,
                    logprobs=self.logprobs,
                    ignore_eos=self.ignore_eos,
                    shared=self.cache_prompt,
                    mask=mask,
                    reader=reader,
                )
            )
        return requests

    # Conversations

    def _rendered(self, model: LanguageModel) -> list[tuple[str, bool]]:
        if model.template is None:
            raise invalid(
                "the model has no chat template: it continues text; use /v1/completions",
                self.names.get("messages", "messages"),
                "unsupported",
            )
        variables = dict(self.variables)
        if self.thinking is not None:
            variables["enable_thinking"] = self.thinking
        if self.offered:
            variables["tools"] = list(self.offered)
        assert self.messages is not None
        return model.template.render(list(self.messages), **variables)

    def _format(self, model: LanguageModel) -> ChatFormat | None:
        """How the answer is read: calls are calls only where tools were offered."""
        form = model.format
        if self.offered and (form is None or form.call is None):
            raise invalid(
                "the model has no form for calls of tools; leave tools out, or tool_choice none",
                "tools",
                "unsupported",
            )
        if form is not None and form.call is not None and not self.offered:
            form = dataclasses.replace(form, call=None, reads=None)
        return form

    def _check_messages(self, model: LanguageModel) -> None:
        """Refuses parts of messages that the model has no sense for, by their place."""
        assert self.messages is not None
        for i, message in enumerate(self.messages):
            content = message.get("content") if isinstance(message, Mapping) else None
            if not isinstance(content, list):
                continue
            for j, part in enumerate(content):
                kind = part.get("type") if isinstance(part, Mapping) else None
                if kind in _SAID or not isinstance(kind, str):
                    continue  # the template's own check names what is no part at all
                place = f"messages[{i}].content[{j}]"
                if kind in _SEEN:
                    reason = f"{place} is an image, and this model cannot see"
                elif kind in _HEARD:
                    reason = f"{place} is sound, and this model cannot hear"
                else:
                    reason = f"{place}.type is {kind!r}, expected one of {', '.join(_SAID)}"
                raise invalid(reason, place, "unsupported")

    def _mask(self, model: LanguageModel, pieces: Sequence[tuple[str, bool]]) -> Mask | None:
        """What binds the answer after its thoughts: a form, or calls that must be right."""
        form, tok = model.format, model.tokenizer
        strict = any(tool.get("function", {}).get("strict") is True for tool in self.offered)
        forced = self.tool_choice in ("required", "named")
        if self.constraint is None and not forced and not strict:
            return None
        # Here, because llguidance is an extra that most requests do without.
        from golem_core.sampling import constraint, tool_calls

        if self.constraint is not None:
            asked = self.constraint
            mask = constraint.compile(asked.kind, asked.source, tok, asked.param)
        else:
            assert form is not None  # checked with the tools
            choice: str | dict[str, Any] = self.tool_choice
            if self.tool_choice == "named":
                choice = {"type": "function", "function": {"name": self.tool}}
            mask = tool_calls.tool_call_constraint(form, self.tools, choice, self.parallel, tok)
        return mask.after_thoughts(form, pieces, self.thinking) if pieces else mask


def _seed(seed: int) -> int:
    """The nearest seed in range; the numbers of a seed are those of it modulo 2**64."""
    return seed if seed < 2**64 else seed - 2**64
