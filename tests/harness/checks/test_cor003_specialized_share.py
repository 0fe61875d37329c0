"""Outcomes of COR003."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.checks.correctness.cor003_specialized_share import SpecializedShare
from harness.model.evidence import LedgerEvidence
from harness.model.finding import Finding
from harness.model.ledger import LedgerRow
from harness.model.manifest import Manifest
from harness.model.words import Arm, Outcome
from tests.harness.checks.evidence_builder import (
    MANIFEST,
    World,
    build_evidence,
    change_records,
    clean_evidence,
    context_of,
)


def findings_of(evidence: object, manifest: Manifest = MANIFEST) -> dict[str, Finding]:
    return {f.subject: f for f in SpecializedShare().run(context_of(evidence, manifest))}  # type: ignore[arg-type]


def with_rows(change: Callable[[Sequence[LedgerRow]], Sequence[LedgerRow]]) -> dict[str, Finding]:
    def changed(ledger: LedgerEvidence) -> LedgerEvidence:
        return ledger.model_copy(update={"rows": tuple(change(ledger.rows))})

    return findings_of(change_records(clean_evidence(), LedgerEvidence, changed, arm=Arm.CANDIDATE))


def failed(found: dict[str, Finding]) -> set[str]:
    return {subject for subject, finding in found.items() if finding.outcome is Outcome.FAIL}


def scope_of(**update: object) -> Manifest:
    return MANIFEST.model_copy(update={"scope": MANIFEST.scope.model_copy(update=update)})


def test_a_silent_fallback_everywhere_fails_everywhere() -> None:
    found = findings_of(build_evidence(World(falls_back=lambda _suite, _batch: True)))
    assert failed(found) == found.keys() - {"outside the scope"}
    assert "not covered" in found["all decode tokens"].details[0]


def test_a_fallback_at_one_batch_is_named_by_its_batch() -> None:
    found = findings_of(build_evidence(World(falls_back=lambda _suite, batch: batch == 5)))
    assert failed(found) == {"batch 5"}


def test_a_fallback_in_one_suite_is_named_by_its_suite() -> None:
    found = findings_of(build_evidence(World(falls_back=lambda suite, _batch: suite == "structured")))
    assert "suite structured" in failed(found) and "suite greedy" not in failed(found)


def test_a_decision_without_its_code_fails_however_rare() -> None:
    def one_lie(rows: Sequence[LedgerRow]) -> Sequence[LedgerRow]:
        index = next(i for i, row in enumerate(rows) if row.is_pure_decode)
        plain = MANIFEST.dispatch.baseline_code[0]
        return [*rows[:index], rows[index].model_copy(update={"ran": {plain: 1}}), *rows[index + 1 :]]

    assert "all decode tokens" in failed(with_rows(one_lie))


@pytest.mark.parametrize("ran", [{}, {"elsewhere": 1}])
def test_a_step_that_ran_no_known_code_is_not_taken_for_specialised(ran: dict[str, int]) -> None:
    found = with_rows(lambda rows: [row.model_copy(update={"ran": ran}) for row in rows])
    assert "all decode tokens" in failed(found)


def test_batches_of_the_scope_that_never_occurred_are_inconclusive() -> None:
    found = with_rows(lambda rows: [row for row in rows if row.num_reqs != 6])
    assert found["batches that never occurred"].outcome is Outcome.INCONCLUSIVE
    assert "held 6 requests" in found["batches that never occurred"].message


def test_steps_beyond_the_declared_batch_must_be_the_baselines() -> None:
    found = findings_of(clean_evidence(), scope_of(max_batch=4))
    assert found["outside the scope"].outcome is Outcome.FAIL


def test_steps_beyond_the_declared_context_must_be_the_baselines() -> None:
    found = findings_of(clean_evidence(), scope_of(max_context=500))
    assert found["outside the scope"].outcome is Outcome.FAIL
    assert "decode, 1 requests: specialized" in found["outside the scope"].details[0]


def test_steps_beyond_the_scope_that_the_baseline_serves_are_right_unless_the_manifest_refuses_them() -> None:
    evidence = build_evidence(World(falls_back=lambda _suite, batch: batch > 4))
    falling_back = findings_of(evidence, scope_of(max_batch=4))
    refusing = findings_of(evidence, scope_of(max_batch=4, outside="refuse"))
    assert falling_back["outside the scope"].outcome is Outcome.PASS
    assert refusing["outside the scope"].outcome is Outcome.FAIL


def test_a_ledger_without_decode_steps_is_inconclusive() -> None:
    found = with_rows(lambda rows: [row for row in rows if not row.is_pure_decode])
    assert found["all decode tokens"].outcome is Outcome.INCONCLUSIVE


def test_a_candidate_that_is_a_second_baseline_fails() -> None:
    assert "all decode tokens" in failed(findings_of(build_evidence(World(candidate_is_baseline=True))))


def test_the_share_is_measured_with_its_margin() -> None:
    found = findings_of(build_evidence(World(falls_back=lambda suite, _batch: suite == "structured")))
    measurement = found["suite structured"].measurements[0]
    assert (measurement.estimate, measurement.margin) == (0.0, 0.95)
