"""How far logits are from the reference's: the divergence that recordings and tests share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ref.quantise import Floats


def log_softmax(logits: Floats) -> NDArray[np.float64]:
    """Natural log of the probabilities, float64, of logits [.., vocabulary]."""
    z = logits.astype(np.float64)
    z = z - z.max(axis=-1, keepdims=True)
    made: NDArray[np.float64] = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    return made


def divergence(reference: Floats, logits: Floats) -> float:
    """KL(reference || logits) in nats, the mean over the positions [positions, vocabulary]."""
    p, q = log_softmax(reference), log_softmax(logits)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())
