"""Measurements of several findings as one table: a row for what was measured, a column for each quantity."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from harness.model.words import Outcome
from reports.checks import CheckCard
from reports.drills.tables import Cell, Missing, Table, table_of, text_cell
from reports.findings import FindingView, MeasurementView
from reports.shown import Piece, Shown, clip

REASON_CHARACTERS = 240
_INDEX = re.compile(r"/(\d+)/measurements/(\d+)$")
NO_CHECK = "no check of this kind is part of this judgement."
NO_NUMBER = "the check gave no number."


@dataclass(slots=True)
class _Row:
    """Measurements that one name joins."""

    label: Shown
    check: Shown
    outcome: Outcome
    cells: dict[str, MeasurementView] = field(default_factory=dict)


def pivot(
    cards: Sequence[CheckCard],
    checks: Sequence[str],
    quantities: Sequence[str],
    caption: str,
    *,
    by_finding: bool = False,
    heat: bool = False,
) -> Table | None:
    """The table; None when none of the checks gave one of the quantities.

    Checks name a measurement "quantity, what", or "what, quantity". A row is one `what`, or one finding where
    `by_finding` is set. `heat` shades each number by how much of its limit it uses up.
    """
    rows: dict[tuple[str, str], _Row] = {}
    for card, finding, m in _measurements(cards, checks):
        split = split_name(m.name.text, quantities)
        if split is None:
            continue
        quantity, what = split
        label = finding.subject if by_finding or not what else replace(m.name, text=what, is_part=True)
        key = (card.id.text, label.ref if by_finding else what)
        row = rows.setdefault(key, _Row(label=label, check=card.id, outcome=finding.outcome))
        row.cells[quantity] = m
    if not rows:
        return None
    seen = [q for q in quantities if any(q in row.cells for row in rows.values())]
    table = [
        (
            text_cell(row.label),
            Cell(outcome=row.outcome, pieces=(" ", row.check)),
            *(_number(row.cells.get(quantity), heat=heat) for quantity in seen),
        )
        for row in rows.values()
    ]
    return table_of(caption, ("What", "Outcome", *seen), table)


def split_name(name: str, quantities: Sequence[str]) -> tuple[str, str] | None:
    """The quantity that a measurement is of, and what it was measured on; None when it is of none of them."""
    for quantity in quantities:
        if name == quantity:
            return quantity, ""
        if name.startswith(f"{quantity}, "):
            return quantity, name.removeprefix(f"{quantity}, ")
        if name.endswith(f", {quantity}"):
            return quantity, name.removesuffix(f", {quantity}")
    return None


def heat_of(m: MeasurementView) -> int | None:
    """How much of the limit a number uses up, from 0 (a thousandth) to 4 (more than all); None without a limit."""
    if m.margin is None:
        return None
    estimate, margin = (abs(float(s.text.replace(",", ""))) for s in (m.estimate, m.margin))
    if estimate > margin:
        return 4
    share = estimate / margin if margin else 0.0
    return sum(share > bound for bound in (1e-3, 0.1, 0.5))


def missing_check(cards: Sequence[CheckCard], checks: Sequence[str], what: str) -> Missing:
    """Why checks gave no number: the worst finding's own words, unless it passed without one."""
    found = [card for card in cards if card.id.text in checks]
    findings = [finding for card in found for finding in card.findings]
    told = next((f for f in findings if f.outcome is not Outcome.PASS), None)
    if told is not None:
        return Missing(what=what, outcome=told.outcome, reason=(clip(told.message, REASON_CHARACTERS),))
    return Missing(what=what, outcome=Outcome.NOT_RUN, reason=(NO_NUMBER if found else NO_CHECK,))


def _measurements(
    cards: Sequence[CheckCard], checks: Sequence[str]
) -> Iterator[tuple[CheckCard, FindingView, MeasurementView]]:
    """In the judgement's order, which is that of the batch."""
    for check in checks:
        for card in cards:
            if card.id.text == check:
                found = [(f, m) for f in card.findings for m in f.measurements]
                for finding, m in sorted(found, key=lambda pair: _place(pair[1])):
                    yield card, finding, m


def _place(m: MeasurementView) -> tuple[int, int]:
    match = _INDEX.search(m.ref)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _number(m: MeasurementView | None, *, heat: bool) -> Cell:
    if m is None:
        return Cell()
    pieces: list[Piece] = [m.estimate]
    if m.ci_low or m.ci_high:
        pieces += [" [", m.ci_low or "−∞", ", ", m.ci_high or "∞", "]"]
    if m.unit:
        pieces += [" ", m.unit]
    if m.margin:
        pieces += [", limit ", m.margin]
    pieces += [", n ", m.n]
    return Cell(pieces=tuple(pieces), form="number", heat=heat_of(m) if heat else None)
