"""Sampling: how the next token is chosen from the logits of a pass."""

from golem_core.sampling.parameters import Sampling
from golem_core.sampling.sampler import Ahead, Chances, Logprobs, Mask, Sampler, describe, logprobs

__all__ = ["Ahead", "Chances", "Logprobs", "Mask", "Sampler", "Sampling", "describe", "logprobs"]
