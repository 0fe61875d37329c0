"""Non-inferiority of paired proportions by the Tango/Nam score statistic."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, copysign, inf, sqrt
from statistics import NormalDist


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """The difference of two paired proportions with its score interval, as shares in [-1, 1]."""

    n: int
    estimate: float
    """(c - b) / n: positive when the other is better."""
    ci_low: float
    ci_high: float


def tango_z(n: int, b: int, c: int, difference: float) -> float:
    """The score statistic of H0: other minus reference proportion equals `difference`.

    Args:
        n: Pairs in all.
        b: Pairs where only the reference succeeded.
        c: Pairs where only the other succeeded.
        difference: The hypothesis, in (-1, 1); minus the margin for non-inferiority.

    Returns:
        A standard normal deviate; large values speak for the other being better than the hypothesis says.
        Tango 1998 (Statistics in Medicine 17:891), Nam 1997 (Biometrics 53:1422).
    """
    if n < 1 or b < 0 or c < 0 or b + c > n:
        raise ValueError(f"not a paired table: n={n}, b={b}, c={c}")
    if not -1 < difference < 1:
        raise ValueError(f"the difference must lie in (-1, 1), got {difference}")
    big_b = difference * (2 * n + b - c) - (b + c)
    big_c = -b * difference * (1 - difference)
    q = (sqrt(max(big_b * big_b - 8 * n * big_c, 0.0)) - big_b) / (4 * n)
    variance = n * (2 * q + difference * (1 - difference))
    numerator = c - b - n * difference
    if variance <= 0:
        return copysign(inf, numerator) if numerator else 0.0
    return numerator / sqrt(variance)


def tango_interval(n: int, b: int, c: int, *, alpha: float) -> PairedDifference:
    """The interval of the differences that the score test does not reject, each bound at one-sided `alpha`."""
    z = NormalDist().inv_cdf(1 - alpha)
    estimate = (c - b) / n
    low = _bisect(n, b, c, -1.0, estimate, z)
    high = _bisect(n, b, c, estimate, 1.0, -z)
    return PairedDifference(n=n, estimate=estimate, ci_low=low, ci_high=high)


def _bisect(n: int, b: int, c: int, low: float, high: float, target: float) -> float:
    """Where the statistic, which falls as the hypothesis rises, crosses `target` in (low, high)."""
    for _ in range(60):
        middle = (low + high) / 2
        if not -1 < middle < 1:
            return middle
        if tango_z(n, b, c, middle) > target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def min_n_without_discordance(margin: float, *, alpha: float) -> int:
    """The fewest pairs that can show non-inferiority when not one of them is discordant.

    From Z = sqrt(n m / (1 - m)): 52 for 5 points, 268 for 1 point at alpha .05.
    """
    z = NormalDist().inv_cdf(1 - alpha)
    return ceil(z * z * (1 - margin) / margin)


def needed_n(discordance: float, margin: float, *, alpha: float, power: float = 0.8) -> int:
    """Pairs that show non-inferiority with the given power when the true difference is 0.

    Args:
        discordance: Share of discordant pairs, (b + c) / n.
        margin: Non-inferiority margin, a share.
        alpha: One-sided level.
        power: Probability of showing it.

    Returns:
        (z_alpha + z_power)^2 discordance / margin^2, and never less than `min_n_without_discordance`.
    """
    z = NormalDist().inv_cdf(1 - alpha) + NormalDist().inv_cdf(power)
    return max(ceil(z * z * discordance / margin**2), min_n_without_discordance(margin, alpha=alpha))
