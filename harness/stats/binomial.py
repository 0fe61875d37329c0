"""Intervals of a rate that was counted."""

from __future__ import annotations


def clopper_pearson(hits: int, n: int, *, alpha: float) -> tuple[float, float]:
    """Two-sided interval of a rate, at least 1 - `alpha` sure at every true rate (Clopper and Pearson 1934).

    Args:
        hits: Successes, 0 to `n`.
        n: Trials; 0 gives (0, 1).
        alpha: Error of both sides together.
    """
    from scipy.stats import beta

    if not 0 <= hits <= n:
        raise ValueError(f"{hits} hits of {n} trials")
    low = float(beta.ppf(alpha / 2, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - alpha / 2, hits + 1, n - hits)) if hits < n else 1.0
    return low, high
