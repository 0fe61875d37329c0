"""The report for a workflow's job summary: the first screen, and every open finding folded below it."""

from __future__ import annotations

from collections.abc import Iterator

from reports.markdown import escape_markdown, render_markdown
from reports.marks import MARKS
from reports.open_findings import OpenFinding, open_findings
from reports.shown import visible
from reports.view import ReportView

MAX_BYTES = 1_000_000
"""GitHub takes 1 MiB of one step; what is longer is not shown at all."""
_MAX_CELL = 600
_TABLE_HEAD = "| Check | Outcome | Where | What |\n| --- | --- | --- | --- |\n"


def render_job_summary(view: ReportView) -> str:
    """GitHub-flavoured Markdown of at most `MAX_BYTES`; says how many findings it leaves out."""
    first_screen = render_markdown(view)
    found = open_findings(view)
    if not found:
        return first_screen
    head = f"\n<details><summary>{len(found)} open findings</summary>\n\n{_TABLE_HEAD}"
    foot = "\n</details>\n"
    room = MAX_BYTES - len((first_screen + head + foot).encode()) - 200
    rows: list[str] = []
    for row in _rows(found):
        room -= len(row.encode())
        if room < 0:
            rows.append(f"| | | | and {len(found) - len(rows)} more, which the report holds |\n")
            break
        rows.append(row)
    return first_screen + head + "".join(rows) + foot


def _rows(found: tuple[OpenFinding, ...]) -> Iterator[str]:
    for finding in found:
        mark = MARKS[finding.outcome]
        need = "" if finding.required else ", advisory"
        place = finding.place
        line = f":{place.line}" if place is not None and place.line is not None else ""
        where = "" if place is None else visible(place.path) + line
        what = f"{finding.message} {finding.advice}"
        cells = (
            escape_markdown(finding.check, _MAX_CELL),
            f"{mark.glyph} {mark.word}{need}",
            escape_markdown(where or finding.subject, _MAX_CELL),
            escape_markdown(what, _MAX_CELL),
        )
        yield f"| {' | '.join(cells)} |\n"
