"""The tiny models that recordings are of: drawn alike everywhere, quantised into valid blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ref import tiny
from ref.quantise import dequantise, quantise

from golem_core.weights import open_weights

RECORDINGS = Path(__file__).parent / "recordings"

# The root of the mean squared error on numbers of variance 1; the format's own, roughly.
ERRORS = {
    "F32": 0.0,
    "F16": 0.0003,
    "BF16": 0.002,
    "Q8_0": 0.006,
    "Q6_K": 0.02,
    "Q5_K": 0.04,
    "Q5_1": 0.04,
    "Q5_0": 0.045,
    "Q4_K": 0.08,
    "Q4_1": 0.08,
    "Q4_0": 0.09,
    "IQ4_NL": 0.09,
    "IQ4_XS": 0.09,
    "MXFP4": 0.12,
    "Q3_K": 0.2,
    "Q2_K": 0.34,
}


def test_the_numbers_are_the_same_everywhere():
    drawn = tiny.normal((4,), 1, "a")
    expected = [0.09297721832990646, 1.1829619407653809, -0.7354925870895386, -1.4828253984451294]
    np.testing.assert_array_equal(drawn, np.array(expected, np.float32))


def test_the_numbers_are_bell_shaped():
    drawn = tiny.normal((1 << 16,), 1, "x")
    assert abs(float(drawn.mean())) < 0.02
    assert abs(float(drawn.std()) - 1) < 0.02


def test_every_format_has_a_bound():
    assert sorted(ERRORS) == sorted(tiny.FORMATS)


@pytest.mark.parametrize("form", tiny.FORMATS)
def test_blocks_stand_for_what_was_quantised(form):
    x = tiny.normal((64, 512), 1, form)
    x[3] = 0
    error = dequantise(quantise(x, form), form) - x
    assert float(np.sqrt(np.mean(error**2))) <= ERRORS[form]
    assert not error[3].any()


def test_a_row_that_is_no_whole_blocks_is_refused():
    with pytest.raises(ValueError, match="Q4_K takes blocks of 256; the matrix has 96 columns"):
        quantise(np.zeros((1, 96), np.float32), "Q4_K")


@pytest.mark.parametrize("name", tiny.TINY)
def test_golem_reads_the_very_numbers(name, tiny_file):
    path, _ = tiny_file(name)
    with open_weights(path) as weights:
        for tensor, values in tiny.tensors(tiny.TINY[name]):
            stored = weights.tensors[tensor].dequantize()
            np.testing.assert_array_equal(stored.reshape(values.shape), values)


@pytest.mark.parametrize("form", tiny.FORMATS)
def test_golem_reads_the_very_blocks(form, tiny_file):
    path, _ = tiny_file("llama-wide", form)
    with open_weights(path) as weights:
        for tensor, values in tiny.stored(tiny.TINY["llama-wide"], form):
            stored = weights.tensors[tensor].dequantize()
            np.testing.assert_array_equal(stored.reshape(values.shape), values)


def test_the_recordings_stay_small():
    assert sum(path.stat().st_size for path in RECORDINGS.rglob("*.*")) < 3_500_000
