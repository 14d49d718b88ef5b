"""Gemma 3 and Gemma 4, for golem."""

from __future__ import annotations

from golem_gemma.gemma4 import Gemma4
from golem_gemma.model import Gemma3

__all__ = ["Gemma3", "Gemma4"]
