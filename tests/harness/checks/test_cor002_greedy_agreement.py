"""Outcomes of COR002."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from harness.checks.correctness.cor002_greedy_agreement import GreedyAgreement, first_divergence
from harness.model.evaluation import SuiteItem, TokenLogprobs
from harness.model.finding import Finding
from harness.model.words import Arm, Outcome, Tier
from tests.harness.checks.evidence_builder import (
    World,
    build_evidence,
    change_items,
    clean_evidence,
    context_of,
)


def findings_of(evidence: object) -> dict[str, Finding]:
    return {f.subject: f for f in GreedyAgreement().run(context_of(evidence))}  # type: ignore[arg-type]


def changed(change: object, arm: Arm = Arm.CANDIDATE) -> dict[str, Finding]:
    return findings_of(change_items(clean_evidence(), "greedy", arm, change))  # type: ignore[arg-type]


def test_a_state_that_is_lost_at_batch_above_one_fails_at_that_concurrency_alone() -> None:
    found = findings_of(build_evidence(World(loses_state=lambda _suite, batch: batch > 1)))
    assert found["concurrency 1"].outcome is Outcome.PASS
    assert found["concurrency 8"].outcome is Outcome.FAIL


def test_answers_that_another_path_gave_agree_and_show_nothing() -> None:
    found = findings_of(build_evidence(World(falls_back=lambda _suite, _batch: True)))
    assert {f.outcome for f in found.values()} == {Outcome.INCONCLUSIVE}


def test_fifty_one_equal_answers_cannot_pass_a_margin_of_five_points_and_fifty_two_can() -> None:
    few, enough = (build_evidence(World(num_greedy=n)) for n in (51, 52))
    assert findings_of(few)["concurrency 1"].outcome is Outcome.INCONCLUSIVE
    assert "52" in findings_of(few)["concurrency 1"].advice
    assert findings_of(enough)["concurrency 1"].outcome is Outcome.PASS


def test_the_same_answer_over_and_over_counts_once() -> None:
    def collapsed(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [
            i.model_copy(update={"token_ids": (0,) * len(i.token_ids), "top_logprobs": ()}) for i in items
        ]

    evidence = clean_evidence()
    for arm in Arm:
        evidence = change_items(evidence, "greedy", arm, collapsed)
    finding = findings_of(evidence)["concurrency 1"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "of 8 distinct answers" in finding.message


def test_of_two_requests_with_one_continuation_the_one_that_differs_counts() -> None:
    def twins(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        """Every second request repeats the one before it."""
        return [
            item.model_copy(update={"token_ids": items[i - i % 2].token_ids, "top_logprobs": ()})
            for i, item in enumerate(items)
        ]

    def first_twin_differs(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [
            item.model_copy(update={"token_ids": (99, *item.token_ids[1:])}) if i % 2 == 0 else item
            for i, item in enumerate(items)
        ]

    evidence = clean_evidence()
    for arm in Arm:
        evidence = change_items(evidence, "greedy", arm, twins)
    evidence = change_items(evidence, "greedy", Arm.CANDIDATE, first_twin_differs)
    finding = findings_of(evidence)["concurrency 1"]
    assert finding.outcome is Outcome.FAIL and "0 of 26 distinct answers" in finding.message


def first_turned(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
    """Every answer of concurrency 1 begins with another token."""
    return [
        i.model_copy(update={"token_ids": (i.top_logprobs[0].token_ids[1], *i.token_ids[1:])})
        if i.concurrency == 1
        else i
        for i in items
    ]


def test_a_first_difference_at_a_tie_of_the_baseline_is_no_fault() -> None:
    def with_tie(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        tied = []
        for item in items:
            top = item.top_logprobs[0]
            values = (top.logprobs[0], top.logprobs[0] - 1e-4, *top.logprobs[2:])
            tied.append(
                item.model_copy(
                    update={
                        "top_logprobs": (
                            TokenLogprobs(token_ids=top.token_ids, logprobs=values),
                            *item.top_logprobs[1:],
                        )
                    }
                )
            )
        return tied

    evidence = clean_evidence()
    for arm in (Arm.BASELINE, Arm.BASELINE_AGAIN):
        evidence = change_items(evidence, "greedy", arm, with_tie)
    evidence = change_items(evidence, "greedy", Arm.CANDIDATE, first_turned)
    finding = findings_of(evidence)["concurrency 1"]
    assert finding.outcome is Outcome.PASS and "52 first differences were at ties" in finding.message


def test_the_same_difference_where_the_baseline_has_decided_fails() -> None:
    finding = changed(first_turned)["concurrency 1"]
    assert finding.outcome is Outcome.FAIL and "first differs at token 0" in finding.details[0]


def test_refused_requests_count_as_differences() -> None:
    def refused(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [i.model_copy(update={"error": "HTTP 500", "token_ids": ()}) for i in items]

    found = changed(refused)
    assert Outcome.FAIL in {f.outcome for f in found.values()}


def test_an_answer_that_stops_early_differs() -> None:
    items = clean_evidence().suite("greedy", Arm.BASELINE, Tier.CPU).items  # type: ignore[union-attr]
    short = items[0].model_copy(update={"token_ids": items[0].token_ids[:-1]})
    divergence = first_divergence(items[0], short)
    assert divergence is not None and divergence.gap is None


def test_an_a_a_that_agrees_with_nothing_judges_nothing() -> None:
    def scrambled(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [i.model_copy(update={"token_ids": i.token_ids[::-1]}) for i in items]

    evidence = change_items(clean_evidence(), "greedy", Arm.BASELINE_AGAIN, scrambled)
    evidence = change_items(evidence, "greedy", Arm.CANDIDATE, scrambled)
    assert {f.outcome for f in findings_of(evidence).values()} == {Outcome.INCONCLUSIVE}


@pytest.mark.parametrize("arm", list(Arm))
def test_an_answer_that_one_arm_lacks_keeps_the_check_from_passing(arm: Arm) -> None:
    assert changed(lambda items: items[1:], arm)["greedy answers"].outcome is Outcome.INCONCLUSIVE


def test_a_request_that_failed_with_the_switch_off_keeps_the_check_from_passing() -> None:
    def refused(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [items[0].model_copy(update={"error": "HTTP 500"}), *items[1:]]

    assert changed(refused, Arm.BASELINE)["greedy answers"].outcome is Outcome.INCONCLUSIVE


def test_requests_that_never_overlap_show_nothing_of_their_batch() -> None:
    def level_eight(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [i.model_copy(update={"concurrency": 8}) for i in items if i.concurrency == 1]

    evidence = clean_evidence()
    for arm in Arm:
        evidence = change_items(evidence, "greedy", arm, level_eight)
    finding = findings_of(evidence)["concurrency 8"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "Only 0 of their tokens" in finding.message


def test_a_log_probability_that_is_not_finite_fails() -> None:
    def sick(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        top = items[0].top_logprobs[0].model_copy(update={"num_not_finite": 1})
        changed_item = items[0].model_copy(update={"top_logprobs": (top, *items[0].top_logprobs[1:])})
        return [changed_item, *items[1:]]

    assert changed(sick)["concurrency 1"].outcome is Outcome.FAIL
