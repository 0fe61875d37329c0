"""Laws of the one byte form that digests are taken of."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from harness.model.record import Record, render_canonical_json


class Held(Record):
    """Texts wherever a record can hold them."""

    name: str
    parts: tuple[tuple[str, ...], ...] = ()
    table: dict[str, str] = Field(default_factory=dict)


def test_the_byte_form_has_sorted_keys_no_spaces_and_characters_as_they_are() -> None:
    assert render_canonical_json({"b": [1, 2.5], "a": "ö"}) == '{"a":"ö","b":[1,2.5]}'.encode()


def test_what_is_not_a_number_has_no_byte_form() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        render_canonical_json([float("nan")])


@given(st.text(alphabet=st.characters()), st.text(alphabet=st.characters(categories=["Cs"])))
def test_every_text_of_python_becomes_json_that_reads_back_as_the_same_record(one: str, two: str) -> None:
    held = Held(name=one + two, parts=((one,), (two, one)), table={two: one, one: two})
    assert Held.model_validate_json(render_canonical_json(held)) == held


def test_half_a_surrogate_pair_is_written_as_its_escape_and_other_text_as_it_is() -> None:
    written = json.loads(render_canonical_json(Held(name="\udc80ö", table={"\ud800": "\U0001f600"})))
    assert (written["name"], written["table"]) == ("\\udc80ö", {"\\ud800": "\U0001f600"})


class Nested(Record):
    texts: tuple[int | str | tuple[str, ...], ...]


@pytest.mark.parametrize("half", [("\ud800",), (1, "\ud800"), (1, ("a", "\ud800")), (1, (), "\ud800")])
def test_half_a_pair_is_found_beside_numbers_and_inside_other_tuples(half: tuple[object, ...]) -> None:
    assert "\\\\ud800" in Nested(texts=half).model_dump_json()  # type: ignore[arg-type]
