"""Whether draws follow the distributions that they were said to be drawn from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Draw = tuple[tuple[float, ...], int]
"""The probability of each class, summing to 1, and the class that was drawn."""

MIN_VARIANCE = 3.0
"""A class whose count varies less than this, in draws squared, joins the class before it."""


def fit_p_value(draws: Sequence[Draw]) -> float:
    """Chi-square p value that the draws follow their own probabilities; 1 when nothing was left to chance.

    Each draw has probabilities of its own, so the statistic is z' V^-1 z with z the counts less their expectation and V
    the summed multinomial covariances: the counts are a sum of martingale differences even where a draw depends on
    those before it. Classes that hardly vary are joined, since the approximation needs several counts in each.
    """
    from scipy.special import chdtrc

    if not draws:
        return 1.0
    probabilities = np.asarray([p for p, _ in draws], dtype=np.float64)
    excess = np.bincount([drawn for _, drawn in draws], minlength=probabilities.shape[1]) - probabilities.sum(
        0
    )
    covariance = np.diag(probabilities.sum(0)) - probabilities.T @ probabilities
    joined = _joined_classes(covariance)
    if not len(joined):
        return 1.0
    z, v = joined @ excess, joined @ covariance @ joined.T
    return float(chdtrc(len(z), z @ np.linalg.solve(v, z)))


def _joined_classes(covariance: Array) -> Array:
    """Which classes are counted together, [groups less one, classes]: the last group follows from the others."""
    groups: list[list[int]] = []
    for index in range(len(covariance)):
        if groups and _variance(covariance, groups[-1]) < MIN_VARIANCE:
            groups[-1].append(index)
        else:
            groups.append([index])
    if len(groups) > 1 and _variance(covariance, groups[-1]) < MIN_VARIANCE:
        groups[-2] += groups.pop()
    sums = np.zeros((len(groups) - 1, len(covariance)))
    for row, group in enumerate(groups[:-1]):
        sums[row, group] = 1.0
    return sums


def _variance(covariance: Array, group: list[int]) -> float:
    return float(covariance[np.ix_(group, group)].sum())
