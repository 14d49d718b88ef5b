"""Gemma 3, for golem."""

from __future__ import annotations

from golem_gemma.model import Config, Gemma3

__all__ = ["Config", "Gemma3"]
