"""Laws of timing decode on a GPU, without one: three processes by turns, what they leave, what PERF002 says of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from bundles.cells import name_of
from harness.app import decode_timing, gpu_timing
from harness.app.gpu_timing import collect_gpu_timing, num_tokens
from harness.app.probes import ProbeRun
from harness.app.recorder import Progress, Recorder
from harness.app.resuming import unproven
from harness.checks.performance.cell_rulings import VoidCell, measure_batch
from harness.checks.performance.given_tokens import worst_deviation
from harness.checks.performance.perf002_decode_speedup import DecodeSpeedup, decide_not_slower
from harness.model.change import Change
from harness.model.check import CheckContext
from harness.model.evidence import (
    ArmEvidence,
    EvidenceSet,
    GapEvidence,
    GpuState,
    SubjectEvidence,
    TimingEvidence,
    evidence_set,
)
from harness.model.finding import Finding
from harness.model.manifest import Claim, PerformanceSection
from harness.model.probe import DrawnWeights
from harness.model.step_kernels import StepKernels
from harness.model.words import Arm, Outcome, Tier
from tests.harness.app.kept_records import Kept
from tests.harness.app.test_gpu_tier import MANIFEST as OURS
from tests.harness.app.timed_programs import programs
from tests.harness.checks.evidence_builder import POLICY

CLAIM = Claim(metric="decode_itl_speedup", batch=2, value=1.5, hardware="H200")
MANIFEST = OURS.model_copy(update={"performance": PerformanceSection(decode_batches=(2,), claims=(CLAIM,))})
CHANGE = Change(base="a" * 40, merge_base="a" * 40, head="b" * 40, head_subject="made")
SHA = "0" * 64
IMPORTED = tuple(
    (module, f"{module.replace('.', '/')}.py", SHA)
    for module in sorted(
        {
            t.partition(":")[0]
            for t in (
                *OURS.dispatch.specialized_code,
                *(d.target for d in OURS.dispatch.decisions),
            )
        }
    )
)
POLICY_OF_SLEEPS = POLICY.model_copy(update={"itl_margin": 0.3})
"""Sleeps are not kept to two in a hundred on a machine that does other work."""
GPU = GpuState(
    name="made",
    sm_clock_mhz=1980,
    memory_clock_mhz=2619,
    power_w=300.0,
    temperature_c=40,
    slowdowns=(),
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProbeRun:
    """A run on a made GPU, with answers of ten tokens, and twelve in profiled blocks."""
    monkeypatch.setattr(gpu_timing, "num_tokens", lambda _: 10)
    monkeypatch.setattr(decode_timing, "PROFILED_TOKENS", 12)
    monkeypatch.setattr(gpu_timing, "find_gpu_reader", lambda: (lambda: GPU, ""))
    for name in ("base", "head", "arms"):
        (tmp_path / name).mkdir()
    recorder = Recorder(sink=Kept(), progress=Progress(quiet=True), hardware="16 cores, NVIDIA H200")
    files = {path: sha for _, path, sha in IMPORTED}
    recorder.record(
        SubjectEvidence(tier=Tier.GPU, recorded_at="2026-01-01T00:00:00Z", commit=CHANGE.head, files=files)
    )
    return ProbeRun(
        manifest=MANIFEST,
        recorder=recorder,
        head_path=tmp_path / "head",
        base_path=tmp_path / "base",
        change=CHANGE,
        model_dir=tmp_path / "model",
        workdir=tmp_path / "arms" / "probes",
        tier=Tier.GPU,
    )


def args_of(arm: Arm) -> Sequence[str]:
    switch = MANIFEST.switch
    value = {Arm.BASELINE: "", Arm.BASELINE_AGAIN: switch.off, Arm.CANDIDATE: switch.on}[arm]
    return ("--model", "{model}", "--additional-config", f'{{"{switch.key}": "{value}"}}')


def collected(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch, step_s: float = 0.002, **behaviour: str
) -> EvidenceSet:
    programs(monkeypatch, behaviour, imported=IMPORTED, step_s=step_s)
    collect_gpu_timing(run, args_of, num_pairs=5)
    return run.recorder.evidence


def context_of(evidence: EvidenceSet) -> CheckContext:
    return CheckContext(change=CHANGE, manifest=MANIFEST, policy=POLICY_OF_SLEEPS, evidence=evidence)


def findings_of(evidence: EvidenceSet) -> dict[str, Finding]:
    return {f.subject: f for f in DecodeSpeedup().run(context_of(evidence))}


def gaps_of(evidence: EvidenceSet) -> Mapping[str, GapEvidence]:
    return {gap.what: gap for gap in evidence.gaps(Tier.GPU)}


def test_both_comparisons_of_a_batch_are_recorded_with_arms_ledgers_and_the_gpu_at_both_ends(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = collected(run, monkeypatch)
    cells = evidence.of(TimingEvidence, tier=Tier.GPU)
    assert [(c.is_profiled, c.batch, c.compares[1], c.hardware) for c in cells] == [
        (is_profiled, 2, other, "16 cores, NVIDIA H200")
        for is_profiled in (False, True)
        for other in (Arm.BASELINE_AGAIN, Arm.CANDIDATE)
    ]
    assert {(b.gpu_before, b.gpu_after) for cell in cells for b in cell.blocks} == {(GPU, GPU)}
    lengths = {(c.is_profiled, len(i.token_ids)) for c in cells for b in c.blocks for i in b.items}
    assert lengths == {(False, 10), (True, 12)}
    profiles = {b.profile for c in cells if c.is_profiled for b in c.blocks}
    assert profiles == {StepKernels(num_steps=8, busy_us=600.0, num_kernels=90)}
    assert len({name_of(cell) for cell in cells}) == 4
    assert [r.failure for r in evidence.of(ArmEvidence, tier=Tier.GPU)] == ["", "", ""]
    assert not gaps_of(evidence) and not unproven(evidence)


def test_nothing_is_profiled_before_all_is_timed_and_what_is_there_is_not_profiled_again(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = collected(run, monkeypatch)
    ids = [
        (row.started_ns, "profile" in part.request_id)
        for arm in Arm
        if (ledger := evidence.ledger(arm, Tier.GPU)) is not None
        for row in ledger.rows
        for part in row.requests
    ]
    order = [is_profiled for _, is_profiled in sorted(ids)]
    assert any(order) and order == sorted(order)
    cells = evidence.of(TimingEvidence)
    run.recorder.records.remove(cells[-1])
    again = collected(run, monkeypatch).of(TimingEvidence)
    assert again[:-1] == cells[:-1] and again[-1] != cells[-1]
    assert again[-1].is_profiled and again[-1].compares == cells[-1].compares


@pytest.mark.parametrize(
    ("behaviour", "outcome", "words"),
    [
        ("is busy", Outcome.FAIL, "candidate / baseline 2.0000"),
        ("sees no GPU", Outcome.INCONCLUSIVE, "in 5 of 10 blocks the GPU's profiler saw too few"),
        ("hides kernels", Outcome.ERROR, "tells no profile"),
    ],
)
def test_a_candidate_whose_profile_is_worse_or_shows_nothing_does_not_pass(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch, behaviour: str, outcome: Outcome, words: str
) -> None:
    evidence = collected(run, monkeypatch, step_s=0.004, candidate=behaviour)
    busy = measure_batch(context_of(evidence), 2, Tier.GPU, max_half_width=0.3, is_profiled=True)
    ruling = busy.ruling if isinstance(busy, VoidCell) else decide_not_slower(busy, POLICY_OF_SLEEPS)
    assert ruling.outcome is outcome and words in ruling.message
    assert findings_of(evidence)["batch 2"].outcome is not Outcome.PASS


def test_all_arms_are_given_the_same_tokens_and_each_tells_how_likely_it_held_them(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = collected(run, monkeypatch)
    for cell in evidence.of(TimingEvidence, tier=Tier.GPU):
        assert cell.tokens_given and [s.arm for s in cell.shown] == list(cell.compares)
        answers = [
            [i.token_ids for b in cell.blocks if b.arm is arm for i in b.items] for arm in cell.compares
        ]
        assert len({len(set(tokens)) for tokens in answers[0]} - {1}) > 0
        by_pair = [
            {b.pair: [i.token_ids for i in b.items] for b in cell.blocks if b.arm is arm}
            for arm in cell.compares
        ]
        assert by_pair[0] == by_pair[1] and len({tuple(a) for a in by_pair[0].values()}) == 5
        assert worst_deviation(cell) == 0
        assert not any(i.top_logprobs for b in cell.blocks for i in b.items)


@pytest.mark.parametrize("arm", ["candidate", "baseline_again"])
@pytest.mark.parametrize(
    ("behaviour", "words"),
    [("computes nothing", "nothing shows"), ("follows nothing", "were not followed")],
)
def test_an_arm_that_computes_nothing_or_follows_nothing_decides_nothing(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch, behaviour: str, words: str, arm: str
) -> None:
    evidence = collected(run, monkeypatch, **{arm: behaviour})
    for is_profiled in (False, True):
        cell = measure_batch(context_of(evidence), 2, Tier.GPU, max_half_width=0.3, is_profiled=is_profiled)
        assert isinstance(cell, VoidCell) and cell.noisy is None and words in cell.ruling.message
    assert Outcome.PASS not in {f.outcome for f in findings_of(evidence).values()}


def test_where_one_arm_cannot_be_given_tokens_none_is_and_their_answers_are_compared(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = collected(run, monkeypatch, candidate="cannot be given tokens")
    cells = evidence.of(TimingEvidence, tier=Tier.GPU)
    assert len(cells) == 4 and not any(cell.tokens_given or cell.shown for cell in cells)
    assert {i.token_ids for c in cells for b in c.blocks for i in b.items} == {(7,) * 10, (7,) * 12}


def test_a_profiler_that_fails_leaves_its_reason_and_the_logs_last_lines(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = collected(run, monkeypatch, candidate="has no profiler")
    gap = gaps_of(evidence)["profile at batch 2, baseline against candidate"]
    assert gap.broke and "candidate: Its steps could not be profiled: RuntimeError: made" in gap.reason
    assert "CUPTI initialization failed" in gap.details
    assert {c.compares[1] for c in evidence.of(TimingEvidence) if c.is_profiled} == {Arm.BASELINE_AGAIN}
    assert findings_of(evidence)["batch 2"].outcome is not Outcome.PASS


def test_no_two_arms_ever_compute_at_the_same_time(run: ProbeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = collected(run, monkeypatch)
    ledgers = [evidence.ledger(arm, Tier.GPU) for arm in Arm]
    rows = sorted((r.started_ns, r.duration_ns) for one in ledgers if one is not None for r in one.rows)
    assert len(rows) > 200
    assert all(start + duration <= after for (start, duration), (after, _) in pairwise(rows))


# On a machine that does other work a block of sleeps may be void, and a test must not fail by that. Every outcome is
# told apart on made clocks in tests/harness/checks.


def test_a_slow_candidate_never_passes_and_bears_no_claim_out(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = collected(run, monkeypatch, step_s=0.008, candidate="is slow")
    found = findings_of(evidence)
    assert {f.outcome for f in found.values()} <= {Outcome.FAIL, Outcome.INCONCLUSIVE}
    took = {
        arm: median(row.duration_ns for row in ledger.rows)
        for arm in Arm
        if (ledger := evidence.ledger(arm, Tier.GPU)) is not None
    }
    assert took[Arm.CANDIDATE] > 1.5 * took[Arm.BASELINE]


def test_an_equal_candidate_does_not_fail_its_batch_and_bears_no_claim_out(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = findings_of(collected(run, monkeypatch, step_s=0.008))
    assert found["batch 2"].outcome in (Outcome.PASS, Outcome.INCONCLUSIVE), found["batch 2"].message
    assert found["claim: 1.5x at batch 2 on H200"].outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)


@pytest.mark.parametrize("arm", ["candidate", "baseline"])
def test_an_arm_that_answers_nothing_is_no_arm_that_was_timed(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    found = findings_of(collected(run, monkeypatch, **{arm: "answers nothing"}))
    assert {s: f.outcome for s, f in found.items()} == {f"arm {arm}": Outcome.ERROR}
    assert "its ledger has no step" in found[f"arm {arm}"].message


@pytest.mark.parametrize("arm", ["candidate", "baseline"])
def test_tokens_that_the_ledger_has_and_the_client_did_not_get_void_the_arm(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    found = findings_of(collected(run, monkeypatch, **{arm: "loses a token"}))
    assert {s: f.outcome for s, f in found.items()} == {f"arm {arm}": Outcome.ERROR}
    assert "does not account for the tokens" in found[f"arm {arm}"].message


@pytest.mark.parametrize("behaviour", ["dies", "babbles"])
def test_an_arm_that_breaks_leaves_gaps_and_the_records_of_the_others(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    evidence = collected(run, monkeypatch, candidate=behaviour)
    assert {c.compares[1] for c in evidence.of(TimingEvidence, tier=Tier.GPU)} == {Arm.BASELINE_AGAIN}
    for what in ("timing", "profile"):
        gap = gaps_of(evidence)[f"{what} at batch 2, baseline against candidate"]
        assert gap.broke and "candidate" in gap.reason
    assert Outcome.PASS not in {f.outcome for f in findings_of(evidence).values()}


def test_an_arm_that_does_not_start_leaves_its_reason_and_nothing_is_timed(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = collected(run, monkeypatch, candidate="does not start")
    gaps = gaps_of(evidence)
    assert gaps["arm candidate"].broke and "no CUDA device" in gaps["arm candidate"].reason
    assert "not running: candidate" in gaps["timing"].reason
    assert not evidence.of(TimingEvidence)
    (finding,) = findings_of(evidence).values()
    assert finding.outcome is Outcome.NOT_RUN


def test_an_interrupted_run_leaves_no_engine_and_records_what_was_served(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu_timing, "collect_timing", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collected(run, monkeypatch)
    arms = run.recorder.evidence.of(ArmEvidence, tier=Tier.GPU)
    assert [a.failure for a in arms] == ["stopped before its work was done"] * 3


def test_baselines_find_no_kernels_that_the_candidate_compiled(run: ProbeRun) -> None:
    caches = {arm: gpu_timing.cache_of(run, name) for arm, name in gpu_timing.SHARES_CACHE.items()}
    assert caches[Arm.BASELINE] == caches[Arm.BASELINE_AGAIN] != caches[Arm.CANDIDATE]


def test_answers_of_a_large_batch_are_shorter() -> None:
    assert num_tokens(1) == num_tokens(8) > num_tokens(64) >= 50


def test_a_cell_whose_servers_ledger_is_gone_proves_nothing(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [r for r in collected(run, monkeypatch) if r.kind != "ledger"]
    assert len(unproven(evidence_set(records))) == 8


def test_what_is_done_while_the_arms_start_has_ended_before_anything_is_timed(
    run: ProbeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[bool] = []
    ended: list[int] = []
    collect = gpu_timing.collect_timing

    def watched(*arguments: object, **more: object) -> None:
        timed.append(bool(ended))
        collect(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(gpu_timing, "collect_timing", watched)
    programs(monkeypatch, {}, imported=IMPORTED, step_s=0.002)

    def slow() -> None:
        time.sleep(3)
        ended.append(1)

    collect_gpu_timing(run, args_of, num_pairs=5, meanwhile=slow)
    assert timed == [True]


def test_timed_arms_with_other_weights_decide_nothing(run: ProbeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = collected(run, monkeypatch)
    drawn = DrawnWeights(by="weights.py:fill", source=SHA, digest="1")

    def findings_with(candidate: DrawnWeights | None) -> dict[str, Finding]:
        records = [
            r.model_copy(update={"weights": candidate if r.arm is Arm.CANDIDATE else drawn})
            if isinstance(r, ArmEvidence)
            else r
            for r in evidence
        ]
        return findings_of(evidence_set(records))

    for other in (None, drawn.model_copy(update={"digest": "2"})):
        found = findings_with(other)
        assert {s: f.outcome for s, f in found.items()} == {"weights of the arms": Outcome.INCONCLUSIVE}
    assert "weights of the arms" not in findings_with(drawn)
