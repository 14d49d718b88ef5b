"""The command `golem`: one file a command, loaded when it is asked for."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    from golem_core.cli.app import run

    raise SystemExit(run())
