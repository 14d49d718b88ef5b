"""What can go wrong, as a caller can act on it.

Each class is a thing that somebody can do something about; whatever else is raised is a defect.
A message is one sentence: what, where, what was found, what was expected, then what to do.
"""

from __future__ import annotations


class GolemError(Exception):
    """The root of everything that golem raises on purpose."""

    exit_code = 1


class BadWeights(GolemError):
    """A file of weights is damaged, hostile or not what its header says."""

    exit_code = 3


class NotFound(GolemError):
    """A model, a file or a part of one does not exist where it was looked for."""

    exit_code = 3


class Unsupported(GolemError):
    """A value, a format or a feature that golem reads but does not run."""


class UnknownArchitecture(GolemError):
    """No installed plugin claims the architecture that a file declares."""


class PluginConflict(GolemError):
    """Two installed plugins claim one architecture."""


class BadRequest(GolemError, ValueError):
    """A caller's argument is out of its range; `field` names it."""

    exit_code = 2

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ContextFull(BadRequest):
    """A prompt does not fit the context; both numbers are attributes."""

    exit_code = 1

    def __init__(self, message: str, prompt_tokens: int, context: int) -> None:
        super().__init__(message, "prompt")
        self.prompt_tokens = prompt_tokens
        self.context = context


class NoMemory(GolemError):
    """What was asked for does not fit the memory; the message has both numbers."""

    exit_code = 4


class DeviceError(GolemError):
    """A device is absent, lost, or lacks what a kernel needs."""

    exit_code = 4


class PassFailed(GolemError):
    """A pass produced values that no token can be drawn from.

    `waypoint` names the tensor, `kind` is a stable word such as ``nan_logits``.
    """

    def __init__(self, message: str, waypoint: str, kind: str) -> None:
        super().__init__(message)
        self.waypoint = waypoint
        self.kind = kind
