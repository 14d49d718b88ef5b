"""What a model does, by its header alone: whether it writes text, speaks it or embeds it."""

from __future__ import annotations

from pathlib import Path

from golem_core import hub, plugins
from golem_core.errors import GolemError
from golem_core.model import Embedder, Model, Speaker
from golem_core.weights import open_weights

__all__ = ["embeds", "local_path", "speaks"]


def local_path(reference: str) -> Path | None:
    """Where the file of a reference is; None for one that would have to be fetched first."""
    parsed = hub.parse(reference)
    if parsed.kind == "path":
        path = Path(parsed.name)
        return path if path.exists() else None
    known = [m for m in hub.known() if reference in (m.reference, m.name)]
    paths = [Path(model.path) for model in known]
    return next((path for path in paths if path.exists()), None)


def speaks(reference: str) -> bool | None:
    """Whether a model speaks; None where its file is not here, or nobody runs it."""
    kind = _kind(reference)
    return None if kind is None else issubclass(kind, Speaker)


def embeds(reference: str) -> bool | None:
    """Whether a model makes vectors or scores; None as of `speaks`."""
    kind = _kind(reference)
    return None if kind is None else issubclass(kind, Embedder)


def _kind(reference: str) -> type[Model] | None:
    path = local_path(reference)
    if path is None:
        return None
    try:
        with open_weights(path) as weights:
            return plugins.meant(weights)
    except GolemError:
        return None
