"""`golem run`: one answer to a prompt, or a conversation."""

from __future__ import annotations

import json
import select
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

import click

from golem_core.cli.answer import THOUGHTS, AnswerPrinter
from golem_core.cli.options import (
    GENERATING,
    as_json,
    effective,
    model_argument,
    note,
    print_json,
    setting_options,
)
from golem_core.cli.terminal import Waiting
from golem_core.errors import BadRequest

if TYPE_CHECKING:
    from golem_core.api import Answer, Completion, LanguageModel
    from golem_core.settings import Settings

PATIENCE = 3.0  # seconds for a pipe to bring something before we say that we wait for it


@click.command()
@model_argument
@click.option("-p", "--prompt", help="The prompt; - reads it from standard input.")
@click.option("--raw", is_flag=True, help="Continue the text, without the chat template.")
@click.option("--system", metavar="TEXT", help="What the system says before the conversation.")
@click.option("--think/--no-think", default=None, help="Whether a model that can think does.")
@click.option(
    "--thoughts",
    type=click.Choice(THOUGHTS),
    help="Show thoughts on standard error, fold them to one line, or hide them. "
    "[default: show on a terminal, else hide]",
)
@click.option("--stop", multiple=True, metavar="TEXT", help="End the answer here; up to four.")
@click.option(
    "--json-schema",
    type=click.File(encoding="utf-8"),
    help="Answer with JSON that obeys the JSON Schema in this file.",
)
@click.option(
    "--grammar",
    type=click.File(encoding="utf-8"),
    help="Answer in the grammar in this file: Lark where its name ends with .lark, else GBNF.",
)
@click.option("--stats", is_flag=True, help="Print times and rates to standard error.")
@as_json
@setting_options(*GENERATING, "device", "threads", "context", "draft")
def command(
    model: str,
    prompt: str | None,
    raw: bool,
    system: str | None,
    think: bool | None,
    thoughts: str | None,
    stop: tuple[str, ...],
    json_schema: TextIO | None,
    grammar: TextIO | None,
    stats: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Answer a prompt, or hold a conversation.

    Text piped to standard input is put before the prompt. Without a prompt on a terminal it is a
    conversation, in which /help lists what can be said. Ctrl-C stops an answer, a second one
    leaves.
    """
    if raw and system is not None:
        raise click.UsageError("--raw uses no template, so there is no place for --system")
    if raw and think is not None:
        raise click.UsageError("--raw uses no template, so nothing tells the model to think or not")
    settings = effective(options)
    text = _prompt(prompt)
    asked = {**settings.given(*GENERATING), "stop": list(stop), **_form(json_schema, grammar)}
    with Waiting("loading") as waiting:
        loaded = _load(model, settings, waiting)
    with loaded:
        if text is None:
            if json_schema is not None or grammar is not None:
                raise click.UsageError("--json-schema and --grammar need a prompt: -p TEXT")
            if as_json:
                raise click.UsageError("--json needs a prompt: -p TEXT, or a pipe")
            from golem_core.cli.chat import Conversation
            from golem_core.cli.repl import converse

            talk = Conversation(
                model,
                click.echo,
                system=system,
                options=settings.given(*GENERATING),
                thinking=think,
                thoughts=thoughts,
            )
            raise click.exceptions.Exit(converse(loaded, talk, list(stop), raw))
        answer = ask(loaded, text, raw=raw, system=system, thinking=think, options=asked)
        if as_json:
            print_json(_result(model, answer.complete()))
        else:
            done = _stream(answer, AnswerPrinter(thoughts))
            if stats:
                note(rates(done))


def _form(schema: TextIO | None, grammar: TextIO | None) -> dict[str, Any]:
    """What the answer must be, as options of `LanguageModel.chat`."""
    if schema is not None and grammar is not None:
        raise click.UsageError("--json-schema and --grammar exclude each other")
    if schema is not None:
        try:
            read = json.load(schema)
        except ValueError as error:
            raise BadRequest(f"{schema.name} is no JSON: {error}", "json_schema") from None
        return {"response_format": {"type": "json_schema", "json_schema": {"schema": read}}}
    if grammar is not None:
        kind = "lark" if grammar.name.endswith(".lark") else "gbnf"
        return {"grammar": (kind, grammar.read())}
    return {}


def _load(model: str, settings: Settings, waiting: Waiting) -> LanguageModel:
    from golem_core import threads
    from golem_core.api import load

    def say(line: str) -> None:
        waiting.done()
        note(line)

    warning = threads.choose(settings["threads"]).warning
    if warning is not None:
        say(warning)
    return load(
        model,
        device=settings["device"],
        threads=settings["threads"],
        context=settings["context"],
        max_sequences=1,
        draft=settings["draft"],
        say=say,
    )


def ask(
    model: LanguageModel,
    text: str,
    *,
    raw: bool,
    system: str | None,
    thinking: bool | None,
    options: dict[str, Any],
) -> Answer:
    """Submits one prompt; a model without a chat template continues the text, and we say so."""
    if not raw and model.template is None:
        if system is not None:
            raise click.UsageError("the model has no chat template, so no place for --system")
        note("this model has no chat template: the text is continued as it stands (as with --raw)")
        raw = True
    if raw:
        return model.generate(text, **options)
    messages = [{"role": "system", "content": system}] if system is not None else []
    if thinking is not None:
        options = {**options, "thinking": thinking}
    return model.chat([*messages, {"role": "user", "content": text}], **options)


def _stream(answer: Answer, printer: AnswerPrinter) -> Completion:
    """Writes the answer as it comes. Ctrl-C stops it and the command."""
    try:
        with printer, Waiting(f"reading {len(answer.prompt_ids)} tokens") as waiting:
            for event in answer.events():
                waiting.done()
                printer.take(event)
    except KeyboardInterrupt:
        answer.cancel()
        raise
    return answer.complete()


def _prompt(given: str | None) -> str | None:
    """The prompt with what was piped before it; None where there is a person to talk with."""
    if sys.stdin is None or sys.stdin.closed:
        return given
    if given == "-":
        return _piped()
    if sys.stdin.isatty():
        return given if given is not None or sys.stdout.isatty() else _piped()
    piped = _piped()
    if given is None:
        if not piped.strip():
            raise click.UsageError("no prompt: give -p TEXT, or pipe one")
        return piped
    return f"{piped.rstrip()}\n\n{given}" if piped.strip() else given


def _piped() -> str:
    """All of standard input. A pipe that nobody writes to is waited for, but not in silence."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:  # replaced by something that has text only
        return sys.stdin.read()
    try:
        ready, _, _ = select.select([stream], [], [], PATIENCE)
        if not ready:
            note("waiting for standard input; redirect it from /dev/null to leave it out")
    except (OSError, ValueError):  # not a thing that can be waited for: a file, or a test's
        pass
    data: bytes = stream.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"standard input is not UTF-8 text (byte {error.start})", "prompt"
        ) from None


