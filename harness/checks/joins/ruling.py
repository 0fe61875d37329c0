"""What one question about the evidence came to, before a check puts its name on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.model.check import BaseCheck
from harness.model.finding import Finding, ItemScores, Location, Measurement
from harness.model.judgement import worst
from harness.model.words import Outcome

MAX_DETAILS = 40
"""Lines kept for the drill-down; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """An outcome with the sentence, numbers and lines that explain it."""

    outcome: Outcome
    message: str
    advice: str = ""
    measurements: tuple[Measurement, ...] = ()
    items: tuple[ItemScores, ...] = ()
    details: tuple[str, ...] = ()
    location: Location | None = None


def combine_rulings(rulings: Sequence[Ruling]) -> Ruling:
    """One ruling of several: the worst outcome, its messages first, all measurements and details."""
    outcome = worst([r.outcome for r in rulings])
    ordered = sorted(rulings, key=lambda r: r.outcome is not outcome)
    return Ruling(
        outcome=outcome,
        message=" ".join(r.message for r in ordered),
        advice=" ".join(dict.fromkeys(r.advice for r in ordered if r.advice and r.outcome is outcome)),
        measurements=tuple(m for r in rulings for m in r.measurements),
        items=tuple(item for r in rulings for item in r.items),
        details=tuple(line for r in ordered for line in r.details),
        location=next((r.location for r in ordered if r.location is not None), None),
    )


def finding_of(check: BaseCheck, subject: str, ruling: Ruling, evidence: Sequence[str] = ()) -> Finding:
    """The ruling as a finding of `check`, resting on the named evidence; long lists of details are cut and counted."""
    details = ruling.details
    if len(details) > MAX_DETAILS:
        details = (*details[:MAX_DETAILS], f"... and {len(details) - MAX_DETAILS} more lines")
    return check.finding(
        ruling.outcome,
        subject,
        ruling.message,
        advice=ruling.advice,
        evidence=evidence,
        measurements=ruling.measurements,
        items=ruling.items,
        details=details,
        location=ruling.location,
    )
