"""The figure of a measured number: its interval, its estimate and its margin on one axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.model.finding import Measurement

_FIRST, _LAST = 6, 94


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalFigure:
    """Places on an axis from 0 to 100; None for what was not measured or is not asked."""

    estimate: float
    low: float | None
    high: float | None
    margin: float | None


def draw_interval(measurement: Measurement) -> IntervalFigure | None:
    """The figure; None when there is nothing to hold the estimate against, or no finite axis for it."""
    m = measurement
    values = [v for v in (m.estimate, m.ci_low, m.ci_high, m.margin) if v is not None]
    low, high = min(values), max(values)
    if len(values) == 1 or not math.isfinite(high - low):
        return None

    def place(value: float | None) -> float | None:
        if value is None:
            return None
        share = (value - low) / (high - low) if high > low else 0.5
        return round(_FIRST + share * (_LAST - _FIRST), 1)

    estimate = place(m.estimate)
    if estimate is None:
        return None
    return IntervalFigure(
        estimate=estimate, low=place(m.ci_low), high=place(m.ci_high), margin=place(m.margin)
    )
