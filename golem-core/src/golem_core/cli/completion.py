"""`golem completion`: the script that completes golem's commands in a shell."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the shell's completion script.

    For bash put `eval "$(golem completion bash)"` in ~/.bashrc; zsh alike in ~/.zshrc; for fish
    `golem completion fish > ~/.config/fish/completions/golem.fish`.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"click has no completion for {shell}")
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "golem", "_GOLEM_COMPLETE").source())
