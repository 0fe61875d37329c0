"""Laws of the clustered paired difference; its oracles are Tango's statistic, a direct formula and simulation."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import special

from harness.model.words import Outcome
from harness.stats.clustered_difference import (
    clustered_difference,
    constrained_z,
    critical_z,
    min_clusters,
    needed_rows,
)
from harness.stats.margins import decide_above
from harness.stats.paired_proportions import tango_z

Array = npt.NDArray[np.float64]
RUNS = 2_000
ALPHA = 0.05


def table(n: int, b: int, c: int) -> list[float]:
    return [-1.0] * b + [1.0] * c + [0.0] * (n - b - c)


@given(st.integers(2, 300), st.data(), st.floats(-0.5, 0.2))
@settings(max_examples=60, deadline=None)
def test_single_right_or_wrong_answers_give_tangos_statistic(
    n: int, data: st.DataObject, limit: float
) -> None:
    b = data.draw(st.integers(0, n))
    c = data.draw(st.integers(0, n - b))
    assume((c - b) / n > limit + 1e-3)
    found = constrained_z(np.array([table(n, b, c)]), np.ones(n), limit)[0]
    assert found == pytest.approx(tango_z(n, b, c, limit), rel=1e-6, abs=1e-6)


def test_the_standard_error_is_that_of_cluster_sums_written_out() -> None:
    values, clusters = [0.2, -0.1, 0.4, 0.0, -0.3, 0.1], "aabbbc"
    mean = sum(values) / 6
    sums = [sum(v - mean for v, c in zip(values, clusters, strict=True) if c == name) for name in "abc"]
    found = clustered_difference(values, list(clusters), alpha=ALPHA)
    assert found.se == pytest.approx(sqrt(sum(s * s for s in sums)) / 6)


@pytest.mark.parametrize("margin", [0.03, 0.04, 0.1])
def test_differences_that_are_all_zero_need_a_number_of_clusters_to_show_a_margin(margin: float) -> None:
    n = min_clusters(margin, alpha=ALPHA)
    few, enough = (clustered_difference([0.0] * k, range(k), alpha=ALPHA) for k in (n - 1, n))
    assert few.ci_low < -margin <= enough.ci_low + 1e-6


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 20)), min_size=1, max_size=60),
)
@settings(max_examples=60, deadline=None)
def test_the_interval_holds_the_estimate_and_stays_in_range(pairs: list[tuple[float, int]]) -> None:
    found = clustered_difference([d for d, _ in pairs], [c for _, c in pairs], alpha=ALPHA)
    assert -1 <= found.ci_low <= found.estimate + 1e-9 and found.estimate - 1e-9 <= found.ci_high <= 1


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=40))
@settings(max_examples=40, deadline=None)
def test_swapping_the_arms_mirrors_the_interval(values: list[float]) -> None:
    one = clustered_difference(values, range(len(values)), alpha=ALPHA)
    other = clustered_difference([-v for v in values], range(len(values)), alpha=ALPHA)
    assert (one.ci_low, one.ci_high) == (pytest.approx(-other.ci_high), pytest.approx(-other.ci_low))


def test_repeating_each_difference_in_its_cluster_shows_nothing_new() -> None:
    values = np.random.default_rng(0).uniform(-0.3, 0.3, 40).tolist()
    once = clustered_difference(values, range(40), alpha=ALPHA)
    thrice = clustered_difference(values * 3, list(range(40)) * 3, alpha=ALPHA)
    assert (thrice.ci_low, thrice.ci_high) == (pytest.approx(once.ci_low), pytest.approx(once.ci_high))


def test_one_giant_cluster_bounds_nothing() -> None:
    found = clustered_difference([0.0] * 100, [0] * 90 + list(range(1, 11)), alpha=ALPHA)
    assert (found.ci_low, found.ci_high) == (-1.0, 1.0)


def test_a_giant_cluster_beside_as_many_single_ones_shows_no_margin_that_single_ones_would() -> None:
    found = clustered_difference([0.0] * 100, [0] * 50 + list(range(1, 51)), alpha=ALPHA)
    assert found.ci_low < -0.1


@pytest.mark.parametrize("values", [[], [1.5], [float("nan")]])
def test_what_is_no_difference_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"cluster|lie in"):
        clustered_difference(values, range(len(values)), alpha=ALPHA)


def losses(share: float, size: tuple[float, float], gains: float = 0.0) -> Callable[[int, int], Array]:
    """Differences of which a share is a loss, and a share a gain, of sizes drawn evenly."""

    def draw(seed: int, n: int) -> Array:
        rng = np.random.default_rng(seed)
        place, amount = rng.random((RUNS, n)), rng.uniform(*size, (RUNS, n))
        return np.where(place < share, -amount, np.where(place < share + gains, amount, 0.0))

    return draw


def shown_above(differences: Array, limit: float) -> Array:
    """By run: whether the interval lies above the limit, as `clustered_difference` would have it."""
    sizes = np.ones(differences.shape[1])
    return constrained_z(differences, sizes, limit) > critical_z(sizes, alpha=ALPHA)


DRAWS = [
    pytest.param(losses(0.04, (1, 1)), -0.04, id="few-whole-losses"),
    pytest.param(losses(0.1, (0.3, 0.5)), -0.04, id="losses-of-a-part"),
    pytest.param(losses(0.3, (0.1, 0.5), 0.1667), -0.04, id="losses-and-gains"),
]


@pytest.mark.parametrize("n", [70, 100, 300])
@pytest.mark.parametrize(("draw", "mean"), DRAWS)
def test_a_candidate_worse_by_the_margin_passes_in_about_one_of_twenty_runs_at_most(
    n: int, draw: Callable[[int, int], Array], mean: float
) -> None:
    assert shown_above(draw(n, n), mean).mean() <= 0.065


@pytest.mark.parametrize("n", [70, 100, 300])
def test_students_interval_would_pass_rare_whole_losses_too_often(n: int) -> None:
    differences = losses(0.04, (1, 1))(n, n)
    half_width = special.stdtrit(n - 1, 1 - ALPHA) * differences.std(axis=1, ddof=1) / sqrt(n)
    naive = differences.mean(axis=1) - half_width >= -0.04
    assert shown_above(differences, -0.04).mean() <= 0.065 < 0.08 < naive.mean()


@pytest.mark.parametrize("n", [70, 100, 300])
@pytest.mark.parametrize(("draw", "mean"), DRAWS)
def test_a_candidate_that_is_not_beyond_the_margin_fails_in_about_one_of_twelve_runs_at_most(
    n: int, draw: Callable[[int, int], Array], mean: float
) -> None:
    """The distribution of few whole losses is a coarse one: Tango's own error is as large there."""
    assert shown_above(-draw(n, n), -mean).mean() <= 0.08


