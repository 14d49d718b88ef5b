"""Llama, SmolLM and their kin, for golem."""

from __future__ import annotations

from golem_llama.model import Config, Llama

__all__ = ["Config", "Llama"]
