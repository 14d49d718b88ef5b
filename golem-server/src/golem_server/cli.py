"""`golem serve`: the server from the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from golem_core.cli.options import effective, setting_options
from golem_core.settings import Settings
from golem_server.settings import FIELDS, FLAGS, SERVE, ServeSettings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["command", "gather"]

CORE = ("max_tokens", "context", "threads", "device", "draft")

Command = TypeVar("Command", bound=Callable[..., Any])


def _complete(
    _context: click.Context, _parameter: click.Parameter, text: str
) -> list[CompletionItem]:
    """Names of pulled models, and files."""
    from click.shell_completion import CompletionItem

    from golem_core.hub import known

    found = [CompletionItem(model.name) for model in known() if model.name.startswith(text)]
    return found or [CompletionItem(text, type="file")]


def serve_options(command: Command) -> Command:
    """An option for every setting of the table; `gather` checks the values."""
    for name, setting in reversed(SERVE.items()):
        default = setting.unset if setting.default is None else setting.default
        if name in FLAGS:
            default = "on" if setting.default else "off"
            flags = f"{setting.flag}/--no-{setting.flag[2:]}"
            kinds: dict[str, Any] = {"default": None}
        else:
            flags, kinds = setting.flag, {"metavar": setting.metavar}
        command = click.option(flags, name, help=f"{setting.help} [default: {default}]", **kinds)(
            command
        )
    return command


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=_complete)
@serve_options
@setting_options(*CORE)
def command(models: tuple[str, ...], **options: Any) -> None:
    """Serve models over HTTP as OpenAI's clients expect.

    Each MODEL is offered under its file's name, or as ID with ID=MODEL; without any, all that were
    pulled. The first one is loaded at the start, the others when they are asked for. SIGTERM or
    Ctrl-C lets the answers end, a second one does not.
    """
    settings = gather(models, options)
    from golem_server.serving import run

    code = run(settings)
    if code:
        raise click.exceptions.Exit(code)


def gather(models: tuple[str, ...], options: dict[str, Any]) -> ServeSettings:
    """The settings of a server from what the command line gave, and the places behind it.

    Raises `BadRequest` naming the place, `NotFound` for an absent file of keys.
    """
    from golem_server.keys import read_keys

    own = {name: options.pop(name) for name in list(options) if name in SERVE}
    core = effective(options)
    found = Settings(own, table=SERVE, section="serve")
    values = {name: found[name] for name in SERVE if name in FIELDS and found[name] is not None}
    values |= {name: core[name] for name in CORE}
    keys = found["api_key"] or ()
    if found["api_key_file"] is not None:
        keys += read_keys(found["api_key_file"])
    return dataclasses.replace(ServeSettings(), models=models, api_keys=keys, **values)
