"""The rules of each language, by the names of published models."""

from __future__ import annotations

from golem_pockettts.languages import LANGUAGES, published_rules


def test_every_language_has_its_rules():
    assert sorted(LANGUAGES) == [
        "dutch", "english", "french", "german", "italian", "portuguese", "spanish",
    ]  # fmt: skip
    assert published_rules("french_24l", None).no_semicolons
    assert published_rules("french", None).replace[":"] == ","
    assert published_rules("english_2026-01", None).pad_short
    assert published_rules("english_7m_2026-10", None).replace["—"] == ","
    assert "—" not in published_rules("spanish", None).replace
