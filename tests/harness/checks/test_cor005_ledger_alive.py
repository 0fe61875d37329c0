"""Outcomes of COR005."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.checks.correctness.cor005_ledger_alive import LedgerAlive
from harness.model.evaluation import GIVEN_UP, Choice, SuiteItem
from harness.model.evidence import (
    ArmEvidence,
    EvidenceSet,
    GapEvidence,
    LedgerEvidence,
    SubjectEvidence,
    SuiteEvidence,
    TimingEvidence,
    evidence_set,
)
from harness.model.finding import Finding
from harness.model.ledger import LedgerRow
from harness.model.words import Arm, Outcome, Tier
from tests.harness.checks.evidence_builder import (
    DECISION,
    FILES,
    World,
    build_evidence,
    change_items,
    change_records,
    context_of,
    small_evidence,
    without,
)


def findings_of(evidence: EvidenceSet) -> dict[str, Finding]:
    return {f.subject: f for f in LedgerAlive().run(context_of(evidence))}


def with_arm(arm: Arm = Arm.CANDIDATE, **update: object) -> Finding:
    def changed(record: ArmEvidence) -> ArmEvidence:
        return record.model_copy(update=update)

    return findings_of(change_records(small_evidence(), ArmEvidence, changed, arm=arm))[f"arm {arm}"]


def with_proof(arm: Arm = Arm.CANDIDATE, **update: object) -> Finding:
    proof = small_evidence().arm(arm, Tier.CPU).proof  # type: ignore[union-attr]
    return with_arm(arm, proof=proof.model_copy(update=update))  # type: ignore[union-attr]


def with_rows(change: Callable[[Sequence[LedgerRow]], Sequence[LedgerRow]]) -> Finding:
    def changed(ledger: LedgerEvidence) -> LedgerEvidence:
        return ledger.model_copy(update={"rows": tuple(change(ledger.rows))})

    evidence = change_records(small_evidence(), LedgerEvidence, changed, arm=Arm.CANDIDATE)
    return findings_of(evidence)["arm candidate"]


def first_item(**update: object) -> Callable[[Sequence[SuiteItem]], Sequence[SuiteItem]]:
    return lambda items: [items[0].model_copy(update=update), *items[1:]]


@pytest.mark.parametrize("arm", list(Arm))
@pytest.mark.parametrize(
    ("update", "text"),
    [
        ({"marker_seen": False}, "its own planted call"),
        ({"step_hooks": ()}, "sees no step"),
        ({"nonce": ""}, "no nonce"),
        ({"missing": {"a:b": "no such attribute"}}, "could not be wrapped"),
        ({"wrapped": ()}, "are not wrapped"),
    ],
)
def test_a_tracer_that_cannot_prove_itself_alive_is_an_error(
    arm: Arm, update: dict[str, object], text: str
) -> None:
    finding = with_proof(arm, **update)
    assert finding.outcome is Outcome.ERROR and text in finding.message


@pytest.mark.parametrize(
    ("update", "text"),
    [
        ({"proof": None}, "wrote nothing"),
        (
            {"started": False, "failure": "exit code 1", "log_tail": ("Traceback",)},
            "did not start: exit code 1",
        ),
        ({"failure": "killed"}, "died: killed"),
        ({"ledger_problems": ("rows are lost",)}, "1 faults"),
        ({"additional_config": {}}, "started with backend = unset, expected fast"),
        ({"imported": ()}, "targets' modules"),
    ],
)
def test_an_arm_that_is_not_what_it_should_be_is_an_error(update: dict[str, object], text: str) -> None:
    finding = with_arm(Arm.CANDIDATE, **update)
    assert finding.outcome is Outcome.ERROR and text in finding.message


def test_the_last_lines_of_a_dead_servers_log_are_in_the_finding() -> None:
    finding = with_arm(started=False, failure="exit code 1", log_tail=("ValueError: no head",))
    assert "ValueError: no head" in finding.details


def test_a_decision_point_that_is_not_wrapped_in_the_candidate_is_an_error() -> None:
    wrapped = small_evidence().arm(Arm.CANDIDATE, Tier.CPU).proof.wrapped  # type: ignore[union-attr]
    finding = with_proof(wrapped=tuple(t for t in wrapped if t != DECISION))
    assert finding.outcome is Outcome.ERROR and DECISION in finding.details


def test_files_other_than_the_head_commits_make_it_evidence_of_other_code() -> None:
    imported = small_evidence().arm(Arm.CANDIDATE, Tier.CPU).imported  # type: ignore[union-attr]
    stale = imported[0].model_copy(update={"sha256": "f" * 64})
    finding = with_arm(imported=(stale, *imported[1:]))
    assert finding.outcome is Outcome.ERROR and "concerns other code" in finding.message


def test_a_file_that_the_head_commit_does_not_hold_makes_it_evidence_of_other_code() -> None:
    imported = small_evidence().arm(Arm.CANDIDATE, Tier.CPU).imported  # type: ignore[union-attr]
    extra = imported[0].model_copy(update={"path": "subject/patched.py", "module": "subject.patched"})
    assert with_arm(imported=(*imported, extra)).outcome is Outcome.ERROR


def test_a_path_relative_to_the_import_root_names_the_same_file() -> None:
    imported = small_evidence().arm(Arm.CANDIDATE, Tier.CPU).imported  # type: ignore[union-attr]
    short = tuple(f.model_copy(update={"path": f.path.removeprefix("subject/")}) for f in imported)
    assert with_arm(imported=short).outcome is Outcome.PASS


@pytest.mark.parametrize("update", [{"commit": "c" * 40}, {"files": dict.fromkeys(FILES, "0" * 64)}])
def test_files_recorded_at_another_commit_are_an_error(update: dict[str, object]) -> None:
    def changed(record: SubjectEvidence) -> SubjectEvidence:
        return record.model_copy(update=update)

    found = findings_of(change_records(small_evidence(), SubjectEvidence, changed))
    assert {f.outcome for f in found.values()} == {Outcome.ERROR}


def test_without_the_committed_files_it_is_an_error() -> None:
    assert {f.outcome for f in findings_of(without(small_evidence(), SubjectEvidence)).values()} == {
        Outcome.ERROR
    }


def test_a_ledger_without_rows_is_an_error() -> None:
    assert with_rows(lambda _rows: []).outcome is Outcome.ERROR


def test_no_ledger_is_an_error() -> None:
    evidence = without(small_evidence(), LedgerEvidence, arm=Arm.CANDIDATE)
    assert findings_of(evidence)["arm candidate"].outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda rows: rows[1:], "does not account"),
        (lambda rows: [*rows, rows[-1]], "occur twice"),
        (lambda rows: [*rows[:-1], rows[-1].model_copy(update={"started_ns": 0})], "backwards"),
        (lambda rows: [rows[0].model_copy(update={"num_reqs": 3}), *rows[1:]], "do not list"),
    ],
)
def test_a_ledger_with_lost_doubled_or_disordered_steps_is_an_error(
    change: Callable[[Sequence[LedgerRow]], Sequence[LedgerRow]], text: str
) -> None:
    finding = with_rows(change)
    assert finding.outcome is Outcome.ERROR and text in finding.message


def test_a_ledger_of_another_process_is_an_error() -> None:
    def of_others(rows: Sequence[LedgerRow]) -> Sequence[LedgerRow]:
        return [
            row.model_copy(
                update={
                    "requests": tuple(
                        r.model_copy(update={"request_id": "cmpl-else-0"}) for r in row.requests
                    )
                }
            )
            for row in rows
        ]

    assert with_rows(of_others).outcome is Outcome.ERROR


def test_the_baselines_ledger_under_the_candidates_name_is_an_error() -> None:
    rows = small_evidence().ledger(Arm.BASELINE, Tier.CPU).rows  # type: ignore[union-attr]
    finding = with_rows(lambda _rows: rows)
    assert finding.outcome is Outcome.ERROR and "a step also occurs on arm baseline" in finding.details


def test_the_baselines_answers_under_the_candidates_name_are_an_error() -> None:
    items = small_evidence().suite("greedy", Arm.BASELINE, Tier.CPU).items  # type: ignore[union-attr]
    evidence = change_items(small_evidence(), "greedy", Arm.CANDIDATE, lambda _items: items)
    assert findings_of(evidence)["arm candidate"].outcome is Outcome.ERROR


def test_two_arms_with_one_nonce_are_an_error() -> None:
    finding = with_proof(Arm.BASELINE_AGAIN, nonce="nonce of baseline")
    assert finding.outcome is Outcome.ERROR and "its nonce also occurs on arm baseline" in finding.details


def test_a_candidate_that_counts_other_tokens_than_its_client_fails() -> None:
    evidence = change_items(small_evidence(), "greedy", Arm.CANDIDATE, first_item(token_ids=(1, 2)))
    assert findings_of(evidence)["arm candidate"].outcome is Outcome.FAIL


def test_the_same_miscount_on_the_baseline_is_the_harnesss_error() -> None:
    evidence = small_evidence()
    for arm in Arm:
        evidence = change_items(evidence, "greedy", arm, first_item(token_ids=(1, 2)))
    assert {f.outcome for f in findings_of(evidence).values()} == {Outcome.ERROR}


def test_usage_that_the_ledger_does_not_know_is_an_error() -> None:
    update = {"token_ids": (1,) * 30, "num_completion_tokens": 30}
    evidence = change_items(small_evidence(), "greedy", Arm.CANDIDATE, first_item(**update))
    finding = findings_of(evidence)["arm candidate"]
    assert finding.outcome is Outcome.ERROR and "usage 30, ledger 9" in finding.details[0]


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        ({"finish_reason": GIVEN_UP}, Outcome.PASS),
        ({"finish_reason": "stop", "options_text": '{"stop": ["x"]}'}, Outcome.PASS),
        ({"finish_reason": "length", "options_text": '{"stop": ["x"]}'}, Outcome.ERROR),
        ({"finish_reason": "stop", "options_text": '{"stop_token_ids": [7]}'}, Outcome.ERROR),
    ],
)
def test_the_engine_may_go_on_only_after_an_end_that_it_does_not_see_itself(
    ending: dict[str, str], outcome: Outcome
) -> None:
    update = {"token_ids": (1,) * 7, "num_completion_tokens": 7} | ending
    evidence = change_items(small_evidence(), "greedy", Arm.CANDIDATE, first_item(**update))
    assert findings_of(evidence)["arm candidate"].outcome is outcome


def test_an_end_outside_the_engine_excuses_no_token_that_the_ledger_lacks() -> None:
    update = {"token_ids": (1,) * 30, "num_completion_tokens": 30, "finish_reason": GIVEN_UP}
    evidence = change_items(small_evidence(), "greedy", Arm.CANDIDATE, first_item(**update))
    assert findings_of(evidence)["arm candidate"].outcome is Outcome.ERROR


def test_tokens_of_all_choices_are_counted_together() -> None:
    choice = Choice(token_ids=(1,) * 4, text="", finish_reason="length")
    evidence = change_items(
        small_evidence(), "greedy", Arm.CANDIDATE, first_item(token_ids=(1,) * 5, choices=(choice,))
    )
    assert findings_of(evidence)["arm candidate"].outcome is Outcome.PASS


def test_a_refused_request_is_no_fault_of_the_accounts() -> None:
    update = {"error": "HTTP 400", "token_ids": (), "num_completion_tokens": 0}
    evidence = change_items(small_evidence(), "greedy", Arm.CANDIDATE, first_item(**update))
    assert findings_of(evidence)["arm candidate"].outcome is Outcome.PASS


def test_a_request_that_broke_off_before_its_usage_came_is_no_miscount() -> None:
    update = {"error": "the stream ended", "token_ids": (1, 2), "num_completion_tokens": 0}
    evidence = change_items(small_evidence(), "greedy", Arm.CANDIDATE, first_item(**update))
    assert findings_of(evidence)["arm candidate"].outcome is Outcome.PASS


def test_requests_that_share_an_id_are_an_error() -> None:
    def doubled(items: Sequence[SuiteItem]) -> Sequence[SuiteItem]:
        return [items[0], items[1].model_copy(update={"request_id": items[0].request_id}), *items[2:]]

    evidence = change_items(small_evidence(), "greedy", Arm.CANDIDATE, doubled)
    finding = findings_of(evidence)["arm candidate"]
    assert finding.outcome is Outcome.ERROR and "requests share an id" in finding.message


def test_an_arm_that_was_asked_nothing_is_an_error() -> None:
    kept = [r for r in small_evidence() if r.kind not in ("suite", "timing")]
    assert {f.outcome for f in findings_of(evidence_set(kept)).values()} == {Outcome.ERROR}


def test_a_candidate_that_is_a_second_baseline_is_an_error() -> None:
    found = findings_of(build_evidence(World(candidate_is_baseline=True, num_greedy=8)))
    assert found["arm candidate"].outcome is Outcome.ERROR


def test_a_missing_second_baseline_leaves_the_other_arms_judged() -> None:
    evidence = small_evidence()
    for kind in (ArmEvidence, LedgerEvidence, SuiteEvidence):
        evidence = without(evidence, kind, arm=Arm.BASELINE_AGAIN)
    found = findings_of(without(evidence, TimingEvidence))
    assert set(found) == {"arm baseline", "arm candidate"}
    assert {f.outcome for f in found.values()} == {Outcome.PASS}


def test_a_second_baseline_whose_answers_are_the_firsts_without_an_arm_that_gave_them_does_not_count() -> (
    None
):
    first = {r.suite: r.items for r in small_evidence().of(SuiteEvidence) if r.arm is Arm.BASELINE}

    def copied(record: SuiteEvidence) -> SuiteEvidence:
        return record.model_copy(update={"items": first[record.suite]})

    evidence = change_records(small_evidence(), SuiteEvidence, copied, arm=Arm.BASELINE_AGAIN)
    for kind in (ArmEvidence, LedgerEvidence):
        evidence = without(evidence, kind, arm=Arm.BASELINE_AGAIN)
    assert findings_of(evidence)["arm baseline_again"].outcome is Outcome.NOT_RUN


@pytest.mark.parametrize(("broke", "outcome"), [(True, Outcome.ERROR), (False, Outcome.NOT_RUN)])
def test_a_missing_candidate_is_said_with_the_reason(broke: bool, outcome: Outcome) -> None:
    gap = GapEvidence(
        tier=Tier.CPU,
        recorded_at="2026-01-01T00:00:00Z",
        what="arm candidate",
        broke=broke,
        reason="exit code 1",
        details=("RuntimeError: refused",),
    )
    evidence = without(small_evidence(), ArmEvidence, arm=Arm.CANDIDATE)
    finding = findings_of(evidence_set([*evidence, gap]))["arm candidate"]
    assert finding.outcome is outcome and "RuntimeError: refused" in finding.details
