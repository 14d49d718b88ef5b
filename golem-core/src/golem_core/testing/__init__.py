"""What an author of a plugin tests it with: the conformance suite and tiny models. Needs pytest."""

from __future__ import annotations

from golem_core.testing.generator import GeneratorSuite
from golem_core.testing.passes import Passes
from golem_core.testing.tiny import TOKENS, VOCAB, Tiny, decoder

__all__ = ["TOKENS", "VOCAB", "GeneratorSuite", "Passes", "Tiny", "decoder"]
