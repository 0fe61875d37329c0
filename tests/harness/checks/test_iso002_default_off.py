"""Outcomes of ISO002."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.checks.isolation.iso002_default_off import DefaultOff
from harness.model.evaluation import SuiteItem
from harness.model.evidence import ArmEvidence, EvidenceSet, LedgerEvidence, SuiteEvidence
from harness.model.finding import Finding
from harness.model.ledger import StepDecision
from harness.model.manifest import Manifest
from harness.model.words import Arm, Outcome
from tests.harness.checks.evidence_builder import (
    DECISION,
    EXECUTOR,
    MANIFEST,
    World,
    build_evidence,
    change_items,
    change_records,
    context_of,
    small_evidence,
    without,
)

GREEDY = "answers, greedy"


def findings_of(evidence: EvidenceSet, manifest: Manifest = MANIFEST) -> dict[str, Finding]:
    return {f.subject: f for f in DefaultOff().run(context_of(evidence, manifest))}


def with_off_answers(
    change: Callable[[Sequence[SuiteItem]], Sequence[SuiteItem]], arm: Arm = Arm.BASELINE_AGAIN
) -> Finding:
    return findings_of(change_items(small_evidence(), "greedy", arm, change))[GREEDY]


def first(**update: object) -> Callable[[Sequence[SuiteItem]], Sequence[SuiteItem]]:
    return lambda items: [items[0].model_copy(update=update), *items[1:]]


def shifted(by: float) -> Callable[[Sequence[SuiteItem]], Sequence[SuiteItem]]:
    """The first answer's first log probability, moved."""

    def change(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        top = items[0].top_logprobs[0]
        moved = top.model_copy(update={"logprobs": (top.logprobs[0] - by, *top.logprobs[1:])})
        return first(top_logprobs=(moved, *items[0].top_logprobs[1:]))(items)

    return change


def with_modules(arm: Arm, modules: tuple[str, ...]) -> Finding:
    def changed(record: ArmEvidence) -> ArmEvidence:
        return record.model_copy(update={"modules": modules})

    return findings_of(change_records(small_evidence(), ArmEvidence, changed, arm=arm))["imports"]


def with_first_decode_row(arm: Arm, **update: object) -> Finding:
    def changed(ledger: LedgerEvidence) -> LedgerEvidence:
        index = next(i for i, row in enumerate(ledger.rows) if row.is_pure_decode)
        rows = list(ledger.rows)
        rows[index] = rows[index].model_copy(update=update)
        return ledger.model_copy(update={"rows": tuple(rows)})

    return findings_of(change_records(small_evidence(), LedgerEvidence, changed, arm=arm))["code that ran"]


@pytest.mark.parametrize(("by", "outcome"), [(5e-5, Outcome.PASS), (6e-4, Outcome.FAIL)])
def test_log_probabilities_may_differ_by_rounding_and_no_more(by: float, outcome: Outcome) -> None:
    assert with_off_answers(shifted(by)).outcome is outcome


def test_the_limit_is_no_less_than_what_the_plain_engine_differs_from_itself_between_batches() -> None:
    """Noise on both off arms: as the rounding of a model in BF16."""
    evidence = build_evidence(World(noise_again=1e-3, noise_baseline=1e-3, num_greedy=8, num_forced=4))
    finding = findings_of(evidence)[GREEDY]
    assert finding.outcome is Outcome.PASS and finding.measurements[0].margin == pytest.approx(1e-2, rel=0.9)


def test_a_plain_engine_that_is_not_itself_from_batch_to_batch_does_not_excuse_the_other() -> None:
    evidence = build_evidence(World(noise_again=0.2, noise_baseline=0.2, num_greedy=8, num_forced=4))
    assert findings_of(evidence)[GREEDY].outcome is Outcome.FAIL


def test_another_of_two_tokens_that_are_as_likely_is_no_other_answer() -> None:
    def tied(items: Sequence[SuiteItem], *, swap: bool) -> Sequence[SuiteItem]:
        tops = list(items[0].top_logprobs)
        best, second = tops[2].token_ids[:2]
        tops[2] = tops[2].model_copy(update={"logprobs": (tops[2].logprobs[0],) * 2 + tops[2].logprobs[2:]})
        ids = list(items[0].token_ids)
        ids[2] = second if swap else best
        return first(top_logprobs=tuple(tops), token_ids=tuple(ids))(items)

    evidence = change_items(small_evidence(), "greedy", Arm.BASELINE, lambda items: tied(items, swap=False))
    evidence = change_items(evidence, "greedy", Arm.BASELINE_AGAIN, lambda items: tied(items, swap=True))
    assert findings_of(evidence)[GREEDY].outcome is Outcome.PASS


def test_another_token_fails_and_names_the_request() -> None:
    finding = with_off_answers(first(token_ids=(0,) * 9))
    assert finding.outcome is Outcome.FAIL and finding.details[0].startswith("p0@c1")


def test_a_request_that_only_the_explicit_off_refuses_fails() -> None:
    finding = with_off_answers(first(error="HTTP 500", token_ids=(), top_logprobs=()))
    assert finding.outcome is Outcome.FAIL


def test_a_difference_between_requests_that_were_batched_otherwise_decides_nothing() -> None:
    noisy = build_evidence(World(noise_again=1e-2, num_greedy=8, num_forced=4))

    def other_batches(ledger: LedgerEvidence) -> LedgerEvidence:
        rows = tuple(
            row.model_copy(update={"num_reqs": 9}) if row.is_pure_decode else row for row in ledger.rows
        )
        return ledger.model_copy(update={"rows": rows})

    alike = findings_of(noisy)[GREEDY]
    unlike = findings_of(change_records(noisy, LedgerEvidence, other_batches, arm=Arm.BASELINE_AGAIN))[GREEDY]
    assert (alike.outcome, unlike.outcome) == (Outcome.FAIL, Outcome.INCONCLUSIVE)


@pytest.mark.parametrize("arm", [Arm.BASELINE, Arm.BASELINE_AGAIN])
def test_answers_that_one_off_arm_lacks_are_inconclusive(arm: Arm) -> None:
    assert with_off_answers(lambda items: items[1:], arm).outcome is Outcome.INCONCLUSIVE


def test_no_answers_are_inconclusive() -> None:
    evidence = small_evidence()
    for arm in Arm:
        evidence = change_items(evidence, "greedy", arm, lambda _items: [])
    assert findings_of(evidence)[GREEDY].outcome is Outcome.INCONCLUSIVE


def test_answers_that_occur_twice_are_an_error() -> None:
    assert with_off_answers(lambda items: [*items, items[0]]).outcome is Outcome.ERROR


def test_log_probabilities_that_are_not_finite_fail() -> None:
    def change(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        sick = items[0].top_logprobs[0].model_copy(update={"num_not_finite": 1})
        return first(top_logprobs=(sick, *items[0].top_logprobs[1:]))(items)

    assert with_off_answers(change).outcome is Outcome.FAIL


@pytest.mark.parametrize("arm", [Arm.BASELINE, Arm.BASELINE_AGAIN])
def test_a_specialised_module_in_either_off_arm_fails(arm: Arm) -> None:
    finding = with_modules(arm, ("subject", "subject.model", "subject.executor.inner"))
    assert finding.outcome is Outcome.FAIL and "subject.executor.inner" in finding.details[0]


def test_a_module_that_only_begins_like_a_specialised_one_is_none() -> None:
    assert with_modules(Arm.BASELINE, ("subject", "subject.executors")).outcome is Outcome.PASS


def test_a_list_in_which_even_the_candidate_has_no_specialised_module_shows_nothing() -> None:
    assert with_modules(Arm.CANDIDATE, ("subject", "subject.model")).outcome is Outcome.INCONCLUSIVE


def test_a_prefix_that_even_the_candidate_never_imports_is_named() -> None:
    details = findings_of(small_evidence())["imports"].details
    assert details == ("subject.kernels: not imported by the candidate on this tier either",)


def test_a_manifest_without_prefixes_is_not_run() -> None:
    dispatch = MANIFEST.dispatch.model_copy(update={"never_imported_when_off": ()})
    manifest = MANIFEST.model_copy(update={"dispatch": dispatch})
    assert findings_of(small_evidence(), manifest)["imports"].outcome is Outcome.NOT_RUN


@pytest.mark.parametrize("arm", [Arm.BASELINE, Arm.BASELINE_AGAIN])
@pytest.mark.parametrize(
    "update",
    [
        {"ran": {EXECUTOR: 1}},
        {"decisions": (StepDecision(target=DECISION, specialized=True, reason="pure-decode"),)},
        {"ran": {}},
    ],
)
def test_a_step_of_an_off_arm_that_is_not_the_baselines_alone_fails(
    arm: Arm, update: dict[str, object]
) -> None:
    assert with_first_decode_row(arm, **update).outcome is Outcome.FAIL


def test_an_off_arm_without_steps_is_inconclusive() -> None:
    def emptied(ledger: LedgerEvidence) -> LedgerEvidence:
        return ledger.model_copy(update={"rows": ()})

    found = findings_of(change_records(small_evidence(), LedgerEvidence, emptied, arm=Arm.BASELINE))
    assert found["code that ran"].outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("kind", [ArmEvidence, LedgerEvidence, SuiteEvidence])
def test_without_the_explicit_off_arm_it_is_not_run(kind: type[ArmEvidence]) -> None:
    found = findings_of(without(small_evidence(), kind, arm=Arm.BASELINE_AGAIN))
    assert Outcome.NOT_RUN in {f.outcome for f in found.values()}
