"""Pocket TTS for golem."""

from __future__ import annotations

from golem_pockettts.config import Config

__all__ = ["Config"]
