"""Laws of what is shown: nothing hides in text, and numbers stay numbers."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.shown import Shown, clip, format_number, format_together, pointer, visible

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.text())
def test_visible_text_holds_only_printable_characters(text: str) -> None:
    assert visible(text).isprintable()


@given(st.text(st.characters(categories=["L", "N"]), max_size=30))
def test_letters_and_digits_of_every_script_stay_as_they_are(text: str) -> None:
    assert visible(text) == text


def test_texts_that_differ_only_in_hidden_characters_look_different() -> None:
    assert visible("pay\u200bload") != visible("payload")
    assert visible("\u202eabc") == "\\u202eabc"


@given(FLOATS)
def test_a_float_is_shown_within_half_of_its_last_digit(value: float) -> None:
    shown = Fraction(format_number(value).replace(",", ""))
    assert abs(shown - Fraction(value)) <= abs(Fraction(value)) * Fraction(501, 100_000)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (1.0, "1.00"), (0.999999, "1.00"), (1.0234, "1.02"), (12345.6, "12,300"),
        (0.000123, "0.000123"), (0.0000123, "1.23e-5"), (-1e300, "-1.00e300"), (41, "41"), (5120, "5,120"),
        (99.96, "100"), (2.5, "2.50"),
    ],
)  # fmt: skip
def test_numbers_are_written_with_three_significant_digits(value: float, text: str) -> None:
    assert format_number(value) == text


@given(st.lists(FLOATS, min_size=2, max_size=4))
def test_numbers_of_one_comparison_look_equal_only_when_eight_digits_are(values: list[float]) -> None:
    texts = format_together(values)
    for a, text_a in zip(values, texts, strict=True):
        for b, text_b in zip(values, texts, strict=True):
            if text_a == text_b:
                assert a == pytest.approx(b, rel=2e-7, abs=0)


def test_an_interval_that_ends_just_inside_its_margin_is_seen_to() -> None:
    assert format_together([1.0123, 1.0196, None, 1.02]) == ("1.0123", "1.0196", None, "1.0200")


def test_numbers_that_no_shown_digit_tells_apart_are_not_written_with_all_digits() -> None:
    ends = (2.260039003477445e-12, 2.2600390039851825e-12, 1e-05)
    assert format_together(ends) == ("2.26e-12", "2.26e-12", "1.00e-5")


def test_a_clipped_text_says_that_it_is_a_part() -> None:
    clipped = clip(Shown(text="a" * 50, ref="x#/y"), 10)
    assert (clipped.text, clipped.is_part) == ("aaaaaaaaa…", True)


def test_a_pointer_escapes_what_json_pointers_reserve() -> None:
    assert pointer("manifest.json", "files", "evidence/a~b", 0) == "manifest.json#/files/evidence~1a~0b/0"
    assert pointer("x.json", "a b\n") == "x.json#/a%20b%0A"


@given(st.text(st.sampled_from("a\u0337\u0361\u0301"), max_size=12))
def test_at_most_two_marks_are_painted_over_one_letter(text: str) -> None:
    assert not re.search("[\u0337\u0361\u0301]{3}", visible(text))


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("a difference of +0.123 in all", 20, "a difference of…"),
        ("a difference of 1,234,567.5", 20, "a difference of…"),
        ("one two three", 8, "one two…"),
        ("one two three", 9, "one two…"),
        ("0123456789abcdef", 9, "01234567…"),
        ("at " + "x" * 40, 20, "at " + "x" * 16 + "…"),
        ("short", 5, "short"),
    ],
)
def test_what_is_cut_is_cut_between_words_and_never_in_a_number(text: str, limit: int, kept: str) -> None:
    assert clip(Shown(text=text, ref="r"), limit).text == kept
