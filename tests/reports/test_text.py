"""Laws of the terminal report: verdict first, lines that fit, and nothing that moves the cursor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bundles.reader import read_bundle
from reports.json_document import render_json
from reports.text import render_text
from reports.view import ReportView, build_view
from tests.bundles.examples import CHECK_HELP
from tests.reports.pages import NAMES

COLOR = re.compile(r"\x1b\[[0-9]+m")


def view_of(folder: Path) -> ReportView:
    return build_view(read_bundle(folder), CHECK_HELP)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_word_is_the_verdict(examples: dict[str, Path], name: str) -> None:
    view = view_of(examples[name])
    assert render_text(view, color=False, ascii_only=False).split()[0] == view.header.verdict.upper()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [60, 100])
def test_no_line_is_wider_than_asked(examples: dict[str, Path], name: str, width: int) -> None:
    text = render_text(view_of(examples[name]), color=False, ascii_only=False, width=width)
    assert max(len(line) for line in text.splitlines()[1:]) <= width


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_form_is_ascii_without_escapes(examples: dict[str, Path], name: str) -> None:
    text = render_text(view_of(examples[name]), color=False, ascii_only=True)
    assert text.isascii()
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_color_adds_color_and_nothing_else(examples: dict[str, Path], name: str) -> None:
    view = view_of(examples[name])
    colored = render_text(view, color=True, ascii_only=False)
    assert COLOR.sub("", colored) == render_text(view, color=False, ascii_only=False)
    assert COLOR.search(colored)


def test_every_check_is_listed_and_failing_findings_come_first(examples: dict[str, Path]) -> None:
    view = view_of(examples["reject"])
    text = render_text(view, color=False, ascii_only=False)
    listed, opened = text.split("What does not let the change through")
    assert all(card.id.text in listed for card in view.checks)
    words = re.findall(r"^[✗○] (fail|not run)", opened.split("Numbers")[0], re.MULTILINE)
    assert words == ["fail"] * 4 + ["not run"]


def test_the_terminal_says_what_the_report_does_not_show(examples: dict[str, Path]) -> None:
    text = render_text(view_of(examples["undecided"]), color=False, ascii_only=True)
    assert "gpu tier not run (PERF002): This machine has no CUDA device." in text


def test_a_check_that_found_nothing_is_listed_as_open(examples: dict[str, Path]) -> None:
    text = render_text(view_of(examples["silent"]), color=False, ascii_only=True)
    assert "The check gave no finding" in text


def test_the_json_document_is_the_bundles_judgement(examples: dict[str, Path]) -> None:
    for name in NAMES:
        text = render_json(read_bundle(examples[name]).judgement)
        assert text == (examples[name] / "judgement.json").read_text("utf-8")
