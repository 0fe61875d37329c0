"""Outcomes of PERF002, on made evidence of the gpu tier."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from math import isfinite, nan

import pytest

from harness.checks.correctness.cor005_ledger_alive import LedgerAlive
from harness.checks.performance.given_tokens import told_logprobs
from harness.checks.performance.perf002_decode_speedup import DecodeSpeedup
from harness.model.evaluation import SuiteItem, TokenLogprobs
from harness.model.evidence import (
    ArmEvidence,
    CapturedPointersEvidence,
    EvidenceSet,
    GapEvidence,
    GpuState,
    LedgerEvidence,
    Slowdown,
    TimingBlock,
    TimingEvidence,
    evidence_set,
)
from harness.model.finding import Finding, Measurement
from harness.model.manifest import Claim, Manifest, PerformanceSection
from harness.model.probe import CapturedGraph
from harness.model.step_kernels import StepKernels
from harness.model.words import Arm, Outcome, Tier
from harness.runner import order_checks, run_checks
from tests.harness.checks.evidence_builder import (
    MANIFEST,
    POLICY,
    World,
    build_evidence,
    change_records,
    context_of,
    never,
    small_evidence,
    without,
)


@cache
def on_gpu(
    speed: float = 0.8,
    noise: float = 0.005,
    pairs: int = 8,
    disturbed: Callable[[str, int], bool] = never,
    overlaps: Callable[[str, int], bool] = never,
    busy: float | None = 0.5,
    busy_noise: float = 0.002,
    falls_back: Callable[[str, int], bool] = never,
    again: float = 1.0,
    given: bool = True,
) -> EvidenceSet:
    """The timed cells as a GPU would leave them: times are all that the path changes, of steps and of the GPU."""
    made = World(
        speed=speed,
        timing_noise=noise,
        num_pairs=pairs,
        num_greedy=8,
        num_forced=4,
        num_sampling=1,
        hardware="NVIDIA H200",
        disturbed=disturbed,
        overlaps=overlaps,
        busy=busy,
        busy_noise=busy_noise,
        falls_back=falls_back,
        speed_again=again,
        gives_tokens=given,
    )
    return evidence_set(r.model_copy(update={"tier": Tier.GPU}) for r in build_evidence(made))


def claiming(value: float, hardware: str = "H200", batch: int = 8) -> Manifest:
    claim = Claim(metric="decode_itl_speedup", batch=batch, value=value, hardware=hardware)
    section = PerformanceSection(decode_batches=(1, 8), claims=(claim,))
    return MANIFEST.model_copy(update={"performance": section})


def findings_of(evidence: EvidenceSet, manifest: Manifest = MANIFEST) -> dict[str, Finding]:
    return {f.subject: f for f in DecodeSpeedup().run(context_of(evidence, manifest))}


def claim_of(evidence: EvidenceSet, manifest: Manifest) -> Finding:
    return next(f for s, f in findings_of(evidence, manifest).items() if s.startswith("claim"))


def of_wall(finding: Finding, what: str = "candidate") -> Measurement:
    return next(m for m in finding.measurements if m.name == f"decode ITL ratio, batch 8, {what}")


def of_busy(finding: Finding, what: str = "candidate") -> Measurement:
    return next(m for m in finding.measurements if m.name == f"decode GPU busy ratio, batch 8, {what}")


def test_timings_of_the_cpu_tier_say_nothing_of_a_gpu() -> None:
    (finding,) = findings_of(small_evidence()).values()
    assert finding.outcome is Outcome.NOT_RUN and "needs the gpu tier" in finding.message


def test_the_reason_why_there_is_no_gpu_is_given() -> None:
    gap = GapEvidence(
        tier=Tier.GPU,
        recorded_at="2026-01-01T00:00:00Z",
        what="tier gpu",
        broke=False,
        reason="no CUDA device",
    )
    (finding,) = findings_of(evidence_set([gap])).values()
    assert finding.outcome is Outcome.NOT_RUN and "no CUDA device" in finding.message


def test_a_faster_candidate_passes_at_every_batch() -> None:
    found = findings_of(on_gpu())
    assert {s: f.outcome for s, f in found.items()} == {"batch 1": Outcome.PASS, "batch 8": Outcome.PASS}
    assert of_wall(found["batch 8"]).margin == of_busy(found["batch 8"]).margin == pytest.approx(1.02)


def test_a_slower_candidate_fails() -> None:
    assert findings_of(on_gpu(speed=1.2))["batch 8"].outcome is Outcome.FAIL


def test_a_candidate_on_the_margin_is_inconclusive_and_the_finding_says_how_many_pairs_it_takes() -> None:
    finding = findings_of(on_gpu(speed=1.02, noise=0.008))["batch 8"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "pairs instead of 8" in finding.advice


def test_a_busy_time_whose_a_a_is_wider_than_the_margin_decides_nothing() -> None:
    finding = findings_of(on_gpu(busy_noise=0.1))["batch 8"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "two baselines differ" in finding.message


def test_wall_time_whose_a_a_is_noisy_is_told_and_the_busy_time_decides() -> None:
    finding = findings_of(on_gpu(noise=0.1))["batch 8"]
    assert finding.outcome is Outcome.PASS
    assert "is told and decides nothing" in finding.message and of_wall(finding).margin is None


def test_a_candidate_that_is_slower_beyond_all_noise_of_the_wall_time_fails() -> None:
    finding = findings_of(on_gpu(noise=0.1, speed=2.0))["batch 8"]
    assert finding.outcome is Outcome.FAIL and "all the same" in finding.message


def test_a_candidate_that_keeps_the_gpu_busy_for_longer_fails_though_the_step_takes_no_longer() -> None:
    finding = findings_of(on_gpu(speed=1.0, busy=1.2))["batch 8"]
    assert finding.outcome is Outcome.FAIL and finding.message.startswith("The GPU's busy time a token")


def test_work_that_moved_from_the_gpu_to_its_host_fails_by_wall_time() -> None:
    finding = findings_of(on_gpu(speed=1.2, busy=0.5))["batch 8"]
    assert finding.outcome is Outcome.FAIL and finding.message.startswith("Wall time")


def test_the_kernels_in_a_step_are_told() -> None:
    found = {m.name: m.estimate for m in findings_of(on_gpu())["batch 8"].measurements}
    assert found["kernels in a decode step, batch 8, baseline"] == 150
    assert found["kernels in a decode step, batch 8, candidate"] == 90


def test_timings_without_a_profile_do_not_pass() -> None:
    found = findings_of(on_gpu(busy=None))
    assert {f.outcome for f in found.values()} == {Outcome.NOT_RUN}
    assert "profiled decode at batch 8" in found["batch 8"].message


def test_a_profile_without_timings_does_not_pass() -> None:
    records = [r for r in on_gpu() if not isinstance(r, TimingEvidence) or r.is_profiled]
    assert {f.outcome for f in findings_of(evidence_set(records)).values()} == {Outcome.NOT_RUN}


def slowed(*words: Slowdown) -> Callable[[TimingBlock], TimingBlock]:
    state = GpuState(
        name="made",
        sm_clock_mhz=1200,
        memory_clock_mhz=None,
        power_w=None,
        temperature_c=None,
        slowdowns=words,
    )
    return lambda block: block.model_copy(update={"gpu_after": state})


def in_profile(
    change: Callable[[TimingBlock], TimingBlock], *positions: int, arm: Arm = Arm.CANDIDATE
) -> Finding:
    """What comes of batch 8 with an arm's blocks at these places of the candidate's profiled cell changed."""

    def changed(cell: TimingEvidence) -> TimingEvidence:
        if (cell.is_profiled, cell.batch, cell.compares[1]) != (True, 8, Arm.CANDIDATE):
            return cell
        meant = [b for b in cell.blocks if b.arm is arm and (not positions or b.position in positions)]
        blocks = tuple(change(b) if b in meant else b for b in cell.blocks)
        return cell.model_copy(update={"blocks": blocks})

    return findings_of(change_records(on_gpu(), TimingEvidence, changed))["batch 8"]


def seen(num_steps: int, busy_us: float = 500.0) -> Callable[[TimingBlock], TimingBlock]:
    profile = StepKernels(num_steps=num_steps, busy_us=busy_us, num_kernels=9) if num_steps else None
    return lambda b: b.model_copy(update={"profile": profile or StepKernels(num_steps=0)})


def lost(block: TimingBlock) -> TimingBlock:
    items = tuple(i.model_copy(update={"error": "refused"}) for i in block.items)
    return block.model_copy(update={"items": items})


@pytest.mark.parametrize(
    ("change", "outcome", "words"),
    [
        (seen(0), Outcome.INCONCLUSIVE, "in 8 of 16 blocks the GPU's profiler saw too few"),
        (seen(7), Outcome.INCONCLUSIVE, "in 8 of 16 blocks the GPU's profiler saw too few"),
        (lambda b: b.model_copy(update={"profile": None}), Outcome.INCONCLUSIVE, "saw too few"),
        (seen(16), Outcome.ERROR, "tells of 16 steps"),
        (seen(12, 1e5), Outcome.ERROR, "100000.0 us"),
        (lost, Outcome.FAIL, "of candidate were lost"),
        (slowed("hw_thermal_slowdown"), Outcome.INCONCLUSIVE, "8 of 8 pairs could not be timed"),
    ],
    ids=[
        "nothing",
        "few steps",
        "not at all",
        "more steps than were",
        "longer than it took",
        "lost",
        "too hot",
    ],
)
def test_a_profile_that_shows_too_little_or_too_much_voids_the_busy_time(
    change: Callable[[TimingBlock], TimingBlock], outcome: Outcome, words: str
) -> None:
    finding = in_profile(change)
    assert finding.outcome is outcome and words in finding.message


def test_an_arm_does_not_choose_which_of_its_blocks_are_profiled() -> None:
    assert in_profile(seen(0), 1).outcome is Outcome.INCONCLUSIVE
    assert in_profile(slowed("hw_slowdown"), 1).outcome is Outcome.PASS


def test_a_request_that_was_served_in_the_profile_and_is_in_no_block_voids_it() -> None:
    ledger = on_gpu().ledger(Arm.CANDIDATE, Tier.GPU)
    assert ledger is not None
    row = next(r for r in ledger.rows if any("profile/b8" in p.request_id for p in r.requests))
    parts = tuple(
        p.model_copy(update={"request_id": re.sub(r"-(\d+)r-", r"-9\1r-", p.request_id)})
        for p in row.requests
    )
    later = {"started_ns": ledger.rows[-1].started_ns + 1_000_000_000, "step": len(ledger.rows)}
    more = row.model_copy(update={**later, "requests": parts})

    def served(record: LedgerEvidence) -> LedgerEvidence:
        return record.model_copy(update={"rows": (*record.rows, more)})

    found = findings_of(change_records(on_gpu(), LedgerEvidence, served, arm=Arm.CANDIDATE))
    assert found["batch 8"].outcome is Outcome.INCONCLUSIVE
    assert "holds 8 requests of this cell that are in no block of it" in found["batch 8"].message


def test_a_profile_of_steps_that_fell_back_fails() -> None:
    evidence = on_gpu(falls_back=lambda suite, batch: suite.startswith("profile") and batch == 8)
    finding = findings_of(evidence)["batch 8"]
    assert finding.outcome is Outcome.FAIL and "profile/b8" in finding.message


def test_a_biased_a_a_of_the_wall_time_raises_the_bar_by_as_much() -> None:
    biased = on_gpu(again=0.85, noise=0.005, speed=1.1)
    finding = findings_of(biased)["batch 8"]
    assert finding.outcome is Outcome.PASS and "biased" in finding.message
    finding = findings_of(on_gpu(again=0.85, noise=0.005, speed=1.5))["batch 8"]
    assert finding.outcome is Outcome.FAIL and "all the same" in finding.message


def test_the_profiles_own_wall_time_counts_for_no_claim() -> None:
    records = [r for r in on_gpu() if not isinstance(r, TimingEvidence) or r.is_profiled]
    assert claim_of(evidence_set(records), claiming(1.2)).outcome is Outcome.NOT_RUN


def test_four_pairs_that_all_agree_are_too_few_for_the_exact_test() -> None:
    policy = POLICY.model_copy(update={"min_timing_blocks": 4})
    found = DecodeSpeedup().run(context_of(on_gpu(pairs=4), policy=policy))
    assert {f.outcome for f in found} == {Outcome.INCONCLUSIVE} and "sign-flip p 0.062" in found[0].message


@pytest.mark.parametrize(
    ("value", "outcome"), [(1.2, Outcome.PASS), (1.5, Outcome.FAIL), (1.26, Outcome.INCONCLUSIVE)]
)
def test_a_claim_is_held_to_the_lower_bound_of_what_was_measured(value: float, outcome: Outcome) -> None:
    # The made path takes 0.8 of the step and none of the 0.2 ms between steps: 1.243x.
    assert claim_of(on_gpu(), claiming(value)).outcome is outcome


def test_a_claim_of_a_tiny_speed_up_needs_a_bound_above_one() -> None:
    finding = claim_of(on_gpu(speed=1.0), claiming(1.005))
    assert finding.outcome is not Outcome.PASS and finding.measurements[0].margin == 1.0


def test_a_claim_for_other_hardware_is_not_run() -> None:
    finding = claim_of(on_gpu(), claiming(1.2, hardware="B300"))
    assert finding.outcome is Outcome.NOT_RUN and "B300" in finding.message


def test_a_claim_at_a_batch_that_was_not_timed_is_not_run() -> None:
    assert claim_of(on_gpu(), claiming(1.2, batch=4)).outcome is Outcome.NOT_RUN


def test_a_claim_does_not_fail_because_the_measurement_is_void() -> None:
    def lost(cell: TimingEvidence) -> TimingEvidence:
        if cell.compares[1] is not Arm.CANDIDATE:
            return cell
        blocks = [
            b.model_copy(update={"items": tuple(i.model_copy(update={"error": "HTTP 500"}) for i in b.items)})
            if b.arm is Arm.CANDIDATE
            else b
            for b in cell.blocks
        ]
        return cell.model_copy(update={"blocks": tuple(blocks)})

    evidence = change_records(on_gpu(), TimingEvidence, lost)
    assert findings_of(evidence)["batch 8"].outcome is Outcome.FAIL
    assert claim_of(evidence, claiming(1.2)).outcome is Outcome.INCONCLUSIVE


def test_a_tracer_that_was_dead_on_the_gpu_voids_its_timings() -> None:
    def dead(record: ArmEvidence) -> ArmEvidence:
        return record.model_copy(update={"proof": None})

    found = findings_of(change_records(on_gpu(), ArmEvidence, dead, arm=Arm.CANDIDATE))
    assert [f.outcome for f in found.values()] == [Outcome.ERROR]


def test_an_arm_that_is_missing_on_the_gpu_is_not_run() -> None:
    found = findings_of(without(on_gpu(), ArmEvidence, arm=Arm.BASELINE_AGAIN))
    assert [f.outcome for f in found.values()] == [Outcome.NOT_RUN]


def in_blocks(change: Callable[[TimingBlock], TimingBlock], *positions: int) -> EvidenceSet:
    """The candidate's cell of batch 8 with blocks at these places in time changed."""

    def changed(cell: TimingEvidence) -> TimingEvidence:
        if (cell.batch, cell.compares[1]) != (8, Arm.CANDIDATE):
            return cell
        blocks = tuple(change(b) if b.position in positions else b for b in cell.blocks)
        return cell.model_copy(update={"blocks": blocks})

    return change_records(on_gpu(), TimingEvidence, changed)


