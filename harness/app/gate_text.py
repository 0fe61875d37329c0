"""The gate's answer as GitHub shows it: Markdown in which the texts of a change are text and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.github.limits import MAX_ANNOTATION_BYTES, MAX_ANNOTATIONS, MAX_TITLE, cut_line
from harness.model.words import ExitCode, Outcome, Verdict
from reports.annotations import name_of_file
from reports.markdown import escape_markdown, render_markdown
from reports.open_findings import OpenFinding, open_findings
from reports.shown import visible
from reports.view import ReportView

_GLYPHS = {Verdict.ADMIT: "✓", Verdict.REJECT: "✗", Verdict.UNDECIDED: "?"}
_TITLES = {
    Verdict.ADMIT: "Admit: every check that the policy requires lets the change through",
    Verdict.REJECT: "Reject: a required check failed",
    Verdict.UNDECIDED: "Undecided: nothing failed, and something is still missing",
}
_WAIVED_TITLES = {
    Verdict.ADMIT: "Admit, in spite of checks that are waived",
    Verdict.REJECT: "Reject: a required check failed, though others are waived",
    Verdict.UNDECIDED: "Undecided: something is still missing, besides what is waived",
}
_MAX_LINE = 1000
_MAX_REASONS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the gate says of one head."""

    verdict: Verdict
    code: ExitCode
    lines: tuple[str, ...]
    """Why, one reason a line; they may quote what a bundle holds."""
    view: ReportView | None = None
    """None where there was nothing that could be judged."""
    waived: tuple[str, ...] = ()
    """Ids of the checks in spite of which the gate lets through."""
    is_stale: bool = False
    is_from_fork: bool = False


def render_title(answer: Answer) -> str:
    """One line, plain."""
    if answer.is_stale:
        return "Stale: the head of the pull request moved"
    if answer.code is ExitCode.HARNESS:
        reason = visible(answer.lines[0]) if answer.lines else "no reason was given"
        return cut_line(f"Nothing shown: {reason}", MAX_TITLE)
    if answer.waived:
        return cut_line(f"{_WAIVED_TITLES[answer.verdict]}: {', '.join(answer.waived)}", MAX_TITLE)
    return _TITLES[answer.verdict]


def render_summary(answer: Answer, notes: Sequence[str] = (), *, with_view: bool = True) -> str:
    """Markdown: the gate's reasons, and what the evidence shows under its policy."""
    lines = [f"# Gate: {_GLYPHS[answer.verdict]} {escape_markdown(render_title(answer), _MAX_LINE)}", ""]
    reasons = (*answer.lines, *notes)
    lines += [f"- {escape_markdown(visible(line), _MAX_LINE)}" for line in reasons[:_MAX_REASONS]]
    if len(reasons) > _MAX_REASONS:
        lines.append(f"- {len(reasons) - _MAX_REASONS} more reasons: `fasttrack gate` names them all.")
    if answer.is_from_fork:
        lines.append(
            "- The head lies in a fork: its bundle was made by its own code, and counts as far as the policy trusts it."
        )
    lines += _left_out(answer.view)
    text = "\n".join(lines) + "\n\n"
    return text + (render_markdown(answer.view) if with_view and answer.view else "")


def render_comment(answer: Answer, head_sha: str, check_url: str | None) -> str:
    """The comment's Markdown: as the check run's summary, and where the rest is."""
    where = f"[check run]({check_url})" if check_url and _is_plain_url(check_url) else "check run"
    return (
        f"{render_summary(answer)}\nJudged: {head_sha}. Annotations are in the {where}. This comment is written anew"
        " for each head; what it says holds for this one only.\n"
    )


def render_annotations(view: ReportView | None) -> list[dict[str, Any]]:
    """The open findings that stand in a file, worst first, as the check run's API takes them."""
    placed, _ = _placed(view)
    return [_annotation(finding) for finding in placed[:MAX_ANNOTATIONS]]


def _placed(view: ReportView | None) -> tuple[list[OpenFinding], int]:
    found = [
        f
        for f in (open_findings(view) if view else ())
        if f.place is not None and f.outcome is not Outcome.NOT_RUN
    ]
    return found, max(0, len(found) - MAX_ANNOTATIONS)


def _left_out(view: ReportView | None) -> list[str]:
    _, number = _placed(view)
    return [f"- {number} findings have no annotation here: the report holds all."] if number else []


def _annotation(finding: OpenFinding) -> dict[str, Any]:
    place = finding.place
    assert place is not None
    line = max(place.line or 1, 1)
    is_failure = finding.required and finding.outcome in (Outcome.FAIL, Outcome.ERROR)
    said = finding.message if finding.outcome is Outcome.FAIL else f"{finding.word}: {finding.message}"
    text = f"{said}\n{finding.advice}" if finding.advice else said
    return {
        "path": name_of_file(place.path),
        "start_line": line,
        "end_line": max(place.end_line or line, line),
        "annotation_level": "failure" if is_failure else "warning",
        "title": cut_line(f"{finding.check}: {finding.subject}", MAX_TITLE),
        "message": text.encode("utf-8")[:MAX_ANNOTATION_BYTES].decode("utf-8", "ignore"),
    }


def _is_plain_url(url: str) -> bool:
    return url.startswith("https://") and not set(url) & set(" ()<>[]\"'`\n")
