"""Two bundles cell by cell: which outcomes and numbers differ."""

from __future__ import annotations

from dataclasses import dataclass

from bundles.contents import Bundle
from harness.model.finding import Measurement
from harness.model.judgement import Judgement
from harness.model.words import Outcome

Cell = tuple[str, str]
"""(check, subject of the finding)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDifference:
    """One cell that is not the same in both; a side is None where its bundle has no such cell."""

    check: str
    subject: str
    number: str
    """Name of the measurement; empty when the outcomes are compared."""
    left: str | None
    right: str | None


def compare_bundles(left: Bundle, right: Bundle) -> tuple[tuple[CellDifference, ...], int]:
    """Every cell in which the judgements differ, in the order of checks and subjects, and how many cells agree."""
    cells = _cells(left.judgement), _cells(right.judgement)
    found: list[CellDifference] = []
    num_same = 0
    for key in sorted({*cells[0], *cells[1]}):
        (check, subject), number = key
        ours, theirs = cells[0].get(key), cells[1].get(key)
        if ours == theirs:
            num_same += 1
        else:
            found.append(CellDifference(check=check, subject=subject, number=number, left=ours, right=theirs))
    return tuple(found), num_same


def _cells(judgement: Judgement) -> dict[tuple[Cell, str], str]:
    outcomes: dict[tuple[Cell, str], list[Outcome]] = {}
    numbers: dict[tuple[Cell, str], str] = {}
    for finding in judgement.findings:
        cell = (finding.check, finding.subject)
        outcomes.setdefault((cell, ""), []).append(finding.outcome)
        for measurement in finding.measurements:
            numbers[cell, measurement.name] = _number(measurement)
    return {key: ", ".join(sorted(found)) for key, found in outcomes.items()} | numbers


def _number(measurement: Measurement) -> str:
    text = f"{measurement.estimate:.4g}"
    if measurement.ci_low is not None and measurement.ci_high is not None:
        text += f" [{measurement.ci_low:.4g}, {measurement.ci_high:.4g}]"
    return f"{text} {measurement.unit}, n={measurement.n}"