def test_a_block_in_which_the_gpu_was_too_hot_is_left_out_with_its_pair_whatever_its_time() -> None:
    finding = findings_of(in_blocks(slowed("hw_thermal_slowdown"), 3))["batch 8"]
    assert (finding.outcome, of_wall(finding).n) == (Outcome.PASS, 7)
    assert any("left out" in line and "hw_thermal_slowdown" in line for line in finding.details)


def test_a_gpu_that_was_too_hot_in_more_than_a_quarter_of_the_pairs_timed_nothing() -> None:
    finding = findings_of(in_blocks(slowed("sw_thermal_slowdown"), 0, 4, 8))["batch 8"]
    assert finding.outcome is Outcome.INCONCLUSIVE and "sw_thermal_slowdown" in finding.message


def test_a_power_cap_is_the_arms_own_and_leaves_nothing_out() -> None:
    finding = findings_of(in_blocks(slowed("sw_power_cap"), *range(16)))["batch 8"]
    assert (finding.outcome, of_wall(finding).n) == (Outcome.PASS, 8)
    assert any("1200 MHz, sw_power_cap" in line for line in finding.details)


CELL = "decode/b8/baseline-candidate"


def test_a_block_that_overlaps_another_arms_is_left_out_with_its_pair() -> None:
    finding = findings_of(on_gpu(overlaps=lambda cell, place: (cell, place) == (CELL, 1)))["batch 8"]
    assert (finding.outcome, of_wall(finding).n) == (Outcome.PASS, 7)
    assert any("left out" in line and "computed at the same time" in line for line in finding.details)


