"""Laws of the one byte form that digests are taken of."""

from __future__ import annotations

import pytest

from harness.model.record import render_canonical_json


def test_the_byte_form_has_sorted_keys_no_spaces_and_characters_as_they_are() -> None:
    assert render_canonical_json({"b": [1, 2.5], "a": "ö"}) == '{"a":"ö","b":[1,2.5]}'.encode()


def test_what_is_not_a_number_has_no_byte_form() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        render_canonical_json([float("nan")])
