"""Outcomes of SCO003."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.checks.scope.sco003_full_context import FullContext
from harness.model.evaluation import SuiteItem
from harness.model.evidence import EvidenceSet
from harness.model.finding import Finding
from harness.model.manifest import Manifest
from harness.model.words import Arm, Outcome
from tests.harness.checks.evidence_builder import (
    MANIFEST,
    World,
    build_evidence,
    change_items,
    context_of,
    small_evidence,
)

Change = Callable[[Sequence[SuiteItem]], Sequence[SuiteItem]]
SERVED = "served by the specialised path"
DISTANCE = "next-token distributions"


def findings_of(evidence: EvidenceSet, manifest: Manifest = MANIFEST) -> dict[str, Finding]:
    return {f.subject: f for f in FullContext().run(context_of(evidence, manifest))}


def faulty(**fault: object) -> dict[str, Finding]:
    return findings_of(build_evidence(World(num_greedy=8, num_forced=4, num_sampling=1, **fault)))  # type: ignore[arg-type]


def on_all_arms(change: Change) -> dict[str, Finding]:
    evidence = small_evidence()
    for arm in Arm:
        evidence = change_items(evidence, "full_context", arm, change)
    return findings_of(evidence)


def with_candidate(change: Change) -> dict[str, Finding]:
    return findings_of(change_items(small_evidence(), "full_context", Arm.CANDIDATE, change))


def test_a_state_that_is_lost_at_long_context_fails_by_its_distributions() -> None:
    found = faulty(loses_state=lambda suite, _batch: suite == "full_context")
    assert found[DISTANCE].outcome is Outcome.FAIL and found["reach"].outcome is Outcome.PASS


def test_a_fallback_at_long_context_fails_though_the_answers_are_right() -> None:
    found = faulty(falls_back=lambda suite, _batch: suite == "full_context")
    assert found[SERVED].outcome is Outcome.FAIL
    assert found["reach"].outcome is Outcome.INCONCLUSIVE


def test_a_candidate_that_stops_before_the_end_fails() -> None:
    def shorter(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [
            i.model_copy(update={"num_completion_tokens": 20, "token_ids": i.token_ids[:20]}) for i in items
        ]

    found = with_candidate(shorter)
    assert found["reach"].outcome is Outcome.FAIL and "506 tokens, baseline 512" in found["reach"].details[0]


def test_a_refusal_at_full_context_fails() -> None:
    def refused(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [i.model_copy(update={"error": "HTTP 400: too long"}) for i in items]

    found = with_candidate(refused)
    assert found["reach"].outcome is Outcome.FAIL and "too long" in found["reach"].details[0]


def test_requests_that_do_not_reach_the_declared_context_exactly_show_nothing() -> None:
    manifest = MANIFEST.model_copy(update={"scope": MANIFEST.scope.model_copy(update={"max_context": 513})})
    found = findings_of(small_evidence(), manifest)
    assert found["reach"].outcome is Outcome.INCONCLUSIVE


def test_a_single_prompt_is_too_few() -> None:
    found = on_all_arms(lambda items: items[:1])
    assert found["reach"].outcome is Outcome.INCONCLUSIVE
    assert found[DISTANCE].outcome is Outcome.INCONCLUSIVE and "39 more are needed" in found[DISTANCE].message


def test_distributions_that_were_not_reported_are_inconclusive() -> None:
    found = with_candidate(lambda items: [i.model_copy(update={"top_logprobs": ()}) for i in items])
    assert found[DISTANCE].outcome is Outcome.INCONCLUSIVE


def test_a_feature_that_the_manifest_does_not_claim_is_not_applicable() -> None:
    manifest = MANIFEST.model_copy(update={"features": ()})
    assert [f.outcome for f in findings_of(small_evidence(), manifest).values()] == [Outcome.NOT_APPLICABLE]
