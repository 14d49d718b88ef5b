"""Constraints on an answer: a JSON Schema, a grammar. llguidance does the work.

    compile ─ Constraint ─ fresh ─┬─ what may come next ─ draw ─ accept ─┐
                                  └───── computed beside the pass ───────┘

What may follow a token is computed in a thread of its own as soon as the token is drawn, while the
pass for the next one runs, and is waited for when the logits are there. A thought comes before what
is constrained, and is free.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from golem_core.errors import BadRequest, PassFailed
from golem_core.sampling import gbnf
from golem_core.sampling.schema import part_that_fails, plain
from golem_core.sampling.vocabulary import library, prepare
from golem_core.text.grammar import json_rule, slashed

if TYPE_CHECKING:
    from golem_core.text import ChatFormat, Tokenizer

__all__ = ["KINDS", "Constraint", "compile", "matcher", "of", "prepare"]

KINDS = ("json_schema", "json_object", "regex", "lark", "gbnf")
LONGEST = 1 << 20  # characters of a grammar
_KEPT = 64  # compiled grammars of a model
_LINES = 2  # line breaks that may stand between a thought and what follows

# Forgotten with the model.
_compiled: WeakKeyDictionary[Tokenizer, OrderedDict[str, Any]] = WeakKeyDictionary()
_lock = Lock()
_threads: ThreadPoolExecutor | None = None


class Allowed(NamedTuple):
    """What may come next: `ids` alone, or all but `ids`."""

    ids: np.ndarray
    alone: bool


@dataclass(frozen=True)
class Thoughts:
    """The tokens around a thought, and what is forbidden within one.

    place  ``thought`` where the prompt has opened one, else ``before``
    """

    place: str
    opens: int
    closes: int
    forbidden: tuple[int, ...]
    lines: Mapping[int, int]  # tokens that are nothing but line breaks, and how many


class Constraint:
    """A `golem_core.sampling.Mask` that a grammar gives; one compiled serves any number of answers.

    The state moves on with the tokens of the answer alone: guesses that it forbids are not drawn.
    Where the grammar is complete only tokens that end an answer may follow.
    """

    def __init__(
        self, matcher: Any, tokenizer: Tokenizer, thoughts: Thoughts | None = None
    ) -> None:
        self._beginning = matcher
        self._matcher = matcher.deep_copy()
        self._tokenizer = tokenizer
        self._size = len(tokenizer)
        self._thoughts = thoughts
        self._place = "answer" if thoughts is None else thoughts.place
        self._lines = _LINES
        self._heard = 0
        self._prompt: int | None = None
        self._next: Future[Allowed] | None = None

    def fresh(self) -> Constraint:
        """The same at its beginning."""
        new = Constraint(self._beginning, self._tokenizer, self._thoughts)
        new._start(None)
        return new

    def after_thoughts(
        self,
        form: ChatFormat | None,
        prompt: Sequence[tuple[str, bool]] = (),
        thinking: bool | None = None,
    ) -> Constraint:
        """The same for a model that may think before it answers, which stays free.

        prompt    the rendered conversation: it may have opened a thought, or closed an empty one
        thinking  False: the model is told not to, so it may not begin to

        Raises `BadRequest` for a family whose thoughts stand between texts that are no tokens.
        """
        if form is None or form.thought is None:
            return self
        opened = form.thinks(prompt)
        tail = prompt[-1][0].rstrip() if prompt and prompt[-1][1] else ""
        if not opened and (thinking is False or tail.endswith(form.thought[1])):
            return self
        tok = self._tokenizer
        opens, closes = (tok.special_id(marker) for marker in form.thought)
        if opens is None or closes is None:
            raise BadRequest(
                "this model writes its thoughts between texts that are no tokens; a constraint "
                "needs thinking turned off",
                "thinking",
            )
        others = {tok.special_id(m) for m in form.markers if m not in form.thought}
        forbidden = sorted(({t for t in others if t is not None} | tok.end_ids) - {opens, closes})
        lines = {}
        for count in range(1, _LINES + 1):
            ids = tok.encode("\n" * count)
            if len(ids) == 1 and tok.piece(ids[0]) == b"\n" * count:
                lines[ids[0]] = count
        place = "thought" if opened else "before"
        thoughts = Thoughts(place, opens, closes, tuple(forbidden), lines)
        return Constraint(self._beginning, tok, thoughts)

    def accept(self, token: int) -> None:
        """Moves on by a token of the answer, in another thread."""
        self._heard += 1
        self._start(token)

    def __call__(self, tokens: np.ndarray, logits: np.ndarray) -> None:
        """As `golem_core.sampling.Mask`. Raises `PassFailed` where the grammar became too large."""
        if self._prompt is None:
            self._prompt = len(tokens) - self._heard
        for token in tokens[self._prompt + self._heard :].tolist():
            self.accept(token)
        if self._next is None:
            self._start(None)
        assert self._next is not None
        allowed = self._next.result()
        if allowed.alone:
            ids = allowed.ids[: np.searchsorted(allowed.ids, len(logits))]
            kept = logits[ids]
            logits.fill(-np.inf)
            logits[ids] = kept
        else:
            logits[allowed.ids] = -np.inf
            logits[self._size :] = -np.inf

    def _start(self, token: int | None) -> None:
        before = self._next
        self._next = _pool().submit(self._step, token, before)

    def _step(self, token: int | None, before: Future[Allowed] | None) -> Allowed:
        if before is not None:
            before.result()  # in the order in which they were drawn
        if token is not None:
            self._take(token)
        thoughts = self._thoughts
        if self._place == "thought":
            assert thoughts is not None
            return Allowed(np.array(thoughts.forbidden, dtype=np.int64), False)
        allowed = self._by_grammar()
        if thoughts is not None and self._place != "answer":
            further = [thoughts.opens]
            if self._place == "gap":
                further = [t for t, count in thoughts.lines.items() if count <= self._lines]
            allowed[further] = True
        count = int(np.count_nonzero(allowed))
        alone = 2 * count <= self._size
        return Allowed(np.flatnonzero(allowed if alone else ~allowed), alone)

    def _take(self, token: int) -> None:
        thoughts = self._thoughts
        if thoughts is not None and self._place != "answer":
            if self._place == "thought":
                self._place = "gap" if token == thoughts.closes else "thought"
                return
            if self._place == "before" and token == thoughts.opens:
                self._place = "thought"
                return
            count = thoughts.lines.get(token, 0)
            if self._place == "gap" and 0 < count <= self._lines:
                self._lines -= count
                return
            self._place = "answer"
        if not self._matcher.consume_token(token):
            raise _failed(self._matcher)

    def _by_grammar(self) -> np.ndarray:
        if self._matcher.is_stopped() and not self._matcher.is_error():
            allowed = np.zeros(self._size, dtype=bool)
            allowed[list(self._tokenizer.end_ids)] = True
            return allowed
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            raise _failed(self._matcher)
        unpacked = np.unpackbits(bits, count=self._size, bitorder="little")
        return unpacked.view(bool)


def compile(
    kind: str,
    source: str | Mapping[str, Any] | bool,
    tokenizer: Tokenizer,
    field: str | None = None,
) -> Constraint:
    """The constraint that an answer is in the language of `source`.

    kind    ``json_schema`` (a schema, or its text), ``json_object`` (`source` says nothing),
            ``regex`` (the whole answer matches), ``lark`` (llguidance's notation), ``gbnf``
            (llama.cpp's)
    field   the request's parameter, for the error

    Waits for the model's tokens to be ready (`prepare`), so not for a thread that must answer at
    once. Raises `BadRequest` naming what cannot be compiled, `Unsupported` without llguidance.
    """
    if kind not in KINDS:
        raise BadRequest(f"a grammar's kind is {kind!r}, expected one of {', '.join(KINDS)}", field)
    field = field or ("response_format" if kind.startswith("json") else "grammar")
    schema: Any = None
    if kind.startswith("json"):
        schema = {"type": "object"} if kind == "json_object" else _schema(source, field)
        grammar = _headed(f"start: {json_rule(schema)}")
    elif not isinstance(source, str):
        raise BadRequest(f"{field} is {type(source).__name__}, expected a text", field)
    elif len(source) > LONGEST:
        raise BadRequest(f"{field} has {len(source)} characters, at most {LONGEST} are read", field)
    elif kind == "regex":
        grammar = _headed(f"start: /{slashed(source)}/")
    elif kind == "gbnf":
        grammar = _headed(gbnf.to_lark(source, field))
    else:
        grammar = source if "%llguidance" in source else _headed(source)
    return Constraint(matcher(grammar, tokenizer, field, schema), tokenizer)


def of(
    response_format: Mapping[str, Any] | None,
    grammar: str | tuple[str, str] | None,
    tokenizer: Tokenizer,
) -> Constraint:
    """The constraint of `LanguageModel.chat`'s options. Raises as `compile`."""
    if response_format is None or grammar is not None:
        if response_format is not None or grammar is None:
            raise BadRequest("response_format and grammar exclude each other", "grammar")
        kind, text = ("gbnf", grammar) if isinstance(grammar, str) else grammar
        return compile(kind, text, tokenizer, "grammar")
    if response_format.get("type") == "json_object":
        return compile("json_object", "", tokenizer)
    if response_format.get("type") != "json_schema":
        return compile("json_schema", response_format, tokenizer)
    inner = response_format.get("json_schema", response_format)
    schema = inner.get("schema") if isinstance(inner, Mapping) else None
    if schema is None:
        raise BadRequest("response_format.json_schema has no schema", "response_format")
    return compile("json_schema", schema, tokenizer)


def _schema(source: object, field: str) -> Any:
    if isinstance(source, str):
        if len(source) > LONGEST:
            raise BadRequest(
                f"{field} has {len(source)} characters, at most {LONGEST} are read", field
            )
        try:
            source = json.loads(source)
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"{field} is no JSON: {error}", field) from None
    if source is True:
        return {}
    if not isinstance(source, Mapping):
        raise BadRequest(f"{field} has no JSON Schema, which is an object: {source!r}", field)
    return source


def _headed(grammar: str) -> str:
    return f'%llguidance {{"no_forcing": true}}\n{grammar}'


def matcher(
    grammar: str, tokenizer: Tokenizer, field: str, schema: Any = None, where: str = ""
) -> Any:
    """llguidance's matcher of a grammar, at its beginning; compiled once while it is in use.

    Raises `BadRequest` for the parameter `field`: the part of `schema` that fails, or `where`.
    """
    with _lock:
        known = _compiled.setdefault(tokenizer, OrderedDict())
        if grammar in known:
            known.move_to_end(grammar)
            return known[grammar]
    tokens = prepare(tokenizer).result()
    made = library().LLMatcher(tokens, grammar, log_level=0)
    if made.is_error():
        failed = part_that_fails(schema) if schema is not None else None
        if failed is not None:
            raise BadRequest(f"{field}, at {failed[0] or 'the top'}: {failed[1]}", field)
        raise BadRequest(f"{where or field} cannot be compiled: {plain(made.get_error())}", field)
    with _lock:
        known[grammar] = made
        while len(known) > _KEPT:
            known.popitem(last=False)
    return made


def _failed(matcher: Any) -> PassFailed:
    return PassFailed(
        f"the constraint cannot go on: {plain(matcher.get_error())}", "logits", "constraint"
    )


def _pool() -> ThreadPoolExecutor:
    global _threads
    with _lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(2, thread_name_prefix="golem-masks")
        return _threads
