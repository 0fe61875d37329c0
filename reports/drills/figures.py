"""Figures of timed runs: the frontier, distributions and the order of runs, as marks on axes from 0 to 100."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from harness.model.words import Arm
from reports.drills.tables import Series

MAX_POINTS = 150
"""Of one curve; longer ones are thinned."""
Point = tuple[float, float]


def scatter(points: Mapping[Arm, Sequence[Point]], *, from_zero: bool, lines: bool) -> tuple[Series, ...]:
    """Each arm's points, joined in their order where `lines` is set; the axes hold all of them.

    `from_zero` starts both axes at 0, so that lengths compare; otherwise they start at the smallest value.
    """
    placed = _place(points, from_zero=from_zero)
    return tuple(
        Series(arm=arm, path=_line(found) if lines and len(found) > 1 else "", points=tuple(found))
        for arm, found in placed.items()
    )


def distribution(values: Mapping[Arm, Sequence[float]]) -> tuple[Series, ...]:
    """Each arm's empirical distribution: the share of values (upwards) that are at most x."""
    curves = {arm: _steps(_thin(sorted(found))) for arm, found in values.items() if found}
    placed = _place(curves, from_zero=False)
    return tuple(Series(arm=arm, path=_line(found)) for arm, found in placed.items())


def _steps(ordered: Sequence[float]) -> list[Point]:
    points: list[Point] = [(ordered[0], 0.0)]
    for place, value in enumerate(ordered):
        points += [(value, place / len(ordered)), (value, (place + 1) / len(ordered))]
    return points


def _thin(ordered: Sequence[float]) -> Sequence[float]:
    if len(ordered) <= MAX_POINTS:
        return ordered
    return [ordered[round(i * (len(ordered) - 1) / (MAX_POINTS - 1))] for i in range(MAX_POINTS)]


def _place(points: Mapping[Arm, Sequence[Point]], *, from_zero: bool) -> dict[Arm, list[Point]]:
    everything = [point for found in points.values() for point in found]
    x_place = _axis([x for x, _ in everything], from_zero)
    y_place = _axis([y for _, y in everything], from_zero)
    return {
        arm: [(_axis_place(x, x_place), round(100 - _axis_place(y, y_place), 1)) for x, y in found]
        for arm, found in points.items()
        if found
    }


def _axis(values: Iterable[float], from_zero: bool) -> Point:
    """The ends of an axis; one without length is given some, one that no number can span is cut."""
    found = [value for value in values if math.isfinite(value)]
    low = 0.0 if from_zero else min(found, default=0.0)
    high = max(found, default=1.0)
    return (low, high) if math.isfinite(high - low) and high > low else (low, low + max(abs(low), 1.0))


def _axis_place(value: float, axis: Point) -> float:
    share = (value - axis[0]) / (axis[1] - axis[0])
    return round(100 * min(max(share, 0.0), 1.0), 1)


def _line(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
