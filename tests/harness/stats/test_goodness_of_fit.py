"""Laws of the fit of draws to their own distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from harness.stats.goodness_of_fit import Draw, fit_p_value

CLASSES = 4


def draws_of(rng: np.random.Generator, n: int, *, sharpened: float = 1.0) -> list[Draw]:
    """Draws from ragged distributions; `sharpened` is the power that the drawing raises them to."""
    p = -np.sort(-rng.dirichlet(np.ones(CLASSES), size=n))
    q = p**sharpened
    q /= q.sum(1, keepdims=True)
    drawn = (rng.random((n, 1)) > q.cumsum(1)).sum(1)
    return [(tuple(row), int(k)) for row, k in zip(p.tolist(), drawn, strict=True)]


@pytest.mark.parametrize("level", [0.01, 0.1])
def test_draws_from_their_own_distributions_are_rejected_as_often_as_the_level_says(level: float) -> None:
    rng = np.random.default_rng(7)
    rejected = np.mean([fit_p_value(draws_of(rng, 60)) < level for _ in range(2_000)])
    assert rejected == pytest.approx(level, rel=0.35)


def test_draws_at_half_the_temperature_are_rejected() -> None:
    rng = np.random.default_rng(8)
    assert max(fit_p_value(draws_of(rng, 300, sharpened=2.0)) for _ in range(20)) < 1e-4


def test_with_one_distribution_for_all_draws_it_is_pearsons_chi_square() -> None:
    p = np.asarray([0.4, 0.3, 0.2, 0.1])
    counts = np.asarray([50, 20, 20, 10])
    draws = [(tuple(p.tolist()), k) for k in range(CLASSES) for _ in range(counts[k])]
    assert fit_p_value(draws) == pytest.approx(chisquare(counts, p * counts.sum()).pvalue)


@pytest.mark.parametrize(("small", "beside"), [(4, 3), (0, 1)])
def test_a_class_that_hardly_varies_counts_with_the_one_beside_it(small: int, beside: int) -> None:
    p = np.asarray([0.245] * 5)
    counts = np.asarray([20, 30, 30, 16, 24])
    p[small], counts[small] = 0.02, 4
    draws = [(tuple(p.tolist()), k) for k, count in enumerate(counts) for _ in range(count)]
    expected, seen = p * counts.sum(), counts.astype(float)
    for values in (expected, seen):
        values[beside] += values[small]
    found = chisquare(np.delete(seen, small), np.delete(expected, small)).pvalue
    assert fit_p_value(draws) == pytest.approx(found)


@pytest.mark.parametrize("draws", [[], [((1.0, 0.0), 0)] * 50, [((0.5, 0.5), 1)]])
def test_draws_that_could_hardly_be_others_say_nothing(draws: list[Draw]) -> None:
    assert fit_p_value(draws) == 1.0
