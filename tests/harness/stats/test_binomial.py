"""The exact interval of a counted rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from harness.stats.binomial import clopper_pearson


@given(n=st.integers(1, 300), data=st.data())
def test_each_end_is_the_rate_at_which_the_count_is_just_too_odd(n: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, n))
    low, high = clopper_pearson(hits, n, alpha=0.05)
    assert low == 0 if hits == 0 else binom.sf(hits - 1, n, low) == pytest.approx(0.025, abs=1e-6)
    assert high == 1 if hits == n else binom.cdf(hits, n, high) == pytest.approx(0.025, abs=1e-6)


def test_nothing_counted_says_nothing() -> None:
    assert clopper_pearson(0, 0, alpha=0.05) == (0.0, 1.0)


@pytest.mark.parametrize(("hits", "n"), [(-1, 3), (4, 3)])
def test_counts_that_cannot_be_are_refused(hits: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"{hits} hits of {n}"):
        clopper_pearson(hits, n, alpha=0.05)
