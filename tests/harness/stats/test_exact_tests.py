"""Laws of the exact tests on counts. Oracle values: statsmodels 0.15.0 and scipy 1.17.1, as noted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.exact_tests import fisher_p, mcnemar_p, sign_test_p

counts = st.integers(0, 60)


@pytest.mark.parametrize(
    ("b", "c", "p"),
    [(30, 20, 0.20263875106454066), (7, 1, 0.0703125), (5, 0, 0.0625), (0, 0, 1.0), (12, 12, 1.0)],
)
def test_mcnemar_agrees_with_statsmodels(b: int, c: int, p: float) -> None:
    # statsmodels.stats.contingency_tables.mcnemar(..., exact=True)
    assert mcnemar_p(b, c) == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize(
    ("hits", "n", "reference_hits", "reference_n", "p"),
    [
        (3, 10, 0, 10, 0.10526315789473684),
        (6, 48, 0, 48, 0.013237187260956362),
        (9, 20, 4, 21, 0.07315295028607924),
    ],
)
def test_fisher_agrees_with_scipy(hits: int, n: int, reference_hits: int, reference_n: int, p: float) -> None:
    # scipy.stats.fisher_exact(..., alternative="greater")
    assert fisher_p(hits, n, reference_hits, reference_n) == pytest.approx(p, abs=1e-12)


@given(counts, counts)
def test_mcnemar_does_not_know_which_arm_is_which(b: int, c: int) -> None:
    assert mcnemar_p(b, c) == mcnemar_p(c, b)


@given(counts, counts)
def test_the_sign_test_is_half_of_mcnemar_on_the_worse_side(worse: int, better: int) -> None:
    if worse >= better:
        assert min(1.0, 2 * sign_test_p(worse, better)) == pytest.approx(mcnemar_p(worse, better))


@given(counts, counts)
def test_one_more_worse_pair_never_makes_the_candidate_look_better(worse: int, better: int) -> None:
    assert sign_test_p(worse + 1, better) <= sign_test_p(worse, better)


def test_four_worse_pairs_do_not_reach_five_percent_and_five_do() -> None:
    assert sign_test_p(5, 0) <= 0.05 < sign_test_p(4, 0)


@pytest.mark.parametrize("call", [lambda: mcnemar_p(-1, 0), lambda: fisher_p(3, 2, 0, 1)])
def test_impossible_counts_are_refused(call: object) -> None:
    with pytest.raises(ValueError, match=r"negative|more hits"):
        call()  # type: ignore[operator]
