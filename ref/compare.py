"""How far logits are from the reference's: the divergence that recordings and tests share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def among(logs: ArrayLike, top: ArrayLike, logits: Floats) -> float:
    """KL among the likeliest tokens alone, in nats, the mean over the positions.

    `top` [positions, k] are tokens and `logs` their logarithmic probabilities by the reference,
    as if there were no others; `logits` [positions, vocabulary] are the engine's.
    """
    p = log_softmax(np.asarray(logs, np.float32))
    q = log_softmax(np.take_along_axis(logits, np.asarray(top), axis=1))
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def grouped(logs: ArrayLike, top: ArrayLike, rest: ArrayLike, logits: Floats) -> float:
    """KL of the likeliest tokens one by one and of all others as one, in nats, the mean.

    `logs` [positions, k] are the logarithmic probabilities of the tokens `top`, `rest` [positions]
    that of all others together; `logits` [positions, vocabulary] are the engine's. A lower bound
    of the whole divergence, close to it where `rest` is small.
    """
    q = log_softmax(logits)
    mine = np.take_along_axis(q, np.asarray(top, np.int64), axis=1)
    others = np.log((np.exp(q).sum(axis=1) - np.exp(mine).sum(axis=1)).clip(min=1e-300))
    p, left = np.asarray(logs, np.float64), np.asarray(rest, np.float64)
    whole = (np.exp(p) * (p - mine)).sum(axis=1) + np.exp(left) * (left - others)
    return float(whole.mean())
