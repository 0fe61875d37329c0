"""The statistics beside statsmodels, an implementation that shares nothing with them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from statsmodels.emplike.descriptive import DescStat
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW, ttost_paired

from harness.model.words import Outcome
from harness.stats import clustered_difference as clustered
from harness.stats.binomial import clopper_pearson
from harness.stats.exact_tests import mcnemar_p
from harness.stats.margins import decide_below
from harness.stats.paired_ratio import paired_log_ratio


@pytest.mark.parametrize(("b", "c"), list(product((0, 1, 5, 17), (0, 2, 9))))
def test_the_exact_mcnemar_test_is_theirs(b: int, c: int) -> None:
    theirs = mcnemar([[40, b], [c, 60]], exact=True).pvalue if b + c else 1.0
    assert mcnemar_p(b, c) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(("hits", "n"), [(0, 5), (1, 40), (39, 40), (20, 40), (40, 40)])
def test_the_exact_interval_of_a_rate_is_theirs(hits: int, n: int) -> None:
    theirs = proportion_confint(hits, n, alpha=0.05, method="beta")
    assert clopper_pearson(hits, n, alpha=0.05) == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("n", [2, 5, 20])
def test_the_paired_interval_of_log_ratios_is_students(n: int) -> None:
    draw = np.random.default_rng(n)
    left, right = np.exp(draw.normal(size=(2, n)) * 0.1)
    low, high = DescrStatsW(np.log(right / left)).tconfint_mean(alpha=0.1)
    found = paired_log_ratio(left.tolist(), right.tolist(), alpha=0.05)
    estimate = found.estimate
    assert found.ci_low == pytest.approx(min(np.exp(low), estimate))
    assert found.ci_high == pytest.approx(max(np.exp(high), estimate))


@pytest.mark.parametrize("seed", range(20))
def test_no_slower_than_a_margin_is_one_side_of_their_equivalence_test(seed: int) -> None:
    draw = np.random.default_rng(seed)
    left, right = np.exp(draw.normal(size=(2, 8)) * 0.02)
    margin = np.log(1.02)
    _, _, (_, p_upper, _) = ttost_paired(np.log(right), np.log(left), -margin, margin)
    found = paired_log_ratio(left.tolist(), right.tolist(), alpha=0.05)
    passes = decide_below(found.ci_low, found.ci_high, 1.02) is Outcome.PASS
    assert passes is bool(p_upper < 0.05 and found.estimate < 1.02)


@pytest.mark.parametrize("sizes", [(1,) * 30, (3,) * 10, (1, 2, 3, 9, 5, 4)])
def test_the_clustered_error_is_that_of_a_regression_on_nothing(sizes: tuple[int, ...]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    values = np.clip(np.random.default_rng(3).normal(0, 0.3, len(groups)) + 0.1 * (groups % 3), -1, 1)
    fit = OLS(values, np.ones_like(values)).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False}
    )
    found = clustered.clustered_difference(values.tolist(), groups.tolist(), alpha=0.05)
    assert (found.estimate, found.se) == pytest.approx((fit.params[0], fit.bse[0]))


def likelihood_z(values: np.ndarray, hypothesis: float) -> float:
    """The score statistic with the variance that their empirical likelihood gives the hypothesis."""
    _, _, weights = DescStat(values).test_mean(hypothesis, return_weights=True)
    scores = values - hypothesis
    return float(scores.sum() / np.sqrt(len(values) * (weights.ravel() @ scores**2)))


VALUES = np.random.default_rng(5).uniform(-0.5, 0.5, 40)


@pytest.mark.parametrize("hypothesis", [-0.1, -0.05])
def test_the_variance_under_a_hypothesis_is_that_of_their_empirical_likelihood(hypothesis: float) -> None:
    ours = clustered.constrained_z(VALUES[None], np.ones(40), hypothesis)[0]
    assert ours == pytest.approx(likelihood_z(VALUES, hypothesis), rel=1e-4)


def test_a_cluster_that_was_not_seen_only_makes_a_far_hypothesis_harder_to_refute() -> None:
    assert clustered.constrained_z(VALUES[None], np.ones(40), -0.2)[0] < likelihood_z(VALUES, -0.2)
