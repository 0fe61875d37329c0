"""Items that are sampled several times: avg@k, pass^k, flips, and the error inside items.

Two questions have two errors. Whether the *engine* is worse on these items: only the sampling is random, the items are
fixed. Whether it would be worse on other items: the items are a sample, too, and samples of one are a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from statistics import NormalDist, fmean, variance

from harness.stats.clustered_difference import min_clusters


def pass_all(outcomes: Sequence[Sequence[bool]]) -> float:
    """pass^k: the share of items of which every sample is right; an item's samples are one sequence."""
    _require(outcomes)
    return fmean(all(samples) for samples in outcomes)


def within_item_se(differences: Sequence[Sequence[float]]) -> float | None:
    """The standard error of the mean over items of the mean paired difference, items taken as fixed.

    sqrt(sum_i s_i^2 / k_i) / items, s_i^2 the variance of item i's k_i paired differences. When the arms share no
    randomness s_i^2 is the sum of both arms' variances. None when an item has fewer than two samples.
    """
    _require(differences)
    if any(len(samples) < 2 for samples in differences):
        return None
    return sqrt(sum(variance(samples) / len(samples) for samples in differences)) / len(differences)


def needed_samples(
    se: float, samples: int, items: int, margin: float, *, alpha: float, power: float = 0.8
) -> int:
    """Samples an item that show non-inferiority when the true difference is 0, items taken as fixed.

    Args:
        se: What `within_item_se` gives.
        samples: Samples an item behind `se`.
        items: How many.
        margin: A share.
        alpha: One-sided level.
        power: Probability of showing it.

    Returns:
        samples ((z_alpha + z_power) se / margin)^2, and never fewer than equal samples need.
    """
    z = NormalDist().inv_cdf(1 - alpha) + NormalDist().inv_cdf(power)
    least = min_clusters(margin, alpha=alpha) / items
    return ceil(max(samples * (z * se / margin) ** 2, least))


def _require(items: Sequence[Sequence[object]]) -> None:
    if not items or any(not samples for samples in items):
        raise ValueError("need one or more items with one or more samples")
