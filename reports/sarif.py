"""The open findings as SARIF 2.1.0, for code scanning and editors."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import PurePosixPath
from urllib.parse import quote

from bundles.layout import SUBJECT_MANIFEST
from harness.model.path_text import unescape_path
from harness.model.words import Outcome
from reports.open_findings import OpenFinding, open_findings
from reports.sarif_objects import (
    ArtifactLocation,
    Driver,
    Invocation,
    Level,
    Message,
    Notification,
    PhysicalLocation,
    Region,
    Result,
    ResultLocation,
    Rule,
    RuleReference,
    Run,
    SarifLog,
    Tool,
)
from reports.shown import plain
from reports.view import ReportView

MAX_RESULTS = 5000
"""GitHub shows no more of one run."""
_MAX_TEXT = 1500
_NUMBER = re.compile(r"\d+")
_ADDRESS = re.compile(r"https?://[\w.-]+(:\d+)?(/[\w./~%@+-]*)?")


def render_sarif(view: ReportView, pages: str = "") -> str:
    """The SARIF text of a report: every open finding, worst first; what passed is not in it.

    `pages` is the address at which the pages of the checks can be read; what is no `https:` or `http:` one is left out.

    A finding that names no file stands at the manifest when the evidence decided something, and among the
    notifications when it was not run or broke.
    """
    log = SarifLog(runs=(_run(view, pages if _ADDRESS.fullmatch(pages) else ""),))
    text = log.model_dump_json(by_alias=True, exclude_none=True, indent=2)
    return text.replace('"schemaUri":', '"$schema":', 1) + "\n"


def _run(view: ReportView, pages: str) -> Run:
    found = open_findings(view)
    placed = [f for f in found if f.place is not None or f.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)]
    others = [f for f in found if f not in placed]
    index = {card.id.text: number for number, card in enumerate(view.checks)}
    notifications = [
        Notification(
            level=_level(f),
            message=_message(f),
            associated_rule=RuleReference(id=f.check) if f.check else None,
        )
        for f in others
    ]
    if (rest := len(placed) - MAX_RESULTS) > 0:
        text = f"{rest} further findings are not in this log; the report holds all."
        notifications.append(Notification(level="warning", message=Message(text=text)))
    seen: Counter[str] = Counter()
    header = view.header
    return Run(
        tool=Tool(driver=Driver(version=header.harness_version.text, rules=_rules(view, pages))),
        invocations=(
            Invocation(
                execution_successful=all(f.outcome is not Outcome.ERROR for f in found),
                tool_execution_notifications=tuple(notifications),
            ),
        ),
        results=tuple(_result(f, index, seen) for f in placed[:MAX_RESULTS]),
        properties={
            "verdict": str(header.verdict),
            "reason": plain(header.reason),
            "head": header.head.text,
            "bundle": header.content_sha256.text,
        },
    )


def _rules(view: ReportView, pages: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            id=card.id.text,
            short_description=Message(text=card.title.text),
            full_description=Message(text=card.how or card.title.text),
            help_uri=f"{pages.rstrip('/')}/{quote(PurePosixPath(card.page).name)}" if pages else None,
            help=Message(text=f"{card.page} says how it decides, what it cannot see and how to fix it."),
            properties={"tags": [str(card.principle), str(card.tier)], "required": card.required},
        )
        for card in view.checks
    )


def _result(finding: OpenFinding, index: dict[str, int], seen: Counter[str]) -> Result:
    place = finding.place
    path, line = (place.path, place.line or 1) if place is not None else (SUBJECT_MANIFEST, 1)
    end = max(place.end_line or line, line) if place is not None else line
    # Numbers are left out: a line that moves, or a time that differs, is the same finding.
    same = "\n".join((finding.check, path, finding.subject, _NUMBER.sub("", finding.message)))
    seen[same] += 1
    fingerprint = hashlib.sha256(f"{same}\n{seen[same]}".encode()).hexdigest()
    return Result(
        rule_id=finding.check,
        rule_index=index[finding.check],
        level=_level(finding),
        message=_message(finding),
        locations=(
            ResultLocation(
                physical_location=PhysicalLocation(
                    artifact_location=ArtifactLocation(uri=quote(unescape_path(path))),
                    region=Region(start_line=line, end_line=end),
                )
            ),
        ),
        partial_fingerprints={"fasttrack/v1": fingerprint},
        properties={"outcome": str(finding.outcome), "subject": finding.subject},
    )


def _level(finding: OpenFinding) -> Level:
    if finding.outcome in (Outcome.FAIL, Outcome.ERROR):
        return "error" if finding.required else "warning"
    return "warning" if finding.outcome is Outcome.INCONCLUSIVE else "note"


def _message(finding: OpenFinding) -> Message:
    text = finding.message if finding.outcome is Outcome.FAIL else f"{finding.word}: {finding.message}"
    if finding.advice:
        text += f"\n{finding.advice}"
    return Message(text=text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…")
