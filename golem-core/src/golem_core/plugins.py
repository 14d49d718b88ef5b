"""Finds the class that runs an architecture among what is installed.

A distribution claims architectures through the entry point group ``golem.models``: the name is what
a file declares itself to be, the value a class of `golem_core.model`. Nothing of a plugin is
imported until a file asks for it. GOLEM_PLUGINS, a list of distributions by comma, leaves out all
others; empty leaves out all.

Where one architecture both writes text and, in other checkpoints, embeds it, who embeds claims it
through the group ``golem.embedders``, which is asked first by who wants vectors.

Some files declare nothing. Who runs such a layout claims it through the group ``golem.tensors``:
there the name is a tensor that only such a file holds, the value the same class.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from golem_core.errors import PluginConflict, UnknownArchitecture
from golem_core.model import Model
from golem_core.weights import Weights

GROUP = "golem.models"
TENSORS = "golem.tensors"
EMBEDDERS = "golem.embedders"
VARIABLE = "GOLEM_PLUGINS"


@dataclass(frozen=True)
class PluginInfo:
    """One architecture that an installed distribution claims.

    target is the class as ``module:name``; error says why it cannot be used, None if it can.
    """

    name: str
    distribution: str
    version: str
    target: str
    error: str | None = None


def find(architecture: str) -> type[Model]:
    """The class that runs `architecture`.

    Raises `UnknownArchitecture`, listing what is installed, if nobody claims it, and
    `PluginConflict` if two do. What the plugin's own import raises passes through: a plugin that is
    broken is not an unknown architecture.
    """
    claims = _claims(name=architecture)
    if not claims:
        raise UnknownArchitecture(f"no installed plugin runs {architecture!r}; {_installed()}")
    if len(claims) > 1:
        raise PluginConflict(_conflict(claims))
    return _load(claims[0])


def architecture(weights: Weights) -> str:
    """What an opened file is: what it declares, else by a tensor that somebody knows it by.

    Raises `BadWeights` for a file that declares nothing and that nobody knows.
    """
    if not weights.declares:
        known = {point.value for point in _claims(TENSORS) if point.name in weights.tensors}
        for point in _claims():
            if point.value in known:
                return point.name
    return weights.architecture


def of(weights: Weights) -> type[Model]:
    """The class that runs an opened file. Raises as `find` and `architecture`."""
    return find(architecture(weights))


def embedder(weights: Weights) -> type[Model]:
    """The class that makes vectors with an opened file. Raises as `of`."""
    claims = _claims(EMBEDDERS, weights.architecture)
    if not claims:
        return of(weights)
    if len(claims) > 1:
        raise PluginConflict(_conflict(claims))
    return _load(claims[0])


def meant(weights: Weights) -> type[Model]:
    """The class for what an opened file is published for: one that says how to pool embeds.

    Raises as `of`.
    """
    folder = weights.path if weights.path.is_dir() else weights.path.parent
    pooled = weights.container == "safetensors" and (folder / "modules.json").is_file()
    if weights.container == "gguf" and weights.declares:
        said = weights.metadata.get(f"{weights.architecture}.pooling_type")
        pooled = isinstance(said, int) and said > 0
    return embedder(weights) if pooled else of(weights)


def installed() -> list[PluginInfo]:
    """Every claim of every plugin, by name; imports them all, and says of each what fails."""
    claims = _claims()
    found = []
    for point in claims:
        rivals = [other for other in claims if other.name == point.name]
        error: str | None = None
        if len(rivals) > 1:
            error = _conflict(rivals)
        else:
            try:
                _load(point)
            except Exception as failure:
                error = f"{type(failure).__name__}: {failure}"
        found.append(PluginInfo(point.name, *_origin(point), point.value, error))
    return found


def _claims(group: str = GROUP, name: str | None = None) -> list[EntryPoint]:
    """The entry points that GOLEM_PLUGINS leaves, of one name or all by name and distribution."""
    points = [p for p in entry_points(group=group) if name is None or p.name == name]
    allowed = os.environ.get(VARIABLE)
    if allowed is not None:
        names = {_normal(name) for name in allowed.split(",")}
        points = [point for point in points if _normal(_origin(point)[0]) in names]
    if len(points) < 2:  # what a claim comes from is read from a file
        return points
    return sorted(points, key=lambda point: (point.name, _origin(point)))


def _load(point: EntryPoint) -> type[Model]:
    kind = point.load()
    if not (isinstance(kind, type) and issubclass(kind, Model)):
        raise TypeError(f"{point.value} of {_origin(point)[0]} is no class of golem_core.model")
    return kind


def _origin(point: EntryPoint) -> tuple[str, str]:
    """Name and version of the distribution that an entry point came with."""
    return (point.dist.name, point.dist.version) if point.dist else ("unknown", "")


def _normal(name: str) -> str:
    """A distribution's name as names are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _conflict(claims: list[EntryPoint]) -> str:
    names = " and ".join(_origin(point)[0] for point in claims)
    return (
        f"{claims[0].name!r} is claimed by {names}; uninstall one, or name those that may load in "
        f"{VARIABLE}"
    )


def _installed() -> str:
    claims = [f"{point.name} ({' '.join(_origin(point))})" for point in _claims()]
    listed = f"installed: {', '.join(claims)}" if claims else "no plugin is installed"
    if os.environ.get(VARIABLE) is not None:
        listed += f"; {VARIABLE} is {os.environ[VARIABLE]!r} and leaves out all others"
    return listed
