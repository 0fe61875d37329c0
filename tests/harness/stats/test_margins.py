"""Laws of the three-valued decision."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model.words import Outcome
from harness.stats.margins import decide_above, decide_below, n_to_resolve

numbers = st.floats(-10, 10)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(0.0, 1.0, Outcome.PASS), (1.1, 2.0, Outcome.FAIL), (0.5, 1.5, Outcome.INCONCLUSIVE)],
)
def test_less_is_better_has_three_answers(low: float, high: float, outcome: Outcome) -> None:
    assert decide_below(low, high, 1.0) is outcome


@given(numbers, numbers, numbers)
def test_more_is_better_is_less_is_better_seen_in_a_mirror(a: float, b: float, limit: float) -> None:
    low, high = min(a, b), max(a, b)
    assert decide_above(low, high, limit) is decide_below(-high, -low, -limit)


@given(numbers, numbers, numbers, st.floats(0, 5))
def test_a_wider_interval_never_decides_more(a: float, b: float, limit: float, by: float) -> None:
    low, high = min(a, b), max(a, b)
    wider = decide_below(low - by, high + by, limit)
    assert wider in (Outcome.INCONCLUSIVE, decide_below(low, high, limit))


def test_an_interval_four_times_too_wide_needs_sixteen_times_the_sample() -> None:
    assert n_to_resolve(10, 0.4, 0.1) == 160


def test_an_estimate_on_the_limit_is_never_resolved() -> None:
    assert n_to_resolve(10, 0.4, 0.0) is None


@given(st.integers(1, 10**6), st.floats(0.01, 10))
def test_what_is_not_resolved_needs_one_more_at_least(n: int, width: float) -> None:
    assert n_to_resolve(n, width, width * 2) == n + 1
