"""`golem plugins`: the architectures that can run here, and who brings them."""

from __future__ import annotations

from dataclasses import asdict

import click

from golem_core.cli.options import as_json, effective, note, print_json, table


@click.command()
@as_json
def command(as_json: bool) -> None:
    """List the architectures that installed plugins run."""
    effective({})
    from golem_core.plugins import installed

    found = installed()
    if as_json:
        print_json([asdict(plugin) for plugin in found])
        return
    if not found:
        note("no plugin is installed; golem-llama, golem-gemma and golem-qwen bring some")
        return
    rows = [
        (p.name, f"{p.distribution} {p.version}", p.target if p.error is None else p.error)
        for p in found
    ]
    table(("ARCHITECTURE", "DISTRIBUTION", "CLASS"), rows)
