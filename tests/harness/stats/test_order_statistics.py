"""Laws of quantile bounds. Oracle values: scipy 1.17.1's quantile_test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.order_statistics import (
    min_n_for_upper_bound,
    quantile_lower_bound,
    quantile_upper_bound,
    sample_quantile,
)

SAMPLE = np.random.default_rng(3).exponential(size=400).round(4).tolist()
samples = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=200)
levels = st.sampled_from([0.5, 0.9, 0.95, 0.99])


@pytest.mark.parametrize(
    ("q", "low", "high"), [(0.5, 0.6761, 0.873), (0.95, 3.0582, 3.6964), (0.99, 3.8288, 5.0029)]
)
def test_the_bounds_agree_with_scipy(q: float, low: float, high: float) -> None:
    # scipy.stats.quantile_test(sample, p=q, alternative=...).confidence_interval(0.95)
    found = (quantile_lower_bound(SAMPLE, q, alpha=0.05), quantile_upper_bound(SAMPLE, q, alpha=0.05))
    assert found == (low, high)


@given(samples, levels)
def test_the_bounds_stand_around_the_sample_quantile(values: list[float], q: float) -> None:
    middle = sample_quantile(values, q)
    low, high = quantile_lower_bound(values, q, alpha=0.05), quantile_upper_bound(values, q, alpha=0.05)
    assert (low is None or low <= middle) and (high is None or middle <= high)


@pytest.mark.parametrize(("q", "n"), [(0.95, 59), (0.99, 299)])
def test_a_percentile_has_an_upper_bound_from_so_many_values_on(q: float, n: int) -> None:
    assert min_n_for_upper_bound(q, alpha=0.05) == n
    assert quantile_upper_bound(range(n), q, alpha=0.05) == n - 1
    assert quantile_upper_bound(range(n - 1), q, alpha=0.05) is None


def test_the_upper_bound_misses_the_true_quantile_in_at_most_one_case_of_twenty() -> None:
    rng = np.random.default_rng(17)
    truth = -np.log(0.05)
    bounds = [quantile_upper_bound(rng.exponential(size=100).tolist(), 0.95, alpha=0.05) for _ in range(600)]
    assert np.mean([bound is not None and bound < truth for bound in bounds]) <= 0.07


def test_the_sample_quantile_of_few_values_is_their_maximum() -> None:
    assert sample_quantile([3.0, 1.0, 2.0], 0.999) == 3.0


@pytest.mark.parametrize(("values", "q"), [([], 0.5), ([1.0], 0.0), ([1.0], 1.0)])
def test_no_values_or_an_impossible_level_are_refused(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match=r"values|q must"):
        sample_quantile(values, q)


def test_the_smallest_value_is_the_lower_bound_where_no_other_is_sure() -> None:
    # P(Bin(5, 1/2) = 0) = 1/32: one value in five is below the median with more than 95 %.
    assert quantile_lower_bound([3.0, 1.0, 2.0, 5.0, 4.0], 0.5, alpha=0.05) == 1.0


@pytest.mark.parametrize(("n", "q", "rank"), [(4, 0.5, 2), (100, 0.07, 7)])
def test_a_share_that_is_reached_exactly_needs_no_further_value(n: int, q: float, rank: int) -> None:
    # 0.07 * 100 is a little more than 7 in double precision.
    assert sample_quantile(range(1, n + 1), q) == rank


def test_a_bound_that_is_missed_with_exactly_alpha_is_one() -> None:
    # Both of two values are above the median with probability 1/4, and below it.
    assert quantile_lower_bound([1.0, 2.0], 0.5, alpha=0.25) == 1.0
    assert quantile_upper_bound([1.0, 2.0], 0.5, alpha=0.25) == 2.0
    assert min_n_for_upper_bound(0.5, alpha=0.125) == 3


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_the_edges_have_no_percentile_to_bound(q: float) -> None:
    with pytest.raises(ValueError, match="q must"):
        min_n_for_upper_bound(q, alpha=0.05)
