"""Bias and penalties: what changes logits before anything is chosen from them."""

from __future__ import annotations

import numpy as np

from golem_core.sampling.parameters import COMPELLING, Sampling


class Bias:
    """`Sampling.logit_bias` and the tokens that are never to be drawn, as arrays."""

    def __init__(self, sampling: Sampling, banned: frozenset[int] = frozenset()) -> None:
        compelled = {t: b for t, b in sampling.logit_bias.items() if b >= COMPELLING}
        added = {t: b for t, b in sampling.logit_bias.items() if abs(b) < COMPELLING and b != 0.0}
        never = {t for t, b in sampling.logit_bias.items() if b <= -COMPELLING} | set(banned)
        self._compelled = np.array(sorted(compelled), dtype=np.int64)
        self._never = np.array(sorted(never), dtype=np.int64)
        self._added = np.array(sorted(added), dtype=np.int64)
        self._bias = np.array([added[t] for t in sorted(added)], dtype=np.float32)
        # The tokens whose logits change; None: all may.
        self.ids = None if compelled else np.concatenate([self._added, self._never])

    @property
    def is_empty(self) -> bool:
        """Whether no logit is changed."""
        return not (self._compelled.size or self._never.size or self._added.size)

    def apply(self, logits: np.ndarray) -> None:
        """Changes `logits` [vocabulary] in place; what must not be drawn becomes -inf."""
        if self._added.size:
            logits[self._added] += self._bias
        if self._compelled.size:
            kept = logits[self._compelled]
            logits[:] = -np.inf
            logits[self._compelled] = kept
        if self._never.size:
            logits[self._never] = -np.inf


def recent(sampling: Sampling, tokens: np.ndarray) -> np.ndarray:
    """Those of `tokens` (int32, all so far) that penalties look at."""
    window = sampling.penalty_window
    return tokens if window < 0 else tokens[max(0, len(tokens) - window) :]


def penalise(logits: np.ndarray, sampling: Sampling, tokens: np.ndarray) -> None:
    """Changes `logits` [vocabulary] in place by the penalties for `tokens` (int32, all so far).

    A repeated token's logit is divided by `repeat_penalty` where it is positive and multiplied
    where it is not (Keskar et al., 2019, mended for negative logits), then loses
    `frequency_penalty` for each of its places in the window and `presence_penalty` once.
    """
    ids, counts = np.unique(recent(sampling, tokens), return_counts=True)
    values = logits[ids]
    repeat = np.float32(sampling.repeat_penalty)
    values = np.where(values <= 0.0, values * repeat, values / repeat)
    values -= counts.astype(np.float32) * np.float32(sampling.frequency_penalty)
    logits[ids] = values - np.float32(sampling.presence_penalty)
