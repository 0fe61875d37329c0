"""The headline: the numbers that decide, and the claims that have none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.model.words import Outcome, Principle
from reports.checks import CheckCard
from reports.findings import FindingView, MeasurementView
from reports.marks import WORST_FIRST
from reports.shown import Shown, clip

_PRINCIPLES = (Principle.CORRECTNESS, Principle.PERFORMANCE, Principle.SCOPE, Principle.ISOLATION)
TITLE_CHARACTERS = 90
SUBJECT_CHARACTERS = 40
_MUST_HAVE_NUMBERS = (Principle.CORRECTNESS, Principle.PERFORMANCE)
"""What a reviewer asks numbers of: that answers are as good, and that they come sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """One claim with a number that it rests on."""

    check: Shown
    title: Shown
    subject: Shown
    outcome: Outcome
    required: bool
    measurement: MeasurementView


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """Required checks that should give a number, gave none, and do not let the change through."""

    outcome: Outcome
    checks: tuple[Shown, ...]
    titles: tuple[Shown, ...]


def view_claims(cards: Iterable[CheckCard]) -> tuple[ClaimRow, ...]:
    """A row for each finding with an interval or a margin.

    The worst one of every check comes before the further ones of any, so that the first rows show all that there
    is; what failed, and correctness and performance, before the rest; then worst first, required before advisory,
    intervals before bare numbers, correctness before performance.
    """
    ranked: list[tuple[tuple[bool, bool, int, bool, bool, int], ClaimRow]] = []
    for card in cards:
        measured = [(finding, _deciding(finding)) for finding in card.findings]
        rows = [_row(card, finding, number) for finding, number in measured if number is not None]
        for place, row in enumerate(rows):
            key = (
                place > 0,
                card.principle not in _MUST_HAVE_NUMBERS and row.outcome is not Outcome.FAIL,
                WORST_FIRST.index(row.outcome),
                not row.required,
                row.measurement.ci_low is None and row.measurement.ci_high is None,
                _PRINCIPLES.index(card.principle),
            )
            ranked.append((key, row))
    ranked.sort(key=lambda pair: pair[0])
    return tuple(row for _, row in ranked)


def view_unmeasured(cards: Iterable[CheckCard]) -> tuple[Unmeasured, ...]:
    """The claims of correctness and performance that have no number, by outcome, worst first."""
    without = [
        card
        for card in cards
        if card.required
        and card.principle in _MUST_HAVE_NUMBERS
        and not card.outcome.lets_through
        and all(_deciding(finding) is None for finding in card.findings)
    ]
    groups = [(outcome, [c for c in without if c.outcome is outcome]) for outcome in WORST_FIRST]
    return tuple(
        Unmeasured(outcome=outcome, checks=tuple(c.id for c in group), titles=tuple(c.title for c in group))
        for outcome, group in groups
        if group
    )


def _deciding(finding: FindingView) -> MeasurementView | None:
    """The number whose interval is held against a margin; else one with a margin, else one with an interval."""
    with_margin = [m for m in finding.measurements if m.margin is not None]
    with_interval = [m for m in finding.measurements if m.ci_low is not None or m.ci_high is not None]
    with_both = [m for m in with_margin if m in with_interval]
    return next(iter([*with_both, *with_margin, *with_interval]), None)


def _row(card: CheckCard, finding: FindingView, measurement: MeasurementView) -> ClaimRow:
    return ClaimRow(
        check=card.id,
        title=clip(card.title, TITLE_CHARACTERS),
        subject=clip(finding.subject, SUBJECT_CHARACTERS),
        outcome=finding.outcome,
        required=card.required,
        measurement=measurement,
    )
