"""`golem serve`."""

from __future__ import annotations

import click


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
def command(models: tuple[str, ...]) -> None:
    """Serve models over HTTP as OpenAI's clients expect."""
    from aiohttp import web

    from golem_server.app import make_app
    from golem_server.settings import ServeSettings

    settings = ServeSettings(models=models)
    web.run_app(make_app(settings), host=settings.host, port=settings.port)
