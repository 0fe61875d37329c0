"""The three-valued decision: an interval against a limit."""

from __future__ import annotations

from math import ceil

from harness.model.words import Outcome


def decide_below(ci_low: float, ci_high: float, limit: float) -> Outcome:
    """Whether a quantity of which less is better is shown to be within `limit`, shown beyond it, or neither."""
    if ci_high <= limit:
        return Outcome.PASS
    return Outcome.FAIL if ci_low > limit else Outcome.INCONCLUSIVE


def decide_above(ci_low: float, ci_high: float, limit: float) -> Outcome:
    """Whether a quantity of which more is better is shown to reach `limit`, shown to miss it, or neither."""
    if ci_low >= limit:
        return Outcome.PASS
    return Outcome.FAIL if ci_high < limit else Outcome.INCONCLUSIVE


def n_to_resolve(n: int, half_width: float, distance: float) -> int | None:
    """Units after which an interval of that half-width would clear a limit at that distance from the estimate.

    Half-widths shrink with the square root of n. None when the estimate lies on the limit.
    """
    if distance <= 0:
        return None
    return max(n + 1, ceil(n * (half_width / distance) ** 2))
