"""Intervals for clustered data by resampling whole clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
MIN_CLUSTERS = 5
"""Fewer clusters than this have no bootstrap interval worth the name."""


def cluster_bootstrap(
    sums: Sequence[Sequence[float]],
    statistic: Callable[[Array], Array],
    *,
    alpha: float,
    resamples: int = 4_999,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bounds of a statistic of column sums, each at one-sided `alpha`.

    Args:
        sums: One row a cluster (a prompt, a document): the sums that the statistic is made of, for
            instance (total, count).
        statistic: Maps resampled totals, shape [resamples, columns], to one value a resample.
        alpha: One-sided level of each bound.
        resamples: Bootstrap samples.
        seed: Of the generator; the same seed gives the same bounds.

    Raises:
        ValueError: Fewer than `MIN_CLUSTERS` clusters, or a sum that is not finite.
    """
    table = np.asarray(sums, dtype=np.float64)
    if table.ndim != 2 or len(table) < MIN_CLUSTERS:
        raise ValueError(f"need {MIN_CLUSTERS} or more clusters, got {len(table)}")
    if not np.isfinite(table).all():
        raise ValueError("sums must be finite")
    n = len(table)
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    values = statistic(weights @ table)
    low, high = np.quantile(values, [alpha, 1 - alpha])
    return float(low), float(high)
