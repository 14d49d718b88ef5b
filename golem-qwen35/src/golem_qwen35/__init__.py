"""Qwen3.5, dense and mixed, for golem."""

from __future__ import annotations

from golem_qwen35.config import Config
from golem_qwen35.model import Qwen35, Qwen35Moe

__all__ = ["Config", "Qwen35", "Qwen35Moe"]
