"""A bundle that holds a record of every kind that a drill-down shows, judged by the real checks."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar, get_origin

from bundles.writer import EvidenceStore
from harness.checks.correctness.cor001_token_level import TokenLevel
from harness.checks.correctness.cor003_specialized_share import SpecializedShare
from harness.checks.correctness.cor004_unexecuted_lines import UnexecutedLines
from harness.checks.correctness.cor006_hand_over import HandOver
from harness.checks.performance.perf001_decode_itl import DecodeItl
from harness.model.change import ChangedFile
from harness.model.evidence import (
    AnyEvidence,
    CapturedPointersEvidence,
    ChangedFilesEvidence,
    DefaultOffEvidence,
    GpuState,
    ImportsEvidence,
    KernelAuditEvidence,
    KernelCompilationEvidence,
    KernelSourcesEvidence,
    SourceEvidence,
    TimingEvidence,
)
from harness.model.finding import Finding
from harness.model.judgement import CheckSummary, worst
from harness.model.kernel_audit import AuditedKernel, Decision, KernelResources, KernelResult, KernelSource
from harness.model.kernels import Launch
from harness.model.probe import CapturedGraph, EngineSnapshot, HandoverStep, ServedAnswer
from harness.model.reach import ImportForm, OwnImport
from harness.model.record import Record
from harness.model.words import Arm, Tier
from tests.bundles.examples import environment
from tests.harness.checks.evidence_builder import HEAD, context_of, small_evidence
from tests.harness.checks.probe_builder import handover, probe, process

MANIFEST_TEXT = """\
schema_version = 1
[change]
id = "made"
title = "Made path"
model = "Made"
vllm = "0.32.0"
[paths]
owned = ["subject/**"]
import_roots = ["subject"]
[switch]
key = "backend"
on = "fast"
off = "auto"
[scope]
platforms = ["cpu"]
max_batch = 8
max_context = 512
[dispatch]
specialized_code = ["subject.executor:Executor.run"]
baseline_code = ["subject.model:Model.plain_forward"]
[[dispatch.decisions]]
target = "subject.plan:Planner.plan"
value = "path"
specialized = "fast"
reason = "reason"
[models.nano]
build = ["-m", "subject.build"]
max_model_len = 512
"""
MACHINE = environment().model_copy(update={"cpu": "made CPU"})
"""What the checks' made evidence names."""
TIME = "2026-11-02T10:00:00Z"
NUM_KERNELS = 15
NUM_SHOWN = 125
"""Results out of order of the last kernel: more than a table has rows."""


def drill_records() -> tuple[AnyEvidence, ...]:
    """Records of a clean candidate, and of kernels of which one is shown out of order."""
    arms = [_with_clocks(r) if isinstance(r, TimingEvidence) else r for r in small_evidence()]
    return (MACHINE, *arms, probe(), handover(change=_apart), *_code(), *_kernels(), *_engines())


def _with_clocks(cell: TimingEvidence) -> TimingEvidence:
    """The GPU of the candidate's cells was read, and grew hotter; its driver tells no power."""
    if cell.compares[1] is not Arm.CANDIDATE:
        return cell
    states = [
        GpuState(
            name="made GPU",
            sm_clock_mhz=1980 - 15 * block.position,
            memory_clock_mhz=2619,
            power_w=None,
            temperature_c=40 + block.position,
            slowdowns=("sw_power_cap",) if block.position == 0 else (),
        )
        for block in cell.blocks
    ]
    ends = zip(cell.blocks, states, [*states[1:], states[-1]], strict=True)
    blocks = tuple(b.model_copy(update={"gpu_before": s, "gpu_after": e}) for b, s, e in ends)
    return cell.model_copy(update={"blocks": blocks})


def _apart(step: HandoverStep) -> HandoverStep:
    """The third step of every script computed other work, and the fourth sampled another token."""
    return step.model_copy(
        update={"same_work": step.position % 4 != 2, "other_token": "r0" if step.position % 4 == 3 else ""}
    )


def _code() -> tuple[AnyEvidence, ...]:
    names = ("subject/plan.py", "subject/executor.py", "subject/never.py", "subject/table.bin", "README")
    files = tuple(
        ChangedFile(
            path=name,
            status="modified",
            old_mode="100644",
            new_mode="100644",
            added_lines=None if name.endswith(".bin") else 1200 + place,
            deleted_lines=None if name.endswith(".bin") else place,
            is_binary=name.endswith(".bin"),
        )
        for place, name in enumerate(names)
    )
    uses = tuple(
        OwnImport(path="subject/plan.py", line=10 + i, target=f"vllm.part{i}.thing", form=ImportForm.LAZY)
        for i in range(14)
    )
    return (
        ChangedFilesEvidence(tier=Tier.STATIC, recorded_at=TIME, files=files, num_not_judged=0),
        ImportsEvidence(
            tier=Tier.STATIC,
            recorded_at=TIME,
            commit=HEAD,
            num_files=9,
            num_subject_files=3,
            inward=(),
            outward=uses,
        ),
        SourceEvidence(
            tier=Tier.GPU,
            recorded_at=TIME,
            content_sha256="ab" * 32,
            signers=("SHA256:abc1",),
            evidence=("x-1",),
        ),
    )


