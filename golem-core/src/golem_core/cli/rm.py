"""`golem rm`: forget a pulled model and delete what was fetched for it."""

from __future__ import annotations

import click

from golem_core.cli.options import effective, model_argument, note


@click.command()
@model_argument
def command(model: str) -> None:
    """Forget a pulled model and delete what was fetched for it.

    A file that was pulled by its path is the user's own and stays.
    """
    from golem_core import hub

    effective({})
    removed, deleted = hub.remove(model)
    for path in deleted:
        note(f"deleted {path}")
    if not deleted:
        note(f"{removed.path} stays")
    click.echo(f"{removed.name} is forgotten")
