"""Laws of repeated samples; simulation is the oracle of the error and of the planning."""

from __future__ import annotations

import numpy as np
import pytest

from harness.stats.repeated_sampling import needed_samples, pass_all, within_item_se


def test_pass_k_counts_the_items_of_which_every_sample_is_right() -> None:
    assert pass_all([[True, True], [True, False], [False, False], [True, True]]) == 0.5


def test_the_error_inside_items_is_the_spread_of_repeated_runs_on_the_same_items() -> None:
    rng = np.random.default_rng(0)
    skills = rng.uniform(0.1, 0.9, 30)[:, None]
    runs = (rng.random((2_000, 30, 8)) < skills).astype(float) - (rng.random((2_000, 30, 8)) < skills)
    found = [within_item_se(run.tolist()) for run in runs[:200]]
    assert np.mean([s for s in found if s is not None]) == pytest.approx(
        runs.mean(axis=(1, 2)).std(), rel=0.05
    )


def test_samples_that_share_their_randomness_have_a_smaller_error() -> None:
    rng = np.random.default_rng(0)
    skills = rng.uniform(0.1, 0.9, 30)[:, None]
    draws = rng.random((30, 8))
    paired = ((draws < skills).astype(float) - (draws < skills + 0.01)).tolist()
    alone = ((draws < skills).astype(float) - (rng.random((30, 8)) < skills)).tolist()
    assert within_item_se(paired) < within_item_se(alone) / 2  # type: ignore[operator]


def test_one_sample_an_item_says_nothing_of_the_error_inside() -> None:
    assert within_item_se([[0.0], [1.0]]) is None


@pytest.mark.parametrize(("variance", "k"), [(0.08, 37), (0.12, 55), (0.2, 92)])
def test_thirty_problems_need_the_samples_that_the_planning_table_says(variance: float, k: int) -> None:
    # The arms share no randomness: the paired variance is twice that of one arm.
    se = (2 * variance / 30) ** 0.5
    assert needed_samples(se, 1, 30, 0.03, alpha=0.05) == pytest.approx(k, abs=1)


def test_samples_that_are_all_alike_still_need_a_number_of_them() -> None:
    assert needed_samples(0.0, 8, 30, 0.03, alpha=0.05) == 3


def test_no_items_are_refused() -> None:
    with pytest.raises(ValueError, match="one or more"):
        pass_all([])