def _kernels() -> tuple[AnyEvidence, ...]:
    return (
        KernelSourcesEvidence(
            tier=Tier.STATIC,
            recorded_at=TIME,
            commit=HEAD,
            num_files=7,
            files=(
                KernelSource(path="subject/kernel.py", form="CuTe DSL", lines=(4,)),
                KernelSource(path="subject/other.cu", form="CUDA C++"),
            ),
        ),
        KernelCompilationEvidence(
            tier=Tier.STATIC,
            recorded_at=TIME,
            entry="subject.entries:decode",
            arch="sm_103a",
            variants=tuple(f"b{i}" for i in range(NUM_KERNELS)),
            versions={},
            subject_files={"subject/kernel.py": "00"},
        ),
        KernelAuditEvidence(
            tier=Tier.STATIC,
            recorded_at=TIME,
            entry="subject.entries:decode",
            arch="sm_103a",
            kernels=tuple(_kernel(i) for i in range(NUM_KERNELS)),
        ),
    )


def _kernel(index: int) -> AuditedKernel:
    shown = KernelResult(
        rule="PDL001",
        decision=Decision.SHOWN,
        reason="The load at %rd4 runs above the wait.",
        subject="x",
        line=31,
        path=("ld.global.b32 %r1, [%rd4];", "griddepcontrol.wait;"),
    )
    proven = KernelResult(rule="PDL001", decision=Decision.PROVEN, reason="Every read comes after the wait.")
    other = KernelResult(rule="SYN002", decision=Decision.NOT_APPLICABLE, reason="It spins on nothing.")
    return AuditedKernel(
        kernel=f"decode_{index}",
        arch="sm_103a",
        level="sass",
        text=f"subject.entries:decode b{index}",
        text_sha256="00",
        launch=Launch.PDL,
        results=(*((shown,) * NUM_SHOWN if index == NUM_KERNELS - 1 else (proven,)), other),
        resources=KernelResources(
            registers=96 + index,
            spill_stores=0,
            spill_loads=0,
            stack_bytes=None,
            static_shared_bytes=49152,
            threads=256,
            instructions=900,
            mix={"memory": 12},
            ctas_per_sm=2,
            limited_by="registers",
        ),
    )


def _engines() -> tuple[AnyEvidence, ...]:
    snapshot = filled(
        EngineSnapshot,
        model="bystander",
        answers=(ServedAnswer(request="r0", token_ids=(1, 2), logprobs=(-0.5, -0.25)),),
        ops={"aten::add": "aa", "_C::gemm": "bb"},
    )
    graph = filled(CapturedGraph, name="batch 8", num_kernels=41, num_replays=1200, num_replays_after_eager=3)
    shared = {"recorded_at": TIME, "snapshots": (snapshot,)}
    return (
        filled(DefaultOffEvidence, tier=Tier.CPU, side="base", commit="a" * 40, **shared),
        filled(DefaultOffEvidence, tier=Tier.CPU, side="head", commit=HEAD, **shared),
        filled(
            CapturedPointersEvidence,
            tier=Tier.GPU,
            recorded_at=TIME,
            arm=Arm.CANDIDATE,
            graphs=(graph,),
            process=process(Arm.CANDIDATE),
        ),
    )


R = TypeVar("R", bound=Record)


def filled(kind: type[R], **fields: object) -> R:
    """A record with the given fields; other required ones, which no drill-down shows, are empty."""
    empty = {
        name: (get_origin(field.annotation) or field.annotation)()  # type: ignore[misc]
        for name, field in kind.model_fields.items()
        if field.is_required() and name not in fields
    }
    return kind.model_validate({**empty, **fields})


def judged(records: tuple[AnyEvidence, ...]) -> tuple[tuple[CheckSummary, ...], tuple[Finding, ...]]:
    """What the real checks say of the records."""
    context, findings, summaries = context_of(records), [], []
    for check in (TokenLevel(), SpecializedShare(), UnexecutedLines(), HandOver(), DecodeItl()):
        own = check.run(context)
        findings += own
        summaries.append(
            CheckSummary(
                check=check.id,
                title=check.title,
                principle=check.principle,
                tier=check.tier,
                required=True,
                outcome=worst([f.outcome for f in own]),
                num_findings=len(own),
            )
        )
    return tuple(summaries), tuple(findings)


def store_drills(folder: Path) -> tuple[tuple[CheckSummary, ...], tuple[Finding, ...]]:
    """Writes the records into a bundle that is not sealed yet."""
    records = drill_records()
    store = EvidenceStore(folder)
    for record in records:
        store.add(record)
    return judged(records)
