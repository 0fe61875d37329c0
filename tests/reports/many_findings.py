"""A view with as many open findings as a test wants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bundles.reader import read_bundle
from harness.model.finding import Location
from harness.model.words import Outcome
from reports.findings import FindingView
from reports.shown import Length, Shown
from reports.view import ReportView, build_view
from tests.bundles.examples import CHECK_HELP


def view_of(folder: Path) -> ReportView:
    """The view of an example bundle."""
    return build_view(read_bundle(folder), CHECK_HELP)


def with_findings(
    view: ReportView, num: int, outcome: Outcome, *, text: str = "It is so.", required: bool = True
) -> ReportView:
    """The view with only its first check, which has `num` open findings of the outcome, at lines from 1."""

    def shown(value: str) -> Shown:
        return Shown(text=value, ref="judgement.json#/findings/0/message")

    findings = tuple(
        FindingView(
            outcome=outcome,
            subject=shown(f"subject {i}"),
            message=shown(text),
            advice=shown("Mend it."),
            path=shown("own/a.py"),
            line=shown(str(i)),
            place=Location(path="own/a.py", line=i, end_line=i + 1),
            evidence=(),
            measurements=(),
            items=(),
            details=(),
            num_details=Length(value=0, ref="judgement.json#/findings/0/details"),
        )
        for i in range(1, num + 1)
    )
    card = replace(view.checks[0], open=findings, passing=(), outcome=outcome, required=required)
    return replace(view, checks=(card,))
