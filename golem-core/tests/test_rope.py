"""How far the pairs of a head turn, as numbers, and which keys of a file ask for it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from golem_core.errors import BadWeights, Unsupported
from golem_core.graph import Rope, Yarn, stretched_rope
from golem_core.testing import decoder
from golem_core.weights import Keys, open_weights

# transformers 5.17, `_compute_yarn_parameters`, float32, of a head of 16.
QWEN = (
    dict(base=1e6, scale=1 / 4, yarn=Yarn(64)),
    [1.0, 0.11114246398210526, 0.007905694656074047, 0.0014058533124625683, 0.0002500000118743628,
     4.4456985051510856e-05, 7.905693564680405e-06, 1.405853367941745e-06],
)  # fmt: skip
BETAS = (
    dict(base=1e4, scale=1 / 8, yarn=Yarn(256, fast=8.0, slow=2.0)),
    [1.0, 0.3162277638912201, 0.05625000223517418, 0.0039528473280370235, 0.0012499999720603228,
     0.00039528473280370235, 0.0001250000059371814, 3.9528473280370235e-05],
)  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), [QWEN, BETAS])
def test_yarn_turns_as_in_transformers(given, expected):
    found = Rope(16, given["base"], scale=given["scale"], yarn=given["yarn"]).frequencies()
    np.testing.assert_allclose(found, expected, rtol=2e-7)  # theirs are float32


def test_yarn_of_no_mix_stretches_all_alike():
    plain = Rope(16, 1e6, scale=1 / 4).frequencies()
    mixed = Rope(16, 1e6, scale=1 / 4, yarn=Yarn(64, mix=0.0)).frequencies()
    np.testing.assert_array_equal(plain, mixed)


def test_a_ramp_of_no_length_divides_by_nothing():
    kept = Yarn(64, fast=1.0, slow=1.0).kept(16, 1e6)
    assert np.isfinite(kept).all()
    assert sorted(set(kept)) == [0.0, 1.0]


@pytest.fixture
def asked(tmp_path):
    """A function from keys of a file to the rope that it asks for."""

    def ask(**scaling):
        keys = {f"rope.scaling.{key}": value for key, value in scaling.items()}
        path = decoder("some", keys=keys).write(tmp_path / "some.gguf")
        with open_weights(path) as weights:
            return stretched_rope(Keys(weights, "some"), 16)

    return ask


def test_files_ask_for_nothing(asked):
    rope = asked()
    assert (rope.dims, rope.base, rope.scale, rope.magnitude) == (16, 10000.0, 1.0, 1.0)
    assert rope.yarn is None


@pytest.mark.parametrize(
    ("keys", "scale"),
    [
        ({"factor": 4.0}, 0.25),
        ({"type": "linear", "factor": 4.0}, 0.25),
        ({"type": "linear"}, 1.0),
        ({"type": "none", "factor": 4.0}, 1.0),
    ],
)
def test_files_ask_for_a_linear_stretch(asked, keys, scale):
    assert asked(**keys).scale == scale
    assert asked(**keys).yarn is None


# What cos and sin are multiplied by: transformers' attention_factor.
YARN = {"type": "yarn", "factor": 4.0, "original_context_length": 128}
MAGNITUDES = [
    ({}, 0.1 * math.log(4) + 1),
    ({"attn_factor": 0.5}, 0.5 * (0.1 * math.log(4) + 1)),
    ({"yarn_attn_factor": 1.25}, 1.25),
    ({"yarn_log_multiplier": 1.0}, 1.0),
    ({"yarn_log_multiplier": 0.5}, (0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1)),
    ({"factor": 0.5}, 1.0),
    ({"yarn_ext_factor": 0.0}, 1.0),
]


@pytest.mark.parametrize(("keys", "magnitude"), MAGNITUDES)
def test_files_ask_for_yarn(asked, keys, magnitude):
    rope = asked(**{**YARN, **keys})
    assert rope.magnitude == pytest.approx(magnitude, rel=1e-6)  # a file's numbers are float32
    assert rope.scale == 1 / {**YARN, **keys}["factor"]


def test_yarn_reads_its_keys(asked):
    given = {"yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0, "yarn_ext_factor": 0.5}
    assert asked(**YARN).yarn == Yarn(128)
    assert asked(**YARN, **given).yarn == Yarn(128, 16.0, 2.0, 0.5)
    assert asked(type="yarn", factor=4.0).yarn == Yarn(512)  # the file's context


def test_unusable_ropes_are_refused(asked):
    with pytest.raises(BadWeights, match=r"some\.rope\.scaling\.factor is missing"):
        asked(type="yarn")
    with pytest.raises(Unsupported, match=r"some\.rope\.scaling\.type is 'longrope'"):
        asked(type="longrope")
    with pytest.raises(Unsupported, match=r"some\.rope\.scaling\.alpha is 2\.0"):
        asked(alpha=2.0)
