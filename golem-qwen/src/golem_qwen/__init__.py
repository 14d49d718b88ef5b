"""Qwen2, Qwen2.5 and Qwen3, for golem."""

from __future__ import annotations

from golem_qwen.model import Config, Qwen2
from golem_qwen.qwen3 import Qwen3
from golem_qwen.qwen3moe import Qwen3Moe

__all__ = ["Config", "Qwen2", "Qwen3", "Qwen3Moe"]
