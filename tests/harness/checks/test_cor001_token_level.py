"""Outcomes of COR001."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.checks.correctness.cor001_token_level import TokenLevel
from harness.model.evaluation import SuiteItem, TokenLogprobs
from harness.model.finding import Finding
from harness.model.words import Arm, Outcome
from tests.harness.checks.evidence_builder import (
    World,
    build_evidence,
    change_items,
    clean_evidence,
    context_of,
)

SUITE = "teacher_forced"


def findings_of(evidence: object) -> dict[str, Finding]:
    return {f.subject: f for f in TokenLevel().run(context_of(evidence))}  # type: ignore[arg-type]


def changed(change: object, arm: Arm = Arm.CANDIDATE) -> dict[str, Finding]:
    return findings_of(change_items(clean_evidence(), SUITE, arm, change))  # type: ignore[arg-type]


def first_replaced(**update: object) -> object:
    def change(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [items[0].model_copy(update=update), *items[1:]]

    return change


def test_a_state_that_is_lost_at_batch_above_one_fails_there_and_only_there() -> None:
    found = findings_of(build_evidence(World(loses_state=lambda _suite, batch: batch > 1)))
    assert found["batch 1"].outcome is Outcome.PASS
    assert found["batch 2"].outcome is Outcome.FAIL
    assert found["batch 8"].outcome is Outcome.FAIL


def test_a_fault_at_the_largest_batch_does_not_hide_in_the_mean_over_all_batches() -> None:
    found = findings_of(build_evidence(World(loses_state=lambda suite, batch: suite == SUITE and batch == 8)))
    assert {s for s, f in found.items() if f.outcome is Outcome.FAIL} >= {"batch 8"}
    assert found["batch 2"].outcome is Outcome.PASS


def test_tokens_that_another_path_made_do_not_count_and_the_finding_says_how_many_are_needed() -> None:
    found = findings_of(build_evidence(World(falls_back=lambda _suite, batch: batch == 8)))
    assert found["batch 8"].outcome is Outcome.INCONCLUSIVE
    assert "64 more are needed" in found["batch 8"].message


def test_client_concurrency_without_full_steps_is_no_evidence_of_that_batch() -> None:
    def alone(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [i for i in items if i.concurrency != 8]

    evidence = clean_evidence()
    for arm in Arm:
        evidence = change_items(evidence, SUITE, arm, alone)
    assert findings_of(evidence)["batch 8"].outcome is Outcome.INCONCLUSIVE


def test_a_log_probability_that_is_not_finite_fails() -> None:
    sick = TokenLogprobs(token_ids=(), logprobs=(), num_not_finite=20)
    found = changed(first_replaced(top_logprobs=(sick,) * 9))
    assert [f.outcome for f in found.values()] == [Outcome.FAIL]


def test_a_candidate_that_walked_other_tokens_was_not_forced_and_is_an_error() -> None:
    found = changed(first_replaced(token_ids=(0,) * 9))
    assert [f.outcome for f in found.values()] == [Outcome.ERROR]


def test_a_refused_request_fails() -> None:
    found = changed(first_replaced(error="HTTP 500: boom"))
    assert found["teacher-forced answers"].outcome is Outcome.FAIL
    assert "boom" in found["teacher-forced answers"].message


def test_missing_log_probabilities_are_inconclusive() -> None:
    found = changed(first_replaced(top_logprobs=()))
    assert [f.outcome for f in found.values()] == [Outcome.INCONCLUSIVE]


def test_numbers_that_are_no_distribution_are_an_error() -> None:
    top = TokenLogprobs(token_ids=(1, 2), logprobs=(-0.1, -0.1))
    found = changed(first_replaced(top_logprobs=(top,) * 9))
    assert [f.outcome for f in found.values()] == [Outcome.ERROR]


def test_requests_that_occur_twice_are_an_error() -> None:
    found = changed(lambda items: [*items, items[0]])
    assert [f.outcome for f in found.values()] == [Outcome.ERROR]


def test_a_missing_request_leaves_the_rest_judged_and_the_check_inconclusive() -> None:
    found = changed(lambda items: items[1:])
    assert found["teacher-forced answers"].outcome is Outcome.INCONCLUSIVE
    assert found["batch 8"].outcome is Outcome.PASS


def test_a_suite_without_requests_is_inconclusive() -> None:
    evidence = clean_evidence()
    for arm in Arm:
        evidence = change_items(evidence, SUITE, arm, lambda _items: [])
    assert [f.outcome for f in findings_of(evidence).values()] == [Outcome.INCONCLUSIVE]


def test_requests_that_were_not_asked_alike_are_an_error() -> None:
    assert [f.outcome for f in changed(first_replaced(num_prompt_tokens=99)).values()] == [Outcome.ERROR]


def test_a_wide_distance_is_within_the_limit_when_two_baselines_are_as_far_apart() -> None:
    noisy = World(noise=1e-2, noise_again=1e-2)
    assert findings_of(build_evidence(noisy))["batch 8"].outcome is Outcome.PASS
    assert findings_of(build_evidence(World(noise=1e-2)))["batch 8"].outcome is Outcome.FAIL


def test_one_wrong_token_among_many_is_not_passed() -> None:
    def one_wrong(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        first = items[0]
        top = first.top_logprobs[-1]
        turned = top.model_copy(update={"token_ids": (*top.token_ids[1:], top.token_ids[0])})
        return [first.model_copy(update={"top_logprobs": (*first.top_logprobs[:-1], turned)}), *items[1:]]

    found = changed(one_wrong)
    hit = [f for f in found.values() if f.outcome is not Outcome.PASS]
    assert len(hit) == 1 and "confident flip" in hit[0].message


def cut_to_the_first(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
    """What lies behind the most likely token is not told."""
    return [
        i.model_copy(
            update={
                "top_logprobs": tuple(
                    TokenLogprobs(token_ids=t.token_ids[:1], logprobs=t.logprobs[:1]) for t in i.top_logprobs
                )
            }
        )
        for i in items
    ]


@pytest.mark.parametrize("arms", [(Arm.CANDIDATE,), tuple(Arm)], ids=["candidate", "all"])
def test_lists_of_fewer_than_twenty_tokens_hide_where_the_rest_went(arms: tuple[Arm, ...]) -> None:
    def scrambled(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [
            i.model_copy(
                update={
                    "top_logprobs": tuple(
                        TokenLogprobs(token_ids=(t.token_ids[0], *t.token_ids[:0:-1]), logprobs=t.logprobs)
                        for t in i.top_logprobs
                    )
                }
            )
            for i in items
        ]

    evidence = change_items(clean_evidence(), SUITE, Arm.CANDIDATE, scrambled)
    assert findings_of(evidence)["batch 8"].outcome is Outcome.FAIL
    for arm in arms:
        evidence = change_items(evidence, SUITE, arm, cut_to_the_first)
    assert {f.outcome for f in findings_of(evidence).values()} == {Outcome.INCONCLUSIVE}


def test_a_baseline_as_far_from_itself_as_a_broken_candidate_judges_nothing() -> None:
    found = findings_of(build_evidence(World(noise=1.0, noise_again=1.0)))
    assert Outcome.PASS not in {f.outcome for f in found.values()}
    assert "nothing can be judged" in found["batch 8"].message


def test_measurements_carry_estimate_interval_margin_and_the_number_of_prompts() -> None:
    mean = findings_of(clean_evidence())["batch 8"].measurements[0]
    assert (mean.unit, mean.n, mean.margin) == ("nats", 8, 1e-5)
    assert mean.ci_low is not None and mean.ci_high is not None
    assert mean.ci_low <= mean.estimate <= mean.ci_high < 1e-5
