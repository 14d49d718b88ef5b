"""A recording made ready to be a voice: it ends on a pause, as the recordings of the training did.

A prompt that stops in the middle of a word makes a model go on with that word, and one that ends on
a long silence delays the first sound. So what is silent at the end is cut, the end is faded out,
and a short silence of always the same length follows.
"""

from __future__ import annotations

import numpy as np

from golem_core.speech import Samples

__all__ = ["end_on_pause"]

FRAME = 0.02  # seconds over which loudness is measured
FADE = 0.02
PAUSE = 0.08
SILENT = 35.0  # decibels below the loudest frame


def end_on_pause(samples: Samples, sample_rate: int) -> Samples:
    """The recording without its silent end, faded out, with a pause: float32 [samples].

    One that is shorter than a frame comes back as it is.
    """
    frame = max(1, int(FRAME * sample_rate))
    count = len(samples) // frame
    if not count:
        return samples
    powers = np.square(samples[: count * frame].reshape(count, frame)).mean(axis=1)
    levels = 20 * np.log10(np.sqrt(powers) + np.float32(1e-12))
    loud = np.flatnonzero(levels > levels.max() - SILENT)
    end = (int(loud[-1]) + 1) * frame
    fade = min(int(FADE * sample_rate), end)
    ended = np.zeros(end + int(PAUSE * sample_rate), np.float32)
    ended[:end] = samples[:end]
    ended[end - fade : end] *= np.linspace(1, 0, fade, dtype=np.float32)
    return ended
