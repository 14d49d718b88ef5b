"""Qwen2 and Qwen2.5, for golem."""

from __future__ import annotations

from golem_qwen.model import Config, Qwen2

__all__ = ["Config", "Qwen2"]