def _result(model: str, done: Completion) -> dict[str, Any]:
    return {
        "model": model,
        "text": done.text,
        "thoughts": done.thoughts,
        "calls": [asdict(call) for call in done.calls],
        "unfinished": done.unfinished,
        "ids": done.ids,
        "prompt_ids": done.prompt_ids,
        "finish_reason": done.finish_reason,
        "seed": done.seed,
        "timings": done.timings,
    }


def rates(done: Completion) -> str:
    """One line of what an answer cost."""
    t = done.timings
    read, wrote = t["prompt_tokens"] - t["cached_tokens"], t["generated_tokens"]
    parts = [f"read {read} tokens in {t['prompt_seconds']:.2f} s"]
    if t["prompt_seconds"] > 0:
        parts[0] += f" ({read / t['prompt_seconds']:.0f}/s)"
    if t["cached_tokens"]:
        parts.append(f"{t['cached_tokens']} known already")
    parts.append(f"wrote {wrote} in {t['generate_seconds']:.2f} s")
    if t["generate_seconds"] > 0 and wrote > 1:
        # The first token comes out of reading the prompt.
        parts[-1] += f" ({(wrote - 1) / t['generate_seconds']:.1f}/s)"
    if t["drafted_tokens"]:
        share = t["accepted_tokens"] / t["drafted_tokens"]
        parts.append(f"{t['drafted_tokens']} guessed before, {share:.0%} of them right")
    return ", ".join(parts)
