"""Paired timings: the ratio of two arms from interleaved blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import ceil, exp, isfinite, log, sqrt
from statistics import NormalDist, fmean, median, stdev

import numpy as np

EXACT_FLIPS_UP_TO = 14
"""Pairs up to which all 2^n sign patterns are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatio:
    """The ratio other / reference over paired blocks."""

    n: int
    """Pairs."""
    estimate: float
    """Hodges-Lehmann estimate, as a ratio."""
    ci_low: float
    ci_high: float
    """Student's interval on the log ratios, each bound at one-sided alpha, widened to hold the estimate."""
    sd: float
    """Standard deviation of the log ratios."""
    log_ratios: tuple[float, ...]


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of all pairwise means, a value with itself included (Hodges and Lehmann 1963)."""
    if not values:
        raise ValueError("no values")
    return median((a + b) / 2 for a, b in combinations_with_replacement(values, 2))


def paired_log_ratio(reference: Sequence[float], other: Sequence[float], *, alpha: float) -> PairedRatio:
    """The ratio of two arms from one positive time per arm and pair.

    Args:
        reference: Times of the reference arm, pair by pair, in any unit.
        other: Times of the other arm in the same order.
        alpha: One-sided level of each bound.

    Raises:
        ValueError: Fewer than two pairs, unequal lengths, or a time that is not positive and finite.
    """
    from scipy import special

    if len(reference) != len(other) or len(reference) < 2:
        raise ValueError(f"need two or more pairs, got {len(reference)} and {len(other)} times")
    if not all(isfinite(t) and t > 0 for t in (*reference, *other)):
        raise ValueError("times must be positive and finite")
    logs = tuple(log(o / r) for r, o in zip(reference, other, strict=True))
    n, sd = len(logs), stdev(logs)
    half_width = float(special.stdtrit(n - 1, 1 - alpha)) * sd / sqrt(n)
    centre, estimate = fmean(logs), hodges_lehmann(logs)
    return PairedRatio(
        n=n,
        estimate=exp(estimate),
        ci_low=exp(min(centre - half_width, estimate)),
        ci_high=exp(max(centre + half_width, estimate)),
        sd=sd,
        log_ratios=logs,
    )


def sign_flip_p(differences: Sequence[float], *, num_flips: int = 9_999, seed: int = 0) -> float:
    """One-sided p value that the differences are symmetric about 0 and not below it.

    Small values say that the differences are below 0. Give one value a block, or the sum of each cluster.
    All sign patterns are counted up to `EXACT_FLIPS_UP_TO` values (smallest p: 2^-n); above, `num_flips`
    patterns are drawn with a fixed seed and the observed one is counted among them.
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.size == 0 or not np.isfinite(values).all():
        raise ValueError("need one or more finite differences")
    observed = values.sum()
    tolerance = 1e-12 * np.abs(values).sum()
    if values.size <= EXACT_FLIPS_UP_TO:
        patterns = np.arange(2**values.size)[:, None] >> np.arange(values.size) & 1
        return float(np.mean((1 - 2 * patterns) @ values <= observed + tolerance))
    signs = 1 - 2 * np.random.default_rng(seed).integers(0, 2, size=(num_flips, values.size))
    return float((1 + np.count_nonzero(signs @ values <= observed + tolerance)) / (num_flips + 1))


def needed_pairs(sd: float, effect: float, *, alpha: float, power: float = 0.8) -> int:
    """Pairs that show an effect of that size, both on the log scale, with the given power.

    ((z_alpha + z_power) sd / effect)^2, plus two for Student's t; at least what an exact sign-flip test
    needs to reach `alpha`.
    """
    if effect <= 0:
        raise ValueError(f"the effect must be positive, got {effect}")
    z = NormalDist().inv_cdf(1 - alpha) + NormalDist().inv_cdf(power)
    return max(ceil((z * sd / effect) ** 2) + 2, ceil(-log(alpha) / log(2)))
