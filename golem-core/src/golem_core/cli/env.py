"""`golem env`: the settings with their origins, and what golem sees of the machine."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Any

import click

from golem_core.cli.options import as_json, effective, print_json, setting_options, table
from golem_core.settings import SETTINGS, cache_folder


@click.command()
@as_json
@setting_options(*(s.name for s in SETTINGS.values() if s.name != "color" and not s.exported))
def command(as_json: bool, **options: Any) -> None:
    """Print the settings with their origins, and what golem sees here.

    Options are taken as by the commands that have them, so that what a command would do can be
    looked at first.
    """
    settings = effective(options)
    from golem_core import threads

    workers = threads.choose(settings["threads"])
    rows = {name: {"value": settings[name], "origin": settings.origin(name)} for name in SETTINGS}
    machine = {
        "golem": metadata.version("golem-core"),
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "threads": f"{workers.count}: {workers.reason}",
        "instruction sets": _layers(),
        "settings file": f"{settings.path}{'' if settings.path.is_file() else ' (absent)'}",
        "cache": str(cache_folder()),
        "vulkan": _vulkan(),
    }
    if as_json:
        detail = {"threads": {"count": workers.count, "reason": workers.reason}}
        print_json({**machine, **detail, "settings": rows})
        return
    width = max(map(len, machine))
    for key, value in machine.items():
        click.echo(f"{key.ljust(width)}  {value}")
    click.echo()
    table(
        ("SETTING", "VALUE", "FROM"),
        [
            (
                name,
                SETTINGS[name].unset if row["value"] is None else str(row["value"]),
                row["origin"],
            )
            for name, row in rows.items()
        ],
    )
    if workers.warning is not None:
        click.echo(workers.warning, err=True)


def _layers() -> str:
    """The kernel modules that this processor runs, and which is used."""
    from golem_core.cpu import dispatch

    return f"{', '.join(dispatch.LAYERS)}; in use: {dispatch.layer()}"


def _vulkan() -> str:
    """Whether the Kompute library is there; it is not loaded, which could start a driver."""
    from importlib.util import find_spec

    return "kp is installed" if find_spec("kp") else "kp is not installed"