def test_blocks_that_overlap_throughout_time_nothing() -> None:
    found = findings_of(on_gpu(overlaps=lambda cell, place: cell == CELL and place % 2 == 1))
    assert found["batch 1"].outcome is Outcome.PASS
    assert found["batch 8"].outcome is Outcome.INCONCLUSIVE
    assert "8 of 8 pairs could not be timed" in found["batch 8"].message


def test_an_idle_arm_that_computes_beside_the_two_compared_disturbs_them_too() -> None:
    candidate = on_gpu().ledger(Arm.CANDIDATE, Tier.GPU)
    assert candidate is not None
    end = candidate.steps[-1]

    def busy(ledger: LedgerEvidence) -> LedgerEvidence:
        last = ledger.steps[-1]
        span = {"started_ns": last.started_ns + 1, "duration_ns": end.started_ns - last.started_ns}
        row = last.model_copy(update={"step": last.step + 1, "requests": (), "num_reqs": 0, **span})
        return ledger.model_copy(update={"rows": (*ledger.rows, row)})

    found = findings_of(change_records(on_gpu(), LedgerEvidence, busy, arm=Arm.BASELINE_AGAIN))
    assert found["batch 8"].outcome is Outcome.INCONCLUSIVE
    assert "baseline_again computed at the same time" in found["batch 8"].message


