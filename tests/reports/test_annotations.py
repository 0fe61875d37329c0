"""Laws of annotations: worst first, within what GitHub keeps of a step, and no text that becomes a command."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.model.words import Outcome
from reports.annotations import MAX_ANNOTATIONS, render_annotations
from tests.reports.many_findings import view_of, with_findings
from tests.reports.pages import NAMES

COMMAND = re.compile(r"::(error|warning|notice) [^\r\n]*?::[^\r\n]*")


@pytest.mark.parametrize("name", NAMES)
def test_each_line_is_one_command(examples: dict[str, Path], name: str) -> None:
    lines = render_annotations(view_of(examples[name])).split("\n")
    assert all(COMMAND.fullmatch(line) for line in lines[:-1])
    assert lines[-1] == ""


@pytest.mark.parametrize("name", NAMES)
def test_no_more_are_given_than_github_keeps(examples: dict[str, Path], name: str) -> None:
    text = render_annotations(view_of(examples[name]))
    assert all(text.count(f"::{level} ") <= MAX_ANNOTATIONS for level in ("error", "warning", "notice"))


def test_what_is_cut_is_counted(examples: dict[str, Path]) -> None:
    text = render_annotations(with_findings(view_of(examples["reject"]), 37, Outcome.FAIL))
    assert text.count("::error ") == MAX_ANNOTATIONS
    assert "::notice title=fasttrack::27 further findings are in the report." in text


def test_many_findings_of_one_check_hide_none_of_another(examples: dict[str, Path]) -> None:
    view = with_findings(view_of(examples["reject"]), 37, Outcome.FAIL)
    (card,) = view.checks
    other = replace(card, id=replace(card.id, text="ISO999"), open=card.open[:1])
    assert render_annotations(replace(view, checks=(card, other))).count("title=ISO999") == 1


def test_a_finding_stands_at_its_lines(examples: dict[str, Path]) -> None:
    text = render_annotations(with_findings(view_of(examples["reject"]), 1, Outcome.FAIL))
    assert text.startswith("::error file=own/a.py,line=1,endLine=2,title=")


def test_an_open_question_is_a_warning_and_says_so(examples: dict[str, Path]) -> None:
    text = render_annotations(with_findings(view_of(examples["reject"]), 1, Outcome.INCONCLUSIVE))
    assert text.startswith("::warning file=own/a.py")
    assert "::inconclusive: It is so." in text


def test_text_of_a_change_cannot_begin_a_command_nor_a_property(examples: dict[str, Path]) -> None:
    hostile = "50%\r\n::stop-commands::x\n::error file=b.py,line=1::no"
    text = render_annotations(with_findings(view_of(examples["reject"]), 1, Outcome.FAIL, text=hostile))
    assert text.count("\n") == 1
    assert "50%25%0D%0A::stop-commands::x%0A::error file=b.py" in text


def test_checks_that_were_not_run_are_named_in_one_notice(examples: dict[str, Path]) -> None:
    text = render_annotations(view_of(examples["undecided"]))
    assert text.count("::notice ") == 1
    assert "Not run, so nothing is known: PERF002." in text


def test_a_report_that_admits_marks_no_line(examples: dict[str, Path]) -> None:
    text = render_annotations(view_of(examples["admit"]))
    assert "::error " not in text
    assert "::warning " not in text
