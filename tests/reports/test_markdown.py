"""Laws of the Markdown form: one screen, and no text of the change that calls, links or breaks the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundles.reader import read_bundle
from reports.markdown import MAX_LINES, escape_markdown, render_markdown
from reports.view import build_view
from tests.bundles.examples import CHECK_HELP
from tests.reports.pages import NAMES


def markdown_of(folder: Path) -> str:
    return render_markdown(build_view(read_bundle(folder), CHECK_HELP))


@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_fits_a_comment(examples: dict[str, Path], name: str) -> None:
    text = markdown_of(examples[name])
    assert len(text.splitlines()) <= MAX_LINES
    assert len(text) <= 65_536


@pytest.mark.parametrize("name", NAMES)
def test_every_table_row_has_as_many_cells_as_its_head(examples: dict[str, Path], name: str) -> None:
    width = 0
    for line in markdown_of(examples[name]).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not width or not cells or cells == width
        width = cells


def test_the_verdict_and_what_to_ask_for_come_in_words(examples: dict[str, Path]) -> None:
    text = markdown_of(examples["undecided"])
    assert text.startswith("## ? Undecided: “Kimi K3 specialised decode path”\n")
    assert "- ○ **not run** PERF002: No GPU has run this change" in text


def test_what_is_shown_is_said_for_each_principle_even_when_it_is_nothing(examples: dict[str, Path]) -> None:
    lines = markdown_of(examples["undecided"]).partition("**What is shown**")[2].splitlines()[2:6]
    assert [line.partition("**:")[0] for line in lines] == [
        "- **Isolation", "- **Scope", "- **Correctness", "- **Performance",
    ]  # fmt: skip
    assert "- **Scope**: nothing yet" in markdown_of(examples["silent"])


def test_nothing_of_a_hostile_change_calls_anybody_or_leads_anywhere(examples: dict[str, Path]) -> None:
    text = markdown_of(examples["hostile"])
    assert "@everyone" not in text
    assert "https://evil" not in text
    assert not re.search(r"(?<!\\)<(?!!--)", text)
    assert not re.search(r"#\d", text)


@given(st.text(max_size=200))
def test_escaped_text_stays_on_its_line_and_holds_no_bare_markup(text: str) -> None:
    escaped = escape_markdown(text)
    assert len(escaped.splitlines()) <= 1
    bare = re.sub(r"\\[\\`*_\[\]#|~$!]|&(lt|gt|amp);", "", escaped)
    assert not re.search(r"[`*_\[\]<>|~$!]", bare)
    assert not re.search(r"@[^\u200b]", escaped)


def test_ordinary_sentences_stay_readable() -> None:
    sentence = "31 of 40 answers agree (0.775), the margin is 0.95: see `greedy`."
    assert escape_markdown(sentence) == sentence.replace("`", "\\`")