def test_one_slow_block_widens_the_interval_and_is_not_left_out() -> None:
    calm = of_wall(findings_of(on_gpu())["batch 8"])
    finding = findings_of(on_gpu(disturbed=lambda cell, place: (cell, place) == (CELL, 2)))["batch 8"]
    wide = of_wall(finding)
    assert (calm.n, wide.n) == (8, 8) and finding.outcome is Outcome.PASS
    assert wide.ci_high is not None and calm.ci_high is not None and wide.ci_high > calm.ci_high + 0.01


def test_one_slow_block_among_the_baselines_leaves_the_wall_time_undecided() -> None:
    noise = "decode/b8/baseline-baseline_again"
    found = findings_of(on_gpu(disturbed=lambda cell, place: (cell, place) == (noise, 2)))
    assert "is told and decides nothing" in found["batch 8"].message
    assert "is told and decides nothing" not in found["batch 1"].message


def test_one_process_cannot_stand_for_two_arms() -> None:
    baseline = on_gpu().ledger(Arm.BASELINE, Tier.GPU)
    assert baseline is not None

    def copied(ledger: LedgerEvidence) -> LedgerEvidence:
        return ledger.model_copy(update={"rows": (*ledger.rows, baseline.rows[0])})

    found = findings_of(change_records(on_gpu(), LedgerEvidence, copied, arm=Arm.BASELINE_AGAIN))
    assert {f.outcome for f in found.values()} == {Outcome.ERROR}
    assert "that only one process can have" in found["arm baseline"].message


