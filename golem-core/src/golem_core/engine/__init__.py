"""The engine: requests in, tokens out, one thread that owns the program."""

from golem_core.engine.engine import Engine
from golem_core.engine.request import Request
from golem_core.engine.start import start_engine
from golem_core.engine.stats import GroupStats, StateStats, Stats
from golem_core.engine.stream import Result, Stream, Timings, Token

__all__ = [
    "Engine",
    "GroupStats",
    "Request",
    "Result",
    "StateStats",
    "Stats",
    "Stream",
    "Timings",
    "Token",
    "start_engine",
]
