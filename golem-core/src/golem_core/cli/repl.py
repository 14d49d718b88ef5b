"""A conversation on a terminal: reads lines, streams answers, minds Ctrl-C."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from golem_core.cli.answer import AnswerPrinter
from golem_core.cli.chat import COMMANDS, Conversation, Leave
from golem_core.cli.options import note
from golem_core.cli.run import rates
from golem_core.cli.terminal import Waiting
from golem_core.errors import GolemError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from golem_core.api import Answer, LanguageModel

FENCE = '"""'
INTERRUPTED = 130


def converse(model: LanguageModel, talk: Conversation, stop: list[str], raw: bool) -> int:
    """Talks until /bye, the end of input, or a second Ctrl-C; gives the exit code."""
    session = _session()
    raw = raw or model.template is None
    if raw:
        note("each text is continued as it stands: there is no chat template in use")
    note("/help lists what can be said; Ctrl-C stops an answer, a second one leaves")
    stopped = False  # by Ctrl-C, with nothing said since
    while True:
        try:
            line = _read(session)
        except EOFError:
            return 0
        except KeyboardInterrupt as interrupt:
            typed = interrupt.args[0] if interrupt.args else ""
            if stopped and not typed:
                return INTERRUPTED
            stopped = not typed  # a line that is thrown away is no reason to leave
            if stopped:
                note("once more leaves")
            continue
        if not line.strip():
            continue
        stopped = False
        try:
            if line.startswith("/"):
                talk.command(line.strip())
            else:
                stopped = _answer(model, talk, line, stop, raw)
        except Leave:
            return 0
        except KeyboardInterrupt:
            return INTERRUPTED
        except GolemError as error:
            click.echo(f"golem: {error}", err=True)


def _answer(
    model: LanguageModel, talk: Conversation, text: str, stop: list[str], raw: bool
) -> bool:
    """Streams one answer and keeps the turn; gives whether Ctrl-C stopped it."""
    options: dict[str, Any] = {**talk.options, "stop": stop}
    if raw:
        answer = model.generate(text, **options)
    else:
        if talk.thinking is not None:
            options["thinking"] = talk.thinking
        answer = model.chat(talk.turns(text), **options)
    stopped = _stream(answer, AnswerPrinter(talk.thoughts))
    done = answer.complete()
    talk.stats = f"{rates(done)}; {done.finish_reason}"
    if stopped:
        note("(stopped)")
    elif done.finish_reason == "length":
        note("(the answer reached its longest)")
    if not raw:
        talk.keep(text, done.text)
    return stopped


def _stream(answer: Answer, printer: AnswerPrinter) -> bool:
    """Writes the answer as it comes; the first Ctrl-C stops it, one more passes through."""
    try:
        with printer, Waiting(f"reading {len(answer.prompt_ids)} tokens") as waiting:
            for event in answer.events():
                waiting.done()
                printer.take(event)
    except KeyboardInterrupt:
        answer.cancel()
        return True
    return False


def _read(session: PromptSession[str]) -> str:
    """One line, or several between two fences."""
    line: str = session.prompt(">>> ")
    if not line.lstrip().startswith(FENCE):
        return line
    text = line.lstrip()[len(FENCE) :]
    while FENCE not in text:
        text += "\n" + session.prompt("... ")
    return re.sub(r"^\n", "", text[: text.index(FENCE)])


def _session() -> PromptSession[str]:
    """The line editor, with the history of earlier conversations."""
    import platformdirs
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    folder = platformdirs.user_state_path("golem", appauthor=False)
    folder.mkdir(parents=True, exist_ok=True)
    keys = KeyBindings()

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        """Ctrl-C says whether it threw a line away or found none."""
        typed = event.current_buffer.text
        event.app.exit(exception=KeyboardInterrupt(typed), style="class:aborting")

    names = [key.split()[0] for key in COMMANDS]
    return PromptSession(
        history=FileHistory(str(folder / "history")),
        key_bindings=keys,
        completer=WordCompleter(names, pattern=re.compile(r"^/\w*")),
        complete_while_typing=False,
    )