def test_a_gpu_machines_bundle_is_decided_without_the_cpu_tiers_arms() -> None:
    checks = order_checks([DecodeSpeedup(), LedgerAlive()])
    found = run_checks(context_of(on_gpu()), checks)
    assert {f.outcome for f in found["PERF002"]} == {Outcome.PASS}
    assert Outcome.PASS not in {f.outcome for f in found["COR005"]}


def test_a_manifest_without_batches_is_not_run() -> None:
    manifest = MANIFEST.model_copy(update={"performance": PerformanceSection(decode_batches=())})
    assert [f.outcome for f in findings_of(on_gpu(), manifest).values()] == [Outcome.NOT_RUN]


def at_batch_8(
    change: Callable[[TimingEvidence], TimingEvidence], *, profiled: bool, other: Arm = Arm.CANDIDATE
) -> dict[str, Finding]:
    """What comes of a cell of batch 8 that is changed."""

    def changed(cell: TimingEvidence) -> TimingEvidence:
        is_meant = (cell.is_profiled, cell.batch, cell.compares[1]) == (profiled, 8, other)
        return change(cell) if is_meant else cell

    evidence = change_records(on_gpu(), TimingEvidence, changed)
    return findings_of(evidence, claiming(1.2))


def told_as(token: int, logprob: float) -> TokenLogprobs:
    """One position as an engine reports it."""
    if not isfinite(logprob):
        return TokenLogprobs(token_ids=(), logprobs=(), num_not_finite=1)
    return TokenLogprobs(token_ids=(token,), logprobs=(logprob,))


