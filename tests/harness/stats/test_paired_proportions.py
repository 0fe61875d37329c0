"""Laws of the paired non-inferiority test."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.stats.paired_proportions import min_n_without_discordance, needed_n, tango_interval, tango_z


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, int, int]:
    n = draw(st.integers(1, 400))
    b = draw(st.integers(0, n))
    return n, b, draw(st.integers(0, n - b))


def constrained_z(n: int, b: int, c: int, difference: float) -> float:
    """The score statistic by direct search of the constrained likelihood, without Tango's closed form."""
    low, high = max(0.0, -difference), (1 - difference) / 2

    def loglik(q: float) -> float:
        terms = ((b, q), (c, q + difference), (n - b - c, 1 - 2 * q - difference))
        return sum(k * log(max(p, 1e-300)) for k, p in terms if k)

    for _ in range(200):
        third = (high - low) / 3
        if loglik(low + third) < loglik(high - third):
            low += third
        else:
            high -= third
    q = (low + high) / 2
    return (c - b - n * difference) / sqrt(n * (2 * q + difference * (1 - difference)))


@given(tables(), st.floats(-0.6, 0.6))
def test_z_is_the_score_at_the_constrained_maximum_of_the_likelihood(
    table: tuple[int, int, int], difference: float
) -> None:
    n, b, c = table
    assume(abs(difference) > 1e-3)
    assert tango_z(n, b, c, difference) == pytest.approx(
        constrained_z(n, b, c, difference), rel=1e-3, abs=1e-3
    )


def test_the_interval_of_a_published_table_comes_out() -> None:
    # Airway responsiveness before and after stem cell transplantation (Bentur et al. 2009): n = 21, discordant 7 and
    # 1; Fagerland, Lydersen and Laake work it as their example of the paired table: -0.517 to -0.026.
    found = tango_interval(21, 7, 1, alpha=0.025)
    assert (round(found.ci_low, 3), round(found.ci_high, 3)) == (-0.517, -0.026)


@pytest.mark.parametrize(("b", "z"), [(20, 1.99), (30, 0.45)])
def test_the_worked_examples_of_a_grade_school_benchmark_come_out(b: int, z: float) -> None:
    assert tango_z(1319, b, 20, -0.01) == pytest.approx(z, abs=0.01)


@given(tables(), st.sampled_from([0.025, 0.05, 0.1]))
def test_the_interval_holds_the_estimate_and_lies_in_the_possible(
    table: tuple[int, int, int], alpha: float
) -> None:
    found = tango_interval(*table, alpha=alpha)
    assert -1 <= found.ci_low <= found.estimate <= found.ci_high <= 1


@given(tables(), st.floats(0.01, 0.4))
def test_clearing_the_margin_by_the_interval_and_by_the_statistic_is_the_same(
    table: tuple[int, int, int], margin: float
) -> None:
    z = tango_z(*table, -margin)
    assume(abs(z - 1.6448536269514722) > 1e-6)
    assert (tango_interval(*table, alpha=0.05).ci_low > -margin) == (z > 1.6448536269514722)


@given(tables())
def test_swapping_the_arms_mirrors_the_interval(table: tuple[int, int, int]) -> None:
    n, b, c = table
    one, other = tango_interval(n, b, c, alpha=0.05), tango_interval(n, c, b, alpha=0.05)
    assert one.ci_low == pytest.approx(-other.ci_high, abs=1e-9)


@pytest.mark.parametrize(("margin", "n"), [(0.05, 52), (0.01, 268), (0.02, 133), (0.03, 88)])
def test_even_without_discordance_a_margin_needs_so_many_pairs(margin: float, n: int) -> None:
    assert min_n_without_discordance(margin, alpha=0.05) == n
    assert tango_z(n, 0, 0, -margin) > 1.6448 > tango_z(n - 1, 0, 0, -margin)


@pytest.mark.parametrize(
    ("discordance", "margin", "n"), [(0.02, 0.01, 1237), (0.04, 0.01, 2474), (0.04, 0.015, 1100)]
)
def test_planning_agrees_with_the_normal_approximation(discordance: float, margin: float, n: int) -> None:
    assert needed_n(discordance, margin, alpha=0.05) == pytest.approx(n, abs=1)


def test_a_candidate_worse_by_the_whole_margin_is_passed_in_about_one_case_of_twenty() -> None:
    rng = np.random.default_rng(7)
    passed = 0
    for _ in range(2000):
        b, c, _ = rng.multinomial(300, [0.07, 0.02, 0.91])
        passed += tango_z(300, int(b), int(c), -0.05) > 1.6449
    assert passed / 2000 <= 0.065


@pytest.mark.parametrize("table", [(0, 0, 0), (5, 4, 3), (5, -1, 0)])
def test_a_table_that_cannot_be_is_refused(table: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="not a paired table"):
        tango_z(*table, -0.05)
