"""Findings and their numbers, as a report shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bundles.layout import JUDGEMENT
from harness.model.finding import Finding, Location, Measurement
from harness.model.words import Outcome
from reports.evaluation import ItemView
from reports.interval import IntervalFigure, draw_interval
from reports.shown import Length, Shown, clip, format_number, format_together, pointer, visible

TEXT_CHARACTERS = 2000
"""Of one message, advice or line."""
DETAIL_CHARACTERS, FEWEST_CHARACTERS, TOTAL_DETAIL_CHARACTERS = 6000, 240, 200_000
"""Of one finding's details, and of those of all findings together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementView:
    """A number with its interval and its margin."""

    ref: str
    """The whole measurement."""
    name: Shown
    unit: Shown | None
    estimate: Shown
    ci_low: Shown | None
    ci_high: Shown | None
    margin: Shown | None
    n: Shown
    hardware: Shown | None
    figure: IntervalFigure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One finding."""

    outcome: Outcome
    subject: Shown
    message: Shown
    advice: Shown | None
    path: Shown | None
    line: Shown | None
    place: Location | None
    """The same for machines: the path and the lines as the finding has them."""
    evidence: tuple[Shown, ...]
    measurements: tuple[MeasurementView, ...]
    items: tuple[ItemView, ...]
    """Answers that the arms score differently."""
    details: tuple[Shown, ...]
    """The first lines, as many as there is room for."""
    num_details: Length
    """Of all lines that the judgement holds."""


def detail_room(findings: Iterable[Finding]) -> int:
    """Characters of details that each finding of a judgement may show, so that the page stays small."""
    num_findings = sum(1 for finding in findings if finding.details)
    return max(FEWEST_CHARACTERS, min(DETAIL_CHARACTERS, TOTAL_DETAIL_CHARACTERS // max(num_findings, 1)))


def view_finding(
    finding: Finding,
    index: int,
    anchors: Mapping[str, str],
    items: tuple[ItemView, ...] = (),
    room: int = DETAIL_CHARACTERS,
) -> FindingView:
    """The view of the finding at a place of the judgement; `anchors` leads from evidence id to its entry."""

    def show(text: str, *parts: str | int, href: str = "") -> Shown:
        whole = visible(text, multiline=True)
        shown = Shown(text=whole, ref=pointer(JUDGEMENT, "findings", index, *parts), href=href)
        return clip(shown, TEXT_CHARACTERS)

    location = finding.location
    return FindingView(
        outcome=finding.outcome,
        subject=show(finding.subject, "subject"),
        message=show(finding.message, "message"),
        advice=show(finding.advice, "advice") if finding.advice else None,
        path=show(location.path, "location", "path") if location else None,
        line=(
            show(format_number(location.line), "location", "line")
            if location and location.line is not None
            else None
        ),
        place=location,
        evidence=tuple(show(e, "evidence", i, href=anchors[e]) for i, e in enumerate(finding.evidence)),
        measurements=tuple(
            view_measurement(m, pointer(JUDGEMENT, "findings", index, "measurements", i))
            for i, m in enumerate(finding.measurements)
        ),
        items=items,
        details=_first_lines(
            [show(line, "details", i) for i, line in enumerate(finding.details[:room])], room
        ),
        num_details=Length(value=len(finding.details), ref=pointer(JUDGEMENT, "findings", index, "details")),
    )


def _first_lines(lines: Sequence[Shown], room: int) -> tuple[Shown, ...]:
    """As many of the lines as `room` characters hold; the first one is cut to it."""
    found: list[Shown] = []
    for line in lines:
        cut = clip(line, max(room, 1))
        room -= len(cut.text) + 1
        if found and room < 0:
            break
        found.append(cut)
    return tuple(found)


def view_measurement(measurement: Measurement, ref: str) -> MeasurementView:
    """The view of a measurement that stands at `ref`; its numbers have as many digits as tell them apart."""
    m = measurement
    keys = ("estimate", "ci_low", "ci_high", "margin")
    texts = dict(zip(keys, format_together([getattr(m, key) for key in keys]), strict=True))

    def show(key: str, text: str | None) -> Shown | None:
        return Shown(text=text, ref=f"{ref}/{key}") if text else None

    return MeasurementView(
        ref=ref,
        name=Shown(text=visible(m.name), ref=f"{ref}/name"),
        unit=show("unit", visible(m.unit)),
        estimate=Shown(text=texts["estimate"] or "", ref=f"{ref}/estimate"),
        ci_low=show("ci_low", texts["ci_low"]),
        ci_high=show("ci_high", texts["ci_high"]),
        margin=show("margin", texts["margin"]),
        n=Shown(text=format_number(m.n), ref=f"{ref}/n"),
        hardware=show("hardware", visible(m.hardware)),
        figure=draw_interval(m),
    )