def telling(
    logprob: Callable[[float, int], float], arm: Arm = Arm.CANDIDATE, place: str = ""
) -> Callable[[TimingEvidence], TimingEvidence]:
    """The arm holds each given token as likely as `logprob` makes of the true value and the token's number."""

    def told(item: SuiteItem) -> SuiteItem:
        if place and not item.item.endswith(place):
            return item
        tops = tuple(
            told_as(token, logprob(value, number))
            for number, (token, value) in enumerate(zip(item.token_ids, told_logprobs(item), strict=True))
        )
        return item.model_copy(update={"top_logprobs": tops})

    def changed(cell: TimingEvidence) -> TimingEvidence:
        shown = tuple(
            s.model_copy(update={"items": tuple(map(told, s.items))}) if s.arm is arm else s
            for s in cell.shown
        )
        return cell.model_copy(update={"shown": shown})

    return changed


def stale(cell: TimingEvidence) -> TimingEvidence:
    """The candidate tells of each request what the true path tells of the next one."""
    (ours,) = (s for s in cell.shown if s.arm is Arm.CANDIDATE)
    values = [told_logprobs(item) for item in ours.items]
    items = tuple(
        item.model_copy(
            update={
                "top_logprobs": tuple(
                    TokenLogprobs(token_ids=(t,), logprobs=(v,))
                    for t, v in zip(item.token_ids, found, strict=True)
                )
            }
        )
        for item, found in zip(ours.items, values[1:] + values[:1], strict=True)
    )
    shown = tuple(s.model_copy(update={"items": items}) if s.arm is Arm.CANDIDATE else s for s in cell.shown)
    return cell.model_copy(update={"shown": shown})


COMPUTES_NOTHING = {
    "all alike": telling(lambda _, __: -5.0),
    "the mean of what is right": telling(lambda _, __: -12.0),
    "another request's": stale,
    "in one request of eight": telling(lambda _, __: -5.0, place="/r3"),
    "numbers of its own": telling(lambda _, number: -5.0 - number % 7),
    "no number": telling(lambda _, __: nan),
    "told of no token": lambda cell: cell.model_copy(update={"shown": cell.shown[:1]}),
}


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("change", COMPUTES_NOTHING.values(), ids=COMPUTES_NOTHING)
def test_a_candidate_that_is_fast_because_it_computes_nothing_does_not_pass_on_given_tokens(
    change: Callable[[TimingEvidence], TimingEvidence], profiled: bool
) -> None:
    found = at_batch_8(change, profiled=profiled)
    assert found["batch 8"].outcome is Outcome.INCONCLUSIVE
    assert "nothing shows" in found["batch 8"].message
    assert found["batch 1"].outcome is Outcome.PASS
    claim = next(f for s, f in found.items() if s.startswith("claim"))
    assert claim.outcome is (Outcome.PASS if profiled else Outcome.INCONCLUSIVE)


def test_rounding_is_no_reason_to_void_given_tokens_and_is_told() -> None:
    found = at_batch_8(telling(lambda value, number: value + 0.3 * (-1) ** number), profiled=True)["batch 8"]
    assert found.outcome is Outcome.PASS
    assert any("held likely by at most 0.1" in line for line in found.details), found.details


def test_an_a_a_that_disagrees_about_given_tokens_voids_the_batch() -> None:
    change = telling(lambda _, __: -5.0, arm=Arm.BASELINE_AGAIN)
    found = at_batch_8(change, profiled=True, other=Arm.BASELINE_AGAIN)["batch 8"]
    assert found.outcome is Outcome.INCONCLUSIVE and "baseline-baseline_again" in found.message


