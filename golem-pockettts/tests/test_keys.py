"""A configuration's keys: those of the makers, and slips that are refused by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golem_core.errors import BadWeights
from golem_pockettts.keys import KEYS, check_keys

PATH = Path("model.yaml")


def filled(known: Any) -> Any:
    return 1 if known is None else {key: filled(below) for key, below in known.items()}


def test_every_key_may_be_there_and_none_must() -> None:
    check_keys({**filled(KEYS), "replace_characters": {"’": "'", "«": ""}}, PATH)
    check_keys({}, PATH)
    check_keys({"flow_lm": None, "mimi": {"seanet": None}}, PATH)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"extra": 1}, "extra is no key of a Pocket TTS configuration"),
        ({"default_temprature": 1}, "did you mean default_temperature?"),
        ({"flow_lm": {"z_dimm": 1}}, "flow_lm.z_dimm is no key of a Pocket TTS configuration; did"),
        ({"mimi": {"seanet": {"kernal_size": 3}}}, "did you mean mimi.seanet.kernel_size?"),
        ({"mimi": 3}, "mimi is 3, expected keys below it"),
        ({"flow_lm": {"flow": ["x"]}}, "flow_lm.flow is ['x'], expected keys below it"),
        ({3: 4}, "3 is no key"),
        ({"replace_characters": {"ab": "c"}}, "replace_characters has 'ab': 'c', expected one"),
        ({"replace_characters": {"a": 1}}, "replace_characters has 'a': 1, expected one"),
    ],
)
def test_slips_are_named(document: dict[Any, Any], message: str) -> None:
    with pytest.raises(BadWeights) as refused:
        check_keys(document, PATH)
    assert message in str(refused.value)
    assert str(refused.value).endswith("(model.yaml)")
