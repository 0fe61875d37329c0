"""The mean of paired score differences in [-1, 1], with bounds that hold for clusters and for differences not seen.

A score test in the manner of Tango: the variance is taken under the hypothesis, from the likeliest distribution over
whole clusters that has the hypothesised mean (empirical likelihood, Owen 1988). To the clusters that were seen it may
add one in which everything was lost: differences that are all zero thus have an interval of positive width. With
clusters of one and differences of -1, 0 and 1 the statistic is Tango's (1998).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from harness.stats.paired_proportions import min_n_without_discordance

Array = npt.NDArray[np.float64]
_BISECTIONS = 40
_GRID_POINTS, _GRIDS = 33, 4
_LOWEST = -1 + 1e-6
"""The first hypothesis that is tried: at -1 itself everything is lost in any cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredDifference:
    """A mean paired difference, other minus reference: positive when the other is better."""

    n: int
    """Pairs."""
    estimate: float
    se: float
    """Clustered standard error (Miller 2024, arXiv 2411.00640): sqrt(sum over clusters of (sum of D - mean)^2) / n."""
    ci_low: float
    ci_high: float


def constrained_z(sums: Array, sizes: Array, difference: float | Array) -> Array:
    """The score statistic of H0: the mean is `difference`, against a larger mean.

    Args:
        sums: Summed differences of each cluster, shape [runs, clusters].
        sizes: Pairs in each cluster, shape [clusters].
        difference: The hypothesis, in (-1, 1), one for all runs or one a run.

    Returns:
        Standard normal deviates, shape [runs]; 0 where the observed mean is not above the hypothesis.
    """
    hypothesis = np.broadcast_to(np.asarray(difference, dtype=np.float64), sums.shape[:1])[:, None]
    scores = sums - sizes * hypothesis
    lost = (sizes @ sizes / sizes.sum()) * (1 + hypothesis)
    """The score, negated, of a cluster of size-weighted mean size in which every pair is lost."""
    tilt = _tilt(scores, 1 / lost)
    weights = 1 / (sums.shape[1] * np.maximum(1 + tilt * scores, 1e-300))
    unseen = np.maximum(1 - weights.sum(axis=1), 0.0)
    variance = sums.shape[1] * ((weights * scores**2).sum(axis=1) + unseen * lost[:, 0] ** 2)
    total = scores.sum(axis=1)
    found: Array = np.where(total > 0, total / np.sqrt(np.maximum(variance, 1e-300)), 0.0)
    return found


def _tilt(scores: Array, largest: Array) -> Array:
    """The multiplier that gives the scores mean 0 without an unseen cluster, and at most `largest`; [runs, 1]."""
    lowest = scores.min(axis=1, keepdims=True)
    high = np.minimum(largest, np.where(lowest < 0, -1 / np.minimum(lowest, -1e-300), np.inf))
    low, top = np.zeros_like(high), high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        is_short = (scores / np.maximum(1 + middle * scores, 1e-300)).sum(axis=1, keepdims=True) > 0
        low, high = np.where(is_short, middle, low), np.where(is_short, high, middle)
    found: Array = np.where(high >= top, top, low)
    return found


def critical_z(sizes: Array, *, alpha: float) -> float:
    """What `constrained_z` must exceed: Student's quantile at the effective clusters less one; infinite below two."""
    from scipy import special

    effective = _effective_clusters(sizes)
    return float(special.stdtrit(effective - 1, 1 - alpha)) if effective >= 2 else inf


def _lower_bound(sums: Array, sizes: Array, *, alpha: float) -> float:
    """The smallest mean that is not refuted, found on ever finer grids; -1 where nothing can be refuted."""
    critical = critical_z(sizes, alpha=alpha)
    low, high = _LOWEST, max(_LOWEST, float(sums.sum() / sizes.sum()))
    for _ in range(_GRIDS):
        means = np.linspace(low, high, _GRID_POINTS)
        refuted = np.flatnonzero(constrained_z(np.tile(sums, (_GRID_POINTS, 1)), sizes, means) > critical)
        if not len(refuted):
            return -1.0
        last = int(refuted[-1])
        low, high = float(means[last]), float(means[min(last + 1, _GRID_POINTS - 1)])
    return low


def clustered_difference(
    differences: Sequence[float], clusters: Sequence[Hashable], *, alpha: float
) -> ClusteredDifference:
    """The mean difference with its interval, each bound at one-sided `alpha`.

    Bounds invert `constrained_z` at `critical_z`. Fewer than two effective clusters bound nothing: [-1, 1].

    Args:
        differences: One value in [-1, 1] a pair.
        clusters: What each pair shares with others (a document, a conversation), in the same order.
        alpha: One-sided level of each bound.

    Raises:
        ValueError: No pairs, unequal lengths, or a difference outside [-1, 1].
    """
    values = np.asarray(differences, dtype=np.float64)
    if not len(values) or len(values) != len(clusters):
        raise ValueError(f"need one cluster a difference, got {len(clusters)} and {len(values)}")
    if not (np.abs(values) <= 1).all():
        raise ValueError("differences must lie in [-1, 1]")
    sums, sizes = _by_cluster(values, clusters)
    estimate = float(values.mean())
    return ClusteredDifference(
        n=len(values),
        estimate=estimate,
        se=float(sqrt(((sums - sizes * estimate) ** 2).sum()) / len(values)),
        ci_low=_lower_bound(sums, sizes, alpha=alpha),
        ci_high=-_lower_bound(-sums, sizes, alpha=alpha),
    )


def needed_rows(
    differences: Sequence[float],
    clusters: Sequence[Hashable],
    margin: float,
    *,
    alpha: float,
    power: float = 0.8,
) -> int:
    """Pairs that show non-inferiority with the given power when the true difference is 0 and the noise is as here.

    n (z_alpha s_0 + z_power s)^2 / margin^2, s the observed error of one pair and s_0 that under the hypothesis of a
    mean lower by the margin, which counts differences that were not seen; never less than `min_clusters` come to.
    """
    values = np.asarray(differences, dtype=np.float64)
    sums, sizes = _by_cluster(values, clusters)
    estimate = float(values.mean())
    se = sqrt(((sums - sizes * estimate) ** 2).sum()) / len(values)
    z = float(constrained_z(sums[None], sizes, max(estimate - margin, _LOWEST))[0])
    normal = NormalDist()
    wanted = len(values) * (normal.inv_cdf(1 - alpha) / z + normal.inv_cdf(power) * se / margin) ** 2
    least = min_clusters(margin, alpha=alpha) * len(values) / _effective_clusters(sizes)
    return ceil(max(wanted, least))


def min_clusters(margin: float, *, alpha: float) -> int:
    """The fewest clusters of one size that can show non-inferiority: all their differences are zero."""
    n = max(2, min_n_without_discordance(margin, alpha=alpha))
    while n * margin / (1 - margin) < critical_z(np.ones(n), alpha=alpha) ** 2:
        n += 1
    return n


def _effective_clusters(sizes: Array) -> float:
    """n^2 over the sum of squared sizes: the number of clusters when all are of one size."""
    return float(sizes.sum() ** 2 / (sizes @ sizes))


def _by_cluster(values: Array, clusters: Sequence[Hashable]) -> tuple[Array, Array]:
    """Sums and sizes by cluster."""
    grouped: dict[Hashable, list[float]] = defaultdict(list)
    for value, cluster in zip(values, clusters, strict=True):
        grouped[cluster].append(float(value))
    return (
        np.array([sum(g) for g in grouped.values()], dtype=np.float64),
        np.array([len(g) for g in grouped.values()], dtype=np.float64),
    )
