"""What is cut is within the limit, a beginning of the text, and says that it was cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.github.limits import cut_line, cut_text

LINES = st.lists(st.text(max_size=80), max_size=30).map("\n".join)


@given(LINES, st.integers(150, 600))
def test_a_cut_text_fits_and_begins_as_the_text_does(text: str, limit: int) -> None:
    cut = cut_text(text, limit)
    beginning = cut.partition("\n\n*")[0] if len(text) > limit else cut
    assert len(cut) <= limit and text.startswith(beginning)


@given(LINES, st.integers(150, 600))
def test_a_text_is_whole_or_says_how_many_lines_are_missing(text: str, limit: int) -> None:
    assert (cut_text(text, limit) == text) is (len(text) <= limit)
    assert len(text) <= limit or "lines are left out" in cut_text(text, limit)


@given(st.text(), st.integers(1, 50))
def test_a_cut_line_is_one_line_within_the_limit(text: str, limit: int) -> None:
    line = cut_line(text, limit)
    assert len(line) <= limit and len(line.splitlines()) <= 1
