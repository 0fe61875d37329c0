"""Laws of the JUnit form: green exactly when admitted, every finding a case, any text well formed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.model.words import Outcome, Verdict
from reports.junit import MAX_CASES, render_junit
from reports.view import ReportView
from tests.reports.many_findings import view_of, with_findings
from tests.reports.pages import NAMES


def bad(root: ElementTree.Element) -> int:
    return int(root.get("failures", "-1")) + int(root.get("errors", "-1"))


def parsed(view: ReportView) -> ElementTree.Element:
    return ElementTree.fromstring(render_junit(view))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_a_failure_or_an_error_exactly_when_the_change_is_admitted(
    examples: dict[str, Path], name: str
) -> None:
    view = view_of(examples[name])
    assert (bad(parsed(view)) == 0) == (view.header.verdict is Verdict.ADMIT)


@pytest.mark.parametrize("name", NAMES)
def test_the_counts_are_those_of_the_cases(examples: dict[str, Path], name: str) -> None:
    root = parsed(view_of(examples[name]))
    for element in (root, *root):
        tags = ("testcase", "failure", "error")
        counted = [len(list(element.iter(tag))) for tag in tags]
        assert [element.get(key) for key in ("tests", "failures", "errors")] == [str(n) for n in counted]


@pytest.mark.parametrize("name", NAMES)
def test_every_finding_is_a_case_of_its_check(examples: dict[str, Path], name: str) -> None:
    view = view_of(examples[name])
    cases = [len(list(suite.iter("testcase"))) for suite in parsed(view)][1:]
    assert cases == [max(len(card.findings), 1) for card in view.checks]


@pytest.mark.parametrize("outcome", [Outcome.NOT_RUN, Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.FAIL])
def test_a_required_check_without_a_pass_is_never_skipped(
    examples: dict[str, Path], outcome: Outcome
) -> None:
    root = parsed(with_findings(view_of(examples["admit"]), 3, outcome))
    assert (bad(root), len(list(root.iter("skipped")))) == (3, 0)


def test_an_advisory_check_cannot_make_the_file_red(examples: dict[str, Path]) -> None:
    root = parsed(with_findings(view_of(examples["admit"]), 3, Outcome.FAIL, required=False))
    assert [e.get("message", "")[:14] for e in root.iter("skipped")] == ["advisory: fail"] * 3


def test_past_the_limit_one_case_counts_the_rest_and_is_as_red(examples: dict[str, Path]) -> None:
    root = parsed(with_findings(view_of(examples["admit"]), MAX_CASES + 7, Outcome.FAIL))
    *_, last = root.iter("testcase")
    assert (last.get("name"), bad(root)) == ("and 7 more findings", MAX_CASES + 1)


def test_a_verdict_that_no_finding_explains_is_still_red(examples: dict[str, Path]) -> None:
    root = parsed(with_findings(view_of(examples["undecided"]), 1, Outcome.PASS))
    assert [e.get("type") for e in root.iter("error")] == ["undecided"]
