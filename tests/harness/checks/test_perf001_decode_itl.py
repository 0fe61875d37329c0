"""Outcomes of PERF001."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from harness.checks.performance.perf001_decode_itl import DecodeItl
from harness.model.evaluation import SuiteItem
from harness.model.evidence import (
    EvidenceSet,
    GapEvidence,
    LedgerEvidence,
    TimingBlock,
    TimingEvidence,
    evidence_set,
)
from harness.model.finding import Finding
from harness.model.ledger import LedgerRow
from harness.model.manifest import Manifest, PerformanceSection
from harness.model.words import Arm, Outcome, Tier
from tests.harness.checks.evidence_builder import (
    MANIFEST,
    World,
    build_evidence,
    change_records,
    context_of,
    small_evidence,
    without,
)

Blocks = Sequence[TimingBlock]


def world(**fault: object) -> EvidenceSet:
    return build_evidence(World(num_greedy=8, num_forced=4, num_sampling=1, **fault))  # type: ignore[arg-type]


def findings_of(evidence: EvidenceSet, manifest: Manifest = MANIFEST) -> dict[str, Finding]:
    return {f.subject: f for f in DecodeItl().run(context_of(evidence, manifest))}


def with_cell(
    change: Callable[[TimingEvidence], TimingEvidence], *, other: Arm = Arm.CANDIDATE, batch: int = 8
) -> Finding:
    """The finding of a batch, one of whose two cells is changed."""

    def changed(cell: TimingEvidence) -> TimingEvidence:
        return change(cell) if (cell.batch, cell.compares[1]) == (batch, other) else cell

    return findings_of(change_records(small_evidence(), TimingEvidence, changed))[f"batch {batch}"]


def with_blocks(change: Callable[[Blocks], Blocks], *, other: Arm = Arm.CANDIDATE) -> Finding:
    return with_cell(lambda cell: cell.model_copy(update={"blocks": tuple(change(cell.blocks))}), other=other)


def each_item(change: Callable[[SuiteItem], SuiteItem], arm: Arm) -> Callable[[Blocks], Blocks]:
    return lambda blocks: [
        b.model_copy(update={"items": tuple(map(change, b.items))}) if b.arm is arm else b for b in blocks
    ]


def test_cells_that_another_tier_timed_decide_nothing() -> None:
    moved = [
        record.model_copy(update={"tier": Tier.GPU})
        if isinstance(record, TimingEvidence | LedgerEvidence)
        else record
        for record in small_evidence().records
    ]
    assert {found.outcome for found in findings_of(evidence_set(moved)).values()} == {Outcome.NOT_RUN}


def test_the_ratio_is_the_engines_own_whatever_its_sign() -> None:
    for speed in (0.8, 1.25):
        finding = findings_of(world(speed=speed))["batch 8"]
        ratio = finding.measurements[0]
        assert finding.outcome is Outcome.PASS and "claims no speed-up" in finding.message
        assert ratio.ci_low is not None and ratio.ci_high is not None
        # Steps are 9 ms of the named speed and 0.2 ms between them that no path changes.
        assert ratio.ci_low < (9 * speed + 0.2) / 9.2 < ratio.ci_high
        assert (ratio.n, ratio.hardware) == (6, "made CPU, 2 cores")


def test_a_noisy_machine_is_inconclusive_by_its_a_a() -> None:
    finding = findings_of(world(timing_noise=0.4))["batch 8"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "too noisy" in finding.message


def test_two_baselines_that_differ_are_a_bias_of_the_set_up() -> None:
    def faster(ledger: LedgerEvidence) -> LedgerEvidence:
        """Each decode step begins sooner after its block's prompt."""
        rows: list[LedgerRow] = []
        prompt = 0
        for row in ledger.rows:
            prompt = prompt if row.is_pure_decode else row.started_ns
            started_ns = prompt + int((row.started_ns - prompt) * 0.95)
            rows.append(row.model_copy(update={"started_ns": started_ns}))
        return ledger.model_copy(update={"rows": tuple(rows)})

    evidence = change_records(small_evidence(), LedgerEvidence, faster, arm=Arm.BASELINE_AGAIN)
    finding = findings_of(evidence)["batch 8"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "biased" in finding.message


def test_a_fallback_times_the_wrong_path_and_fails() -> None:
    found = findings_of(world(falls_back=lambda suite, batch: suite.startswith("decode") and batch == 8))
    assert (found["batch 1"].outcome, found["batch 8"].outcome) == (Outcome.PASS, Outcome.FAIL)


def test_a_missing_block_leaves_a_pair_without_partner() -> None:
    finding = with_blocks(lambda blocks: blocks[1:])
    assert finding.outcome is Outcome.INCONCLUSIVE and "1 of 6 pairs lack a block" in finding.message


def test_pairs_that_were_taken_out_are_missed_by_their_places_in_time() -> None:
    finding = with_blocks(lambda blocks: [b for b in blocks if b.pair != 2])
    assert (
        finding.outcome is Outcome.INCONCLUSIVE
        and "2 of 12 timed blocks are not in the record" in finding.message
    )


def test_pairs_that_were_taken_out_and_the_rest_renumbered_are_missed_by_the_ledger() -> None:
    def chosen(blocks: Blocks) -> Blocks:
        kept = [b for b in blocks if b.pair != 2]
        return [b.model_copy(update={"position": i}) for i, b in enumerate(kept)]

    finding = with_blocks(chosen)
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert (
        "the ledger of baseline holds 8 requests of this cell that are in no block of it" in finding.message
    )


def test_four_pairs_are_too_few_and_the_finding_says_how_many_are_missing() -> None:
    finding = with_blocks(lambda blocks: [b for b in blocks if b.pair < 4])
    assert finding.outcome is Outcome.INCONCLUSIVE and finding.advice == "Collect 1 more pairs."


def test_an_order_that_does_not_alternate_is_inconclusive() -> None:
    def baseline_first(blocks: Blocks) -> Blocks:
        ordered = sorted(blocks, key=lambda b: (b.pair, b.arm is not Arm.BASELINE))
        return [b.model_copy(update={"position": i}) for i, b in enumerate(ordered)]

    finding = with_blocks(baseline_first)
    assert finding.outcome is Outcome.INCONCLUSIVE and "drift" in finding.message


def test_two_blocks_at_one_position_are_an_error() -> None:
    finding = with_blocks(lambda blocks: [b.model_copy(update={"position": 0}) for b in blocks])
    assert finding.outcome is Outcome.ERROR


def test_unnamed_hardware_is_inconclusive() -> None:
    assert with_cell(lambda cell: cell.model_copy(update={"hardware": ""})).outcome is Outcome.INCONCLUSIVE


def test_an_a_a_from_other_hardware_is_inconclusive() -> None:
    finding = with_cell(lambda cell: cell.model_copy(update={"hardware": "another"}))
    assert finding.outcome is Outcome.INCONCLUSIVE and "other hardware" in finding.message


@pytest.mark.parametrize(
    ("arm", "outcome"), [(Arm.CANDIDATE, Outcome.FAIL), (Arm.BASELINE, Outcome.INCONCLUSIVE)]
)
@pytest.mark.parametrize("update", [{"error": "HTTP 500"}, {"num_completion_tokens": 9}])
def test_lost_or_short_requests_void_a_cell_and_are_the_candidates_fault_only_if_it_lost_them(
    arm: Arm, outcome: Outcome, update: dict[str, object]
) -> None:
    finding = with_blocks(each_item(lambda i: i.model_copy(update=update), arm))
    assert finding.outcome is outcome


def test_a_block_that_lacks_a_request_is_void() -> None:
    def thinned(blocks: Blocks) -> Blocks:
        return [b.model_copy(update={"items": b.items[1:]}) if b.arm is Arm.CANDIDATE else b for b in blocks]

    assert with_blocks(thinned).outcome is Outcome.FAIL


@pytest.mark.parametrize("times", [(), (5.0,) * 15, tuple(range(16, 0, -1))])
def test_without_one_rising_arrival_time_a_token_nothing_checks_the_ledger(times: tuple[float, ...]) -> None:
    update = {"token_times_ms": tuple(map(float, times))}
    finding = with_blocks(each_item(lambda i: i.model_copy(update=update), Arm.CANDIDATE))
    assert finding.outcome is Outcome.INCONCLUSIVE and "arrival time" in finding.message


def test_a_client_that_saw_another_pace_than_the_ledger_is_inconclusive() -> None:
    def half(item: SuiteItem) -> SuiteItem:
        return item.model_copy(update={"token_times_ms": tuple(t / 2 for t in item.token_times_ms)})

    finding = with_blocks(each_item(half, Arm.CANDIDATE))
    assert finding.outcome is Outcome.INCONCLUSIVE and "another pace" in finding.message


def deaf_client_in(pairs: set[int]) -> Finding:
    def changed(blocks: Blocks) -> Blocks:
        return [
            b.model_copy(
                update={
                    "items": tuple(
                        i.model_copy(update={"token_times_ms": tuple(t / 2 for t in i.token_times_ms)})
                        for i in b.items
                    )
                }
            )
            if b.pair in pairs and b.arm is Arm.CANDIDATE
            else b
            for b in blocks
        ]

    return with_blocks(changed)


def test_one_pair_that_could_not_be_timed_is_left_out_whole_and_named() -> None:
    finding = deaf_client_in({2})
    assert finding.outcome is Outcome.PASS
    assert finding.measurements[0].n == 5
    assert any("left out" in line and "pair 2" in line for line in finding.details)


def test_more_than_a_quarter_of_the_pairs_left_out_is_no_measurement() -> None:
    assert deaf_client_in({1, 2}).outcome is Outcome.INCONCLUSIVE


def test_timed_answers_that_are_not_the_baselines_show_no_speed() -> None:
    finding = with_blocks(each_item(lambda i: i.model_copy(update={"token_ids": (0,) * 16}), Arm.CANDIDATE))
    assert finding.outcome is Outcome.INCONCLUSIVE and "computed the same thing" in finding.message


def with_candidate_rows(change: Callable[[LedgerRow], LedgerRow], batch: int = 8) -> Finding:
    def changed(ledger: LedgerEvidence) -> LedgerEvidence:
        return ledger.model_copy(update={"rows": tuple(map(change, ledger.rows))})

    evidence = change_records(small_evidence(), LedgerEvidence, changed, arm=Arm.CANDIDATE)
    return findings_of(evidence)[f"batch {batch}"]


def test_steps_that_hold_other_requests_are_no_full_decode_steps() -> None:
    finding = with_candidate_rows(
        lambda row: row.model_copy(update={"num_reqs": 2 if row.num_reqs == 1 else row.num_reqs}), batch=1
    )
    assert finding.outcome is Outcome.INCONCLUSIVE and "0 tokens a request came from" in finding.message


def test_prefill_steps_are_not_timed() -> None:
    short_prefill = with_candidate_rows(
        lambda row: row if row.is_pure_decode else row.model_copy(update={"duration_ns": 1})
    )
    assert short_prefill.measurements[0] == findings_of(small_evidence())["batch 8"].measurements[0]


def test_a_clock_that_stands_still_is_an_error() -> None:
    assert with_candidate_rows(lambda row: row.model_copy(update={"started_ns": 5})).outcome is Outcome.ERROR


@pytest.mark.parametrize("other", [Arm.CANDIDATE, Arm.BASELINE_AGAIN])
def test_a_missing_cell_is_not_run(other: Arm) -> None:
    kept = [r for r in small_evidence() if not isinstance(r, TimingEvidence) or r.compares[1] is not other]
    assert {f.outcome for f in findings_of(evidence_set(kept)).values()} == {Outcome.NOT_RUN}


def test_a_cell_that_broke_is_an_error_with_its_reason() -> None:
    gap = GapEvidence(
        tier=Tier.CPU,
        recorded_at="2026-01-01T00:00:00Z",
        what="timing at batch 8, baseline against candidate",
        broke=True,
        reason="the engine died",
    )
    kept = [
        r for r in small_evidence() if not isinstance(r, TimingEvidence) or r.compares[1] is not Arm.CANDIDATE
    ]
    found = findings_of(evidence_set([*kept, gap]))
    assert (found["batch 8"].outcome, found["batch 1"].outcome) == (Outcome.ERROR, Outcome.NOT_RUN)


def test_a_missing_ledger_is_not_run() -> None:
    found = findings_of(without(small_evidence(), LedgerEvidence, arm=Arm.CANDIDATE))
    assert {f.outcome for f in found.values()} == {Outcome.NOT_RUN}


def test_a_manifest_without_batches_is_not_run() -> None:
    manifest = MANIFEST.model_copy(update={"performance": PerformanceSection(decode_batches=())})
    assert [f.outcome for f in findings_of(small_evidence(), manifest).values()] == [Outcome.NOT_RUN]
