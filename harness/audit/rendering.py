"""Findings of an audit as text, JSON or Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harness.model.finding import Finding
from harness.model.words import Outcome

_COLORS = {Outcome.PASS: "32", Outcome.FAIL: "31", Outcome.INCONCLUSIVE: "33", Outcome.NOT_RUN: "34"}
_ORDER = (
    Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_RUN, Outcome.PASS, Outcome.NOT_APPLICABLE
)  # fmt: skip


def count_outcomes(findings: Sequence[Finding]) -> dict[str, int]:
    """How many findings there are of each outcome that occurs, worst first."""
    counts = {o.value: sum(f.outcome is o for f in findings) for o in _ORDER}
    return {name: count for name, count in counts.items() if count}


def render_text(findings: Sequence[Finding], *, color: bool = False, verbose: bool = False) -> str:
    """One block a kernel; paths for what is not in order; what does not apply only when `verbose`."""
    lines: list[str] = []
    for subject in dict.fromkeys(f.subject for f in findings):
        lines.append(_plain(subject))
        mine = [f for f in findings if f.subject == subject]
        for finding in sorted(mine, key=lambda f: _ORDER.index(f.outcome)):
            if finding.outcome is Outcome.NOT_APPLICABLE and not verbose:
                continue
            lines.append(f"  {_paint(finding.outcome, color)}  {finding.check}  {_plain(finding.message)}")
            if finding.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE) or verbose:
                lines += [f"        {_plain(detail)}" for detail in finding.details]
                lines += [f"        help: {_plain(finding.advice)}"] if finding.advice else []
        lines.append("")
    counts = count_outcomes(findings)
    lines.append(", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing was audited")
    return "\n".join(lines) + "\n"


def _paint(outcome: Outcome, color: bool) -> str:
    word = f"{outcome.value:<14}"
    return f"\x1b[{_COLORS.get(outcome, '2')}m{word}\x1b[0m" if color else word


def _plain(text: str) -> str:
    """Names come from the audited files: what could move the cursor is shown as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def render_json(findings: Sequence[Finding], exit_code: int) -> str:
    """One document."""
    document: dict[str, Any] = {
        "schema_version": 1,
        "outcomes": count_outcomes(findings),
        "exit_code": exit_code,
        "findings": [f.model_dump(mode="json") for f in findings],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render_markdown(findings: Sequence[Finding]) -> str:
    """A table of what was decided, then the paths."""
    lines = ["| outcome | check | kernel | what |", "|---|---|---|---|"]
    shown = [f for f in findings if f.outcome is not Outcome.NOT_APPLICABLE]
    shown.sort(key=lambda f: _ORDER.index(f.outcome))
    lines += [f"| {f.outcome.value} | {f.check} | {_cell(f.subject)} | {_cell(f.message)} |" for f in shown]
    for finding in shown:
        if finding.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE) and finding.details:
            lines += ["", f"**{finding.check}** {_cell(finding.subject)}", "", "```text"]
            lines += [_plain(d).replace("```", "'''") for d in finding.details]
            lines += ["```"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    for mark in "\\|`*_<>[]":
        text = text.replace(mark, f"\\{mark}")
    return _plain(text)
