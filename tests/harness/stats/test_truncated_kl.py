"""Laws of the divergence between truncated distributions."""

from __future__ import annotations

from math import log

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.truncated_kl import truncated_kl

Array = npt.NDArray[np.float64]
VOCABULARY = 60


def distribution(seed: int, sharpness: float) -> Array:
    weights = np.exp(sharpness * np.random.default_rng(seed).standard_normal(VOCABULARY))
    normalised: Array = weights / weights.sum()
    return normalised


def top(p: Array, k: int = 20) -> tuple[list[int], list[float]]:
    order = np.argsort(-p)[:k]
    return order.tolist(), np.log(p[order]).tolist()


def full_kl(p: Array, q: Array) -> float:
    return float(np.sum(p * np.log(p / q)))


seeds = st.integers(0, 10_000)
sharpness = st.floats(0.1, 4.0)


@given(seeds, seeds, sharpness)
def test_it_never_exceeds_the_divergence_of_the_whole_distributions(a: int, b: int, s: float) -> None:
    p, q = distribution(a, s), distribution(b, s)
    assert truncated_kl(*top(p), *top(q)) <= full_kl(p, q) + 1e-6


@given(seeds, sharpness)
def test_a_distribution_is_at_no_distance_from_itself(seed: int, s: float) -> None:
    p = distribution(seed, s)
    assert truncated_kl(*top(p), *top(p)) < 1e-12


def test_it_is_exact_when_the_lists_hold_the_same_tokens_and_one_more() -> None:
    # scipy.stats.entropy(p, q) of the same two distributions: 1.5915764069545908
    p = np.random.default_rng(0).dirichlet(np.ones(21) * 0.5)
    q = np.random.default_rng(1).dirichlet(np.ones(21) * 0.5)
    ids = list(range(20))
    found = truncated_kl(ids, np.log(p[:20]).tolist(), ids, np.log(q[:20]).tolist())
    assert found == pytest.approx(1.5915764069545908, abs=1e-9)


def test_lists_without_a_common_token_are_far_apart_though_both_have_the_same_tail() -> None:
    ids, values = list(range(20)), [log(0.0499)] * 20
    assert truncated_kl(ids, values, list(range(20, 40)), values) > 2


def test_tokens_that_have_to_share_a_small_tail_count_as_one_bucket() -> None:
    ids, values = list(range(11)), [log(0.4), *[log(0.05)] * 10]
    expected = 0.4 * log(0.4 / 0.9999) + 0.6 * log(0.6 / 0.0001)
    assert truncated_kl(ids, values, [0], [log(0.9999)]) == pytest.approx(expected)


@given(seeds, st.floats(1e-6, 1e-3))
def test_a_small_perturbation_costs_half_its_variance(seed: int, scale: float) -> None:
    p = distribution(seed, 1.0)
    shift = scale * np.random.default_rng(seed + 1).standard_normal(VOCABULARY)
    q = p * np.exp(shift)
    q /= q.sum()
    variance = float(np.sum(p * shift**2) - np.sum(p * shift) ** 2)
    assert truncated_kl(*top(p), *top(q)) <= variance / 2 * 1.05 + 1e-12


@given(seeds, sharpness)
def test_the_forced_token_at_the_end_of_a_list_does_not_shrink_what_an_absent_token_can_have(
    seed: int, s: float
) -> None:
    q = distribution(seed, s)
    order = np.argsort(-q)
    ids, values = top(q)
    with_forced = ([*ids, int(order[-1])], [*values, log(q[order[-1]])])
    swapped = q.copy()
    swapped[[order[19], order[20]]] = swapped[[order[20], order[19]]]
    assert truncated_kl(*top(swapped), *with_forced) <= full_kl(swapped, q) + 1e-6


@pytest.mark.parametrize(
    ("p", "q"), [(([], []), ([1], [0.0])), (([1], [0.0]), ([], [])), (([1, 2], [0.0]), ([1], [0.0]))]
)
def test_lists_that_do_not_match_are_refused(
    p: tuple[list[int], list[float]], q: tuple[list[int], list[float]]
) -> None:
    with pytest.raises(ValueError, match="must"):
        truncated_kl(*p, *q)
