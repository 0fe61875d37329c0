"""Laws of paired timings. Oracle values: statsmodels 0.15.0 and scipy 1.17.1, as noted."""

from __future__ import annotations

from math import exp, log
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.paired_ratio import hodges_lehmann, needed_pairs, paired_log_ratio, sign_flip_p

REFERENCE = (10.1, 10.3, 9.9, 10.0, 10.4, 10.2)
OTHER = (9.0, 9.4, 9.1, 8.8, 9.6, 9.3)
times = st.lists(st.tuples(st.floats(0.1, 1e3), st.floats(0.1, 1e3)), min_size=2, max_size=12)


def test_the_interval_agrees_with_statsmodels() -> None:
    # statsmodels.stats.weightstats.DescrStatsW(log ratios).tconfint_mean(alpha=0.10)
    found = paired_log_ratio(REFERENCE, OTHER, alpha=0.05)
    assert (found.ci_low, found.ci_high) == pytest.approx((0.89222443, 0.92030756), abs=1e-8)


def test_the_estimate_is_the_median_of_the_walsh_averages() -> None:
    logs = [log(o / r) for r, o in zip(REFERENCE, OTHER, strict=True)]
    averages = [(a + b) / 2 for i, a in enumerate(logs) for b in logs[i:]]
    found = paired_log_ratio(REFERENCE, OTHER, alpha=0.05)
    assert found.estimate == pytest.approx(exp(median(averages)))


def test_the_sign_flip_test_agrees_with_scipy() -> None:
    # scipy.stats.permutation_test(permutation_type="samples", alternative="less", n_resamples=inf)
    assert sign_flip_p([-0.3, -0.1, 0.05, -0.2, -0.15, -0.02, 0.01]) == pytest.approx(0.046875)


@given(times)
def test_the_interval_holds_the_estimate(pairs: list[tuple[float, float]]) -> None:
    found = paired_log_ratio([a for a, _ in pairs], [b for _, b in pairs], alpha=0.05)
    assert found.ci_low <= found.estimate <= found.ci_high


@given(times, st.floats(0.5, 2.0))
def test_a_slower_candidate_moves_the_ratio_by_exactly_that_factor(
    pairs: list[tuple[float, float]], factor: float
) -> None:
    reference, other = [a for a, _ in pairs], [b for _, b in pairs]
    before = paired_log_ratio(reference, other, alpha=0.05)
    after = paired_log_ratio(reference, [t * factor for t in other], alpha=0.05)
    assert after.estimate == pytest.approx(before.estimate * factor, rel=1e-9)


@given(times)
def test_swapping_the_arms_inverts_the_ratio(pairs: list[tuple[float, float]]) -> None:
    reference, other = [a for a, _ in pairs], [b for _, b in pairs]
    one = paired_log_ratio(reference, other, alpha=0.05)
    two = paired_log_ratio(other, reference, alpha=0.05)
    assert one.estimate == pytest.approx(1 / two.estimate, rel=1e-9)


def test_one_wild_block_moves_the_estimate_little() -> None:
    assert hodges_lehmann([0.0, 0.01, -0.01, 0.02, -0.02, 0.0, 50.0]) < 0.03


@pytest.mark.parametrize(("n", "smallest"), [(5, 1 / 32), (7, 1 / 128)])
def test_n_pairs_cannot_give_a_p_below_two_to_the_minus_n(n: int, smallest: float) -> None:
    assert sign_flip_p([-0.1 - 0.01 * i for i in range(n)]) == smallest


def test_drawn_patterns_agree_with_counted_ones_and_repeat_exactly() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(-0.1, 0.3, size=14).tolist()
    exact = sign_flip_p(values)
    padded = [*values, 0.0]
    assert sign_flip_p(padded) == pytest.approx(exact, abs=0.02)
    assert sign_flip_p(padded) == sign_flip_p(padded)


def test_drawn_patterns_cannot_give_a_p_below_one_in_their_number_with_the_observed_one() -> None:
    assert sign_flip_p([-1.0] * 40, num_flips=9) == 1 / 10


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=10))
def test_both_tails_of_the_sign_flip_test_cover_everything(values: list[float]) -> None:
    assert sign_flip_p(values) + sign_flip_p([-v for v in values]) >= 1 - 1e-9


def test_without_a_difference_the_sign_flip_test_alarms_in_one_case_of_twenty() -> None:
    rng = np.random.default_rng(11)
    alarms = sum(sign_flip_p(rng.standard_t(3, size=8).tolist()) <= 0.05 for _ in range(1500))
    assert 0.03 <= alarms / 1500 <= 0.065


def test_the_interval_covers_a_true_ratio_of_one_nine_times_in_ten() -> None:
    rng = np.random.default_rng(13)
    covered = 0
    for _ in range(1500):
        reference, other = np.exp(rng.normal(0, 0.02, size=(2, 6)))
        found = paired_log_ratio(reference.tolist(), other.tolist(), alpha=0.05)
        covered += found.ci_low <= 1 <= found.ci_high
    assert 0.88 <= covered / 1500 <= 0.93


@pytest.mark.parametrize(("sd", "effect", "pairs"), [(0.005, 0.004, 12), (0.01, 0.01, 9), (0.02, 0.02, 9)])
def test_planning_gives_the_known_numbers_of_pairs(sd: float, effect: float, pairs: int) -> None:
    assert needed_pairs(sd, effect, alpha=0.05) == pairs


def test_without_noise_the_exact_test_still_asks_for_five_pairs() -> None:
    assert needed_pairs(0.0, 0.01, alpha=0.05) == 5


@pytest.mark.parametrize(
    ("reference", "other"),
    [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, 0.0], [1.0, 1.0]), ([1.0, float("nan")], [1.0, 1.0])],
)
def test_times_that_cannot_be_compared_are_refused(reference: list[float], other: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|positive"):
        paired_log_ratio(reference, other, alpha=0.05)
