"""Laws of the token-level limits, on made distances."""

from __future__ import annotations

import numpy as np
import pytest

from harness.checks.joins.token_level import MAX_TIE_GAP, TokenComparison, tie_gap
from harness.checks.joins.token_limits import decide_token_level
from harness.model.policy import TokenLevelPolicy
from harness.model.words import Outcome
from tests.harness.checks.evidence_builder import POLICY

LIMITS = POLICY.token_level


def token(index: int, *, kl: float = 1e-9, noise_kl: float = 0.0, **fields: object) -> TokenComparison:
    made = {
        "item": f"p{index % 20}@c1",
        "prompt": f"p{index % 20}",
        "position": index // 20,
        "step": None,
        "kl": kl,
        "noise_kl": noise_kl,
        "gap": 1.0,
        "noise_gap_shift": 0.0,
        "flips": False,
        "noise_flips": False,
        "is_identical": False,
    }
    return TokenComparison(**(made | fields))  # type: ignore[arg-type]


def outcome_of(tokens: list[TokenComparison]) -> Outcome:
    return decide_token_level(tokens, "made", POLICY, tie=0.01).outcome


@pytest.mark.parametrize(
    ("num_far", "outcome"),
    [(0, Outcome.PASS), (2, Outcome.PASS), (3, Outcome.INCONCLUSIVE), (7, Outcome.FAIL)],
)
def test_a_few_tokens_far_away_are_seen_in_the_tail_though_the_mean_is_within_its_limit(
    num_far: int, outcome: Outcome
) -> None:
    tokens = [token(i, kl=1.5e-3 if i < num_far else 1e-9) for i in range(2000)]
    assert sum(t.kl for t in tokens) / len(tokens) < LIMITS.kl_floor
    assert outcome_of(tokens) is outcome


def test_a_tail_as_long_as_the_a_as_is_within_the_limit() -> None:
    tokens = [token(i, kl=2e-3 if i < 3 else 1e-9, noise_kl=1.5e-3 if i < 3 else 1e-9) for i in range(2000)]
    assert outcome_of(tokens) is Outcome.PASS


@pytest.mark.parametrize(("noise", "outcome"), [(0.02, Outcome.PASS), (0.021, Outcome.INCONCLUSIVE)])
def test_a_baseline_too_far_from_itself_is_no_yardstick(noise: float, outcome: Outcome) -> None:
    assert outcome_of([token(i, kl=1e-9, noise_kl=noise) for i in range(400)]) is outcome


def test_a_mean_beyond_the_limit_in_every_prompt_fails() -> None:
    assert outcome_of([token(i, kl=5e-5) for i in range(400)]) is Outcome.FAIL


def test_a_mean_that_one_prompt_alone_pushes_beyond_the_limit_is_inconclusive() -> None:
    tokens = [token(i, kl=5e-4 if i % 20 == 0 else 1e-9) for i in range(400)]
    assert outcome_of(tokens) is Outcome.INCONCLUSIVE


def test_one_and_a_half_times_the_a_as_mean_is_allowed_and_three_times_is_not() -> None:
    rng = np.random.default_rng(3)
    noise = rng.exponential(1e-4, size=2000)
    for factor, outcome in ((1.5, Outcome.PASS), (3.0, Outcome.FAIL)):
        tokens = [token(i, kl=float(n) * factor, noise_kl=float(n)) for i, n in enumerate(noise)]
        assert outcome_of(tokens) is outcome


def test_a_candidate_as_noisy_as_the_a_a_is_never_failed() -> None:
    rng = np.random.default_rng(5)
    outcomes = []
    for _ in range(60):
        noise, kl = rng.exponential(1e-4, size=(2, 400))
        tokens = [
            token(i, kl=float(k), noise_kl=float(n)) for i, (k, n) in enumerate(zip(kl, noise, strict=True))
        ]
        outcomes.append(outcome_of(tokens))
    assert Outcome.FAIL not in outcomes and outcomes.count(Outcome.PASS) >= 55


@pytest.mark.parametrize("num_prompts", [1, 4])
def test_with_fewer_than_five_prompts_each_prompts_own_mean_must_be_within_the_limit(
    num_prompts: int,
) -> None:
    def made(kl_of_first: float) -> list[TokenComparison]:
        return [
            token(i, prompt=f"p{i % num_prompts}", kl=kl_of_first if i % num_prompts == 0 else 1e-9)
            for i in range(100)
        ]

    assert outcome_of(made(1e-9)) is Outcome.PASS
    assert outcome_of(made(5e-5)) is (Outcome.FAIL if num_prompts == 1 else Outcome.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("flips", "noise_flips", "outcome"),
    [(0, 0, Outcome.PASS), (1, 0, Outcome.INCONCLUSIVE), (5, 0, Outcome.FAIL), (5, 5, Outcome.PASS)],
)
def test_confident_flips_are_held_against_the_a_as(flips: int, noise_flips: int, outcome: Outcome) -> None:
    tokens = [token(i, flips=i < flips, noise_flips=100 <= i < 100 + noise_flips) for i in range(200)]
    assert outcome_of(tokens) is outcome


def test_flips_at_ties_are_no_fault() -> None:
    assert outcome_of([token(i, flips=True, gap=0.005) for i in range(200)]) is Outcome.PASS


def test_a_tie_grows_with_the_noise_and_never_beyond_its_cap() -> None:
    policy = TokenLevelPolicy()
    quiet, noisy, wild = (tie_gap([shift] * 100, policy) for shift in (0.0, 0.05, 5.0))
    assert (noisy, wild) == (0.05, MAX_TIE_GAP) and 0 < quiet < noisy


def test_one_wild_token_of_the_a_a_does_not_make_everything_a_tie() -> None:
    assert tie_gap([0.0] * 199 + [5.0], TokenLevelPolicy()) < 0.01
