"""Two bundles cell by cell: which outcomes and numbers differ."""

from __future__ import annotations

from dataclasses import dataclass

from bundles.contents import Bundle
from harness.model.finding import Measurement
from harness.model.judgement import Judgement

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
    found: dict[tuple[Cell, str], list[str]] = {}
    for finding in judgement.findings:
        cell = (finding.check, finding.subject)
        found.setdefault((cell, ""), []).append(str(finding.outcome))
        for measurement in finding.measurements:
            found.setdefault((cell, measurement.name), []).append(_number(measurement))
    return {key: ", ".join(sorted(texts)) for key, texts in found.items()}


def _number(measurement: Measurement) -> str:
    """Every digit: numbers that differ at all are not the same."""
    m = measurement
    bounds = [] if m.ci_low is None and m.ci_high is None else [f"[{m.ci_low}, {m.ci_high}]"]
    margin = [] if m.margin is None else [f"margin {m.margin}"]
    return f"{' '.join([str(m.estimate), *bounds, m.unit, *margin])}, n={m.n}"