def test_clusters_that_move_together_are_not_taken_for_independent() -> None:
    rng = np.random.default_rng(1)
    shared = np.where(rng.random((RUNS, 60)) < 0.1, -0.4, 0.0)
    sums, sizes = 5 * shared, np.full(60, 5.0)
    clustered = constrained_z(sums, sizes, -0.04) > critical_z(sizes, alpha=ALPHA)
    naive = shown_above(np.repeat(shared, 5, axis=1), -0.04)
    assert clustered.mean() <= 0.065 < 0.1 < naive.mean()


@pytest.mark.parametrize(
    ("n", "margin", "discordance", "size"),
    [(93, 0.04, 0.01, (0.2, 0.6)), (336, 0.03, 0.0075, (1, 1)), (480, 0.03, 0.015, (1, 1))],
    ids=["mrcr-of-the-full-profile", "aime-of-the-full-profile", "aime-with-more-noise"],
)
def test_two_runs_of_one_engine_pass_in_ninety_nine_of_a_hundred_runs_and_never_fail(
    n: int, margin: float, discordance: float, size: tuple[float, float]
) -> None:
    differences = losses(discordance / 2, size, discordance / 2)(n, n)
    assert shown_above(differences, -margin).mean() >= 0.99
    assert shown_above(-differences, margin).mean() <= 0.01


@pytest.mark.parametrize("discordance", [0.05, 0.1, 0.2])
def test_two_noisy_runs_of_one_engine_are_called_worse_in_at_most_one_of_a_hundred(
    discordance: float,
) -> None:
    differences = losses(discordance / 2, (0.3, 1), discordance / 2)(3, 100)
    assert shown_above(-differences, 0.04).mean() <= 0.01


@pytest.mark.parametrize("discordance", [0.04, 0.1, 0.2])
def test_the_rows_that_are_said_to_be_needed_have_the_power_that_was_asked(discordance: float) -> None:
    pilot = losses(discordance / 2, (0.5, 0.5), discordance / 2)(4, 4_000)[0]
    n = needed_rows(pilot.tolist(), range(4_000), 0.04, alpha=ALPHA)
    power = shown_above(losses(discordance / 2, (0.5, 0.5), discordance / 2)(5, n), -0.04).mean()
    assert 0.75 <= power <= 0.96  # A small n is coarse: it may show more than was asked.


def test_ten_points_lost_fail_one_point_does_not_and_a_gain_passes() -> None:
    """Of 480 pairs, losses of one whole answer."""

    def outcomes(lost: int, won: int) -> Outcome:
        found = clustered_difference(table(480, lost, won), range(480), alpha=ALPHA)
        return decide_above(found.ci_low, found.ci_high, -0.03)

    assert [outcomes(50, 2), outcomes(6, 1), outcomes(2, 50)] == [Outcome.FAIL, Outcome.PASS, Outcome.PASS]