def other_tokens(cell: TimingEvidence) -> TimingEvidence:
    def other(block: TimingBlock) -> TimingBlock:
        items = tuple(i.model_copy(update={"token_ids": (*i.token_ids[:-1], 0)}) for i in block.items)
        return block.model_copy(update={"items": items})

    blocks = tuple(other(b) if b.arm is Arm.CANDIDATE else b for b in cell.blocks)
    return cell.model_copy(update={"blocks": blocks})


def test_given_tokens_that_did_not_come_back_were_not_followed() -> None:
    found = at_batch_8(other_tokens, profiled=True)["batch 8"]
    assert found.outcome is Outcome.INCONCLUSIVE and "were not followed" in found.message


def test_a_cell_that_says_nothing_of_given_tokens_beside_one_that_does_is_void() -> None:
    def silent(cell: TimingEvidence) -> TimingEvidence:
        return cell.model_copy(update={"tokens_given": False, "shown": ()})

    found = at_batch_8(silent, profiled=True)["batch 8"]
    assert found.outcome is not Outcome.PASS


def test_answers_that_were_sampled_are_held_to_what_the_baselines_share() -> None:
    assert {f.outcome for f in findings_of(on_gpu(given=False)).values()} == {Outcome.PASS}

    def parted(cell: TimingEvidence) -> TimingEvidence:
        if cell.compares[1] is not Arm.CANDIDATE:
            return cell
        blocks = tuple(
            b.model_copy(
                update={"items": tuple(i.model_copy(update={"token_ids": (0,) * 16}) for i in b.items)}
            )
            if b.arm is Arm.CANDIDATE
            else b
            for b in cell.blocks
        )
        return cell.model_copy(update={"blocks": blocks})

    found = findings_of(change_records(on_gpu(given=False), TimingEvidence, parted))
    assert {f.outcome for f in found.values()} == {Outcome.INCONCLUSIVE}
    assert "share 0% of their tokens" in found["batch 8"].message


def with_graphs(*graphs: tuple[int, int]) -> dict[str, Finding]:
    """What comes of graphs of (tokens, kernels), beside profiles of 90 kernels a step on the candidate."""
    arm = on_gpu().arm(Arm.CANDIDATE, Tier.GPU)
    assert arm is not None
    record = CapturedPointersEvidence(
        tier=Tier.GPU,
        recorded_at="2026-01-01T00:00:00Z",
        hardware="NVIDIA H200",
        arm=Arm.CANDIDATE,
        process=arm,
        graphs=tuple(
            CapturedGraph(
                name=f"graph {number}",
                num_tokens=num_tokens,
                num_kernels=num_kernels,
                num_addresses=1,
                num_replays=1,
                num_replays_after_largest=1,
                num_replays_after_eager=1,
            )
            for number, (num_tokens, num_kernels) in enumerate(graphs)
        ),
        losses=(),
        planted_loss_seen=True,
    )
    return findings_of(evidence_set([*on_gpu(), record]))


@pytest.mark.parametrize(
    ("graphs", "outcome", "words"),
    [
        ([(1, 80), (8, 90)], Outcome.PASS, "90 to 90 kernels a step in the candidate's profile, 90 in the"),
        ([(1, 80), (8, 91)], Outcome.INCONCLUSIVE, "the profiler did not see all that the GPU did"),
        ([(1, 80), (16, 91), (32, 9)], Outcome.INCONCLUSIVE, "91 in the step's graph"),
        ([(8, 9), (8, 91)], Outcome.INCONCLUSIVE, "91 in the step's graph"),
        ([(0, 500), (4, 91)], Outcome.PASS, "are not known"),
    ],
    ids=["all", "one is missing", "padded", "two of a size", "none so large"],
)
def test_a_profile_that_shows_fewer_kernels_than_the_replayed_graph_holds_decides_nothing(
    graphs: list[tuple[int, int]], outcome: Outcome, words: str
) -> None:
    finding = with_graphs(*graphs)["batch 8"]
    assert finding.outcome is outcome
    assert any(words in text for text in (finding.message, *finding.details))
