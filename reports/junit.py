"""Every finding as a test case in JUnit's XML form, for CI systems that collect such files.

The form knows pass, failure, error and skipped. Many systems count a skipped case as harmless, so only what the
policy does not require may be one: a required check that was not run, or is inconclusive, is an error here. No case is
a failure or an error exactly when the verdict is `admit`.
"""

from __future__ import annotations

from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from harness.model.words import Outcome, Verdict
from reports.checks import CheckCard
from reports.findings import FindingView
from reports.marks import MARKS
from reports.open_findings import NO_FINDING
from reports.shown import plain
from reports.view import ReportView

MAX_CASES = 5000
"""Of all suites together; the report holds all findings."""
MAX_TEXT = 1500


def render_junit(view: ReportView) -> str:
    """The XML text: a suite for the verdict and one for each check, a case for each finding, worst first."""
    root = Element("testsuites", name="fasttrack")
    _add_verdict(root, view)
    room = MAX_CASES
    for card in view.checks:
        _add_check(root, card, max(room, 1))
        room -= len(card.findings)
    for suite in root:
        _count(suite)
    _count(root)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add_verdict(root: Element, view: ReportView) -> None:
    suite = SubElement(root, "testsuite", name="verdict")
    case = SubElement(suite, "testcase", classname="fasttrack", name="verdict")
    verdict, reason = view.header.verdict, plain(view.header.reason)
    if verdict is not Verdict.ADMIT:
        tag = "failure" if verdict is Verdict.REJECT else "error"
        _say(case, tag, str(verdict), reason)


def _add_check(root: Element, card: CheckCard, room: int) -> None:
    """The first `room` findings of a check, worst first, and a case that counts the rest."""
    suite = SubElement(root, "testsuite", name=f"{card.id.text}: {card.title.text}")
    if not card.findings:
        case = SubElement(suite, "testcase", classname=card.id.text, name=card.title.text)
        _tell(case, Outcome.ERROR, NO_FINDING, required=card.required)
    for finding in card.findings[:room]:
        case = SubElement(suite, "testcase", classname=card.id.text, name=_cut(finding.subject.text))
        _tell(case, finding.outcome, _text(finding), required=card.required)
    rest = card.findings[room:]
    if rest:
        case = SubElement(suite, "testcase", classname=card.id.text, name=f"and {len(rest)} more findings")
        _tell(case, rest[0].outcome, "They are in the report.", required=card.required)


def _tell(case: Element, outcome: Outcome, text: str, *, required: bool) -> None:
    word = MARKS[outcome].word
    if outcome is Outcome.PASS:
        return
    if outcome is Outcome.NOT_APPLICABLE:
        _say(case, "skipped", word, text)
    elif not required:
        _say(case, "skipped", f"advisory: {word}", text)
    else:
        _say(case, "failure" if outcome is Outcome.FAIL else "error", word, text)


def _say(case: Element, tag: str, word: str, text: str) -> None:
    """`skipped` has a message alone; the others have a type, too."""
    attributes = {"message": _cut(f"{word}: {text}")}
    if tag != "skipped":
        attributes["type"] = word
    SubElement(case, tag, attributes)


def _text(finding: FindingView) -> str:
    place = f"{finding.path.text}{f':{finding.line.text}' if finding.line else ''}: " if finding.path else ""
    advice = f" To do: {finding.advice.text}" if finding.advice else ""
    return f"{place}{finding.message.text}{advice}"


def _count(element: Element) -> None:
    """How many cases are below, and how they ended."""
    element.set("tests", str(len(list(element.iter("testcase")))))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        if attribute != "skipped" or element.tag == "testsuite":
            element.set(attribute, str(len(list(element.iter(tag)))))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
