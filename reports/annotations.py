"""The open findings as GitHub workflow commands, which the runner turns into annotations of the diff."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from harness.model.path_text import unescape_path
from harness.model.words import Outcome
from reports.open_findings import OpenFinding, open_findings
from reports.shown import visible
from reports.view import ReportView

MAX_ANNOTATIONS = 10
"""Of each level that GitHub keeps of one step."""
_MAX_TEXT = 3000
_MAX_TITLE = 200
Level = Literal["error", "warning", "notice"]


def render_annotations(view: ReportView) -> str:
    """One command a line: at most ten errors and ten warnings, and how many were left out.

    Required checks come first, and of each check one finding before a second of any.

    What was not run has no place in the diff: one notice names those checks.
    """
    found = open_findings(view)
    decided = [f for f in found if f.outcome is not Outcome.NOT_RUN]
    errors = [f for f in decided if f.required and f.outcome in (Outcome.FAIL, Outcome.ERROR)]
    warnings = [f for f in decided if f not in errors]
    lines = [_annotation("error", f) for f in _spread(errors)[:MAX_ANNOTATIONS]]
    lines += [_annotation("warning", f) for f in _spread(warnings)[:MAX_ANNOTATIONS]]
    cut = len(errors[MAX_ANNOTATIONS:]) + len(warnings[MAX_ANNOTATIONS:])
    if cut:
        lines.append(_command("notice", f"{cut} further findings are in the report.", title="fasttrack"))
    not_run = list(dict.fromkeys(f.check for f in found if f.outcome is Outcome.NOT_RUN))
    if not_run:
        text = f"Not run, so nothing is known: {', '.join(not_run)}."
        lines.append(_command("notice", text, title=f"fasttrack: {view.header.verdict}"))
    return "".join(f"{line}\n" for line in lines)


def _spread(findings: Sequence[OpenFinding]) -> list[OpenFinding]:
    """One finding of each check in turn, so that many of one hide none of another."""
    turns: Counter[str] = Counter()
    numbered = []
    for finding in findings:
        numbered.append(((not finding.required, turns[finding.check]), finding))
        turns[finding.check] += 1
    return [finding for _, finding in sorted(numbered, key=lambda pair: pair[0])]


def _annotation(level: Level, finding: OpenFinding) -> str:
    text = finding.message if finding.outcome is Outcome.FAIL else f"{finding.word}: {finding.message}"
    if finding.advice:
        text += f"\n{finding.advice}"
    return _command(level, text, title=f"{finding.check}: {finding.subject}", finding=finding)


def _command(level: Level, text: str, *, title: str, finding: OpenFinding | None = None) -> str:
    properties: list[tuple[str, str]] = []
    if finding is not None and finding.place is not None:
        place = finding.place
        properties.append(("file", name_of_file(place.path)))
        if place.line:
            properties += [("line", str(place.line)), ("endLine", str(max(place.end_line or 0, place.line)))]
    properties.append(("title", _cut(title, _MAX_TITLE)))
    joined = ",".join(f"{key}={_escape(value, _IN_PROPERTY)}" for key, value in properties)
    return f"::{level} {joined}::{_escape(_cut(text, _MAX_TEXT), _IN_TEXT)}"


def name_of_file(path: str) -> str:
    """The file as GitHub knows it; a name that is no text, or would steer a terminal, stays as evidence has it."""
    name = unescape_path(path).decode("utf-8", errors="replace")
    return name if "\ufffd" not in name and name.replace("\n", "").isprintable() else visible(path)


_IN_TEXT: Sequence[tuple[str, str]] = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_IN_PROPERTY = (*_IN_TEXT, (":", "%3A"), (",", "%2C"))


def _escape(text: str, table: Sequence[tuple[str, str]]) -> str:
    for character, escape in table:
        text = text.replace(character, escape)
    return text


def _cut(text: str, num_characters: int) -> str:
    return text if len(text) <= num_characters else text[: num_characters - 1] + "…"
