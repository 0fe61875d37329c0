"""Laws of the cluster bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from harness.stats.clusters import Array, cluster_bootstrap


def mean_of(totals: Array) -> Array:
    means: Array = totals[:, 0] / totals[:, 1]
    return means


def made_clusters(seed: int, n: int = 40, per_cluster: int = 10) -> list[tuple[float, float]]:
    """Sums and counts of clusters whose values move together: between-cluster sd 1, within 0.1, mean 0."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 1, size=n)
    return [(float(rng.normal(m, 0.1, size=per_cluster).sum()), float(per_cluster)) for m in centres]


def test_the_same_seed_gives_the_same_bounds() -> None:
    rows = made_clusters(1)
    assert cluster_bootstrap(rows, mean_of, alpha=0.05) == cluster_bootstrap(rows, mean_of, alpha=0.05)


def test_the_interval_of_clustered_values_covers_their_mean_nine_times_in_ten() -> None:
    covered = 0
    for seed in range(300):
        low, high = cluster_bootstrap(made_clusters(seed), mean_of, alpha=0.05, resamples=499)
        covered += low <= 0 <= high
    assert 0.84 <= covered / 300 <= 0.95


def test_values_taken_for_independent_would_give_a_far_narrower_interval() -> None:
    low, high = cluster_bootstrap(made_clusters(2), mean_of, alpha=0.05)
    rng = np.random.default_rng(2)
    centres = rng.normal(0, 1, size=40)
    singles = [(float(v), 1.0) for m in centres for v in rng.normal(m, 0.1, size=10)]
    low_one, high_one = cluster_bootstrap(singles, mean_of, alpha=0.05)
    assert high - low > 2 * (high_one - low_one)


def test_identical_clusters_leave_no_uncertainty() -> None:
    low, high = cluster_bootstrap([(3.0, 2.0)] * 6, mean_of, alpha=0.05)
    assert low == high == 1.5


@pytest.mark.parametrize("rows", [[(1.0, 1.0)] * 4, [], [(float("nan"), 1.0)] * 6])
def test_too_few_clusters_or_sums_that_are_not_finite_are_refused(rows: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match=r"clusters|finite"):
        cluster_bootstrap(rows, mean_of, alpha=0.05)
