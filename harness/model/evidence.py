"""Evidence: raw, typed, content-addressed records of what was run and seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter

from harness.model.change import ChangedFile
from harness.model.effects import Effect, NameSearch, ReadFile
from harness.model.evaluation import EvalRow, SuiteItem, TaskScore
from harness.model.kernel_audit import AuditedKernel, KernelSource, UnreadText, WaitStatement
from harness.model.kernel_tests import KernelTestRun
from harness.model.ledger import ImportedFile, LedgerRow, TracerProof, stems_of
from harness.model.own_tests import OwnTest, OwnTestFile
from harness.model.probe import (
    CapturedGraph,
    DrawnWeights,
    EngineSnapshot,
    HandoverStep,
    OwnershipLoss,
    ProbedEngine,
    ProbeStep,
    Refusal,
    ScenarioResult,
)
from harness.model.reach import HookedFile, InwardImport, OwnImport
from harness.model.record import Record, digest_of
from harness.model.step_kernels import StepKernels
from harness.model.surface import SettingUse, SwitchRead
from harness.model.swept_cell import SweptCell
from harness.model.words import Arm, Tier


class EvidenceRecord(Record):
    """What all evidence says: how it was made, when, on what."""

    schema_version: Literal[1] = 1
    tier: Tier
    recorded_at: str
    """UTC, ISO 8601."""
    command: tuple[str, ...] = ()
    """What reproduces the record; paths relative, no host names."""
    hardware: str = ""
    seed: int | None = None

    @cached_property
    def id(self) -> str:
        """Content address: kind and the first 16 hex digits of the sha256 of the canonical JSON."""
        return f"{self.kind}-{digest_of(self)[:16]}"  # type: ignore[attr-defined]


class ChangedFilesEvidence(EvidenceRecord):
    """The diff between merge base and head, judged part only, and how much was left out."""

    kind: Literal["changed_files"] = "changed_files"
    files: tuple[ChangedFile, ...]
    num_not_judged: int
    """Changed files outside `--paths`."""


class EnvironmentEvidence(EvidenceRecord):
    """The machine and its software. No host, user or absolute path names."""

    kind: Literal["environment"] = "environment"
    cpu: str
    num_cores: int
    memory_gib: float
    gpus: tuple[str, ...]
    gpu_topology: str = ""
    """How several GPUs are joined, as `nvidia-smi topo -m` draws it; empty: one, none, or not told."""
    os: str
    python: str
    packages: dict[str, str]
    """Distribution name to version: harness, engine, torch and what the engine computes with."""
    harness_sha256: str
    """Digest over the harness's own source files."""
    engine_sha256: str = ""
    """Digest over the files of the installed engine's wheel; empty where no engine is installed."""

    @property
    def machine(self) -> str:
        """Processor, cores and GPUs, as records name the hardware that they were made on."""
        gpus = (gpu.partition(",")[0] for gpu in self.gpus)
        return ", ".join((self.cpu, f"{self.num_cores} cores", *gpus))


class SubjectEvidence(EvidenceRecord):
    """The subject's files as committed at the head: what the arms' workers must have imported."""

    kind: Literal["subject"] = "subject"
    commit: str
    files: dict[str, str]
    """Path relative to the repository, to sha256."""


class ArmEvidence(EvidenceRecord):
    """One arm's server: how it was started and how it ended."""

    kind: Literal["arm"] = "arm"
    arm: Arm
    additional_config: dict[str, str]
    """As requested."""
    started: bool
    ready_s: float | None
    failure: str = ""
    """Why it did not start or died; empty when it served to the end."""
    log_tail: tuple[str, ...] = ()
    """Last lines of the server's log: untrusted text."""
    proof: TracerProof | None
    """None when the worker's tracer wrote nothing."""
    ledger_problems: tuple[str, ...] = ()
    """Why the arm's ledger is no evidence: another run's nonce, lost rows, a tracer that failed."""
    ledger_notes: tuple[str, ...] = ()
    """What a reader of the ledger should know, for instance a last line that a kill cut short."""
    imported: tuple[ImportedFile, ...] = ()
    """Files of the subject's import roots that the worker imported."""
    modules: tuple[str, ...] = ()
    """Names of all modules below the subject's import roots that the worker imported."""
    weights: DrawnWeights | None = None
    """What a timed arm of the gpu tier served with; None where a checkpoint holds the weights. Those of a scripted
    run stand with its engines."""


RequestPart = tuple[int, int, int]
"""Of one request in one step: index in `LedgerEvidence.steps`, index in its requests, emitted tokens."""


class LedgerEvidence(EvidenceRecord):
    """The ledger of one server of an arm, whole."""

    kind: Literal["ledger"] = "ledger"
    arm: Arm
    session: str = ""
    """The server's nonce; an arm that a resumed run started again has had several servers."""
    rows: tuple[LedgerRow, ...]

    @cached_property
    def steps(self) -> tuple[LedgerRow, ...]:
        """The rows in the order of their steps."""
        return tuple(sorted(self.rows, key=lambda row: row.step))

    @cached_property
    def parts(self) -> Mapping[str, Sequence[RequestPart]]:
        """By the engine's request id, in the order of the steps."""
        found: dict[str, list[RequestPart]] = {}
        for place, row in enumerate(self.steps):
            for number, request in enumerate(row.requests):
                found.setdefault(request.request_id, []).append((place, number, request.num_emitted_tokens))
        return found

    @cached_property
    def by_stem(self) -> Mapping[str, Sequence[str]]:
        """The engine's request ids by each client id that they may stem from."""
        found: dict[str, list[str]] = {}
        for engine_request_id in self.parts:
            for stem in dict.fromkeys(stems_of(engine_request_id)):
                found.setdefault(stem, []).append(engine_request_id)
        return found


class EvalSetEvidence(EvidenceRecord):
    """The questions of one evaluation suite, the same for every arm, and how answers are graded."""

    kind: Literal["eval_set"] = "eval_set"
    suite: str
    source: str
    """Hub id with revision, relative path, or the generator with its arguments."""
    source_sha256: str
    """Digest over the rows as they were read, before any were left out."""
    grader: str
    """Name and version of the scoring rule."""
    rows: tuple[EvalRow, ...]
    num_left_out: int = 0
    """Rows of the source that were not asked, for instance longer than the served context."""


class SuiteEvidence(EvidenceRecord):
    """What one arm answered to one suite."""

    kind: Literal["suite"] = "suite"
    suite: str
    arm: Arm
    perturbation: str = ""
    """How the arm's specialised code was made wrong on purpose while it answered; empty: it was not."""
    num_perturbed_calls: int = 0
    """Calls of that code whose result was made wrong, as the worker counted them."""
    items: tuple[SuiteItem, ...]


class TaskScoresEvidence(EvidenceRecord):
    """The scores of one arm's answers to an lm-eval task, as lm-eval gave them: stored, and not computed again."""

    kind: Literal["task_scores"] = "task_scores"
    suite: str
    arm: Arm
    library: str
    """Name and version of what scored."""
    config_sha256: str
    """Digest over the tasks' whole configuration."""
    scores: tuple[TaskScore, ...]


class CoverageFile(Record):
    """Executable lines of one file, and which of them ran in which suite."""

    path: str
    """Relative to the repository."""
    executable_lines: tuple[int, ...]
    executed_lines: dict[str, tuple[int, ...]]
    """By suite; "start" is everything before the first suite."""


class CoverageEvidence(EvidenceRecord):
    """Line coverage of the subject in one arm's worker."""

    kind: Literal["coverage"] = "coverage"
    arm: Arm
    files: tuple[CoverageFile, ...]


Slowdown = Literal[
    "sw_power_cap", "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"
]
SLOWDOWNS: Mapping[int, Slowdown] = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Bits of NVML's `nvmlClocksEventReasons` that make a GPU slower than it was asked to be; idle is none of them."""


class GpuState(Record):
    """A GPU at one moment, by NVML; None and empty for what it does not tell."""

    name: str
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    slowdowns: tuple[Slowdown, ...] | None
    """Of `SLOWDOWNS`, those that hold."""


class TimingBlock(Record):
    """One timed visit to one arm; neighbouring blocks of both arms form a pair."""

    pair: int
    """Index of the ABBA pair that the block belongs to."""
    position: int
    """Order in time over the whole cell, from 0."""
    arm: Arm
    items: tuple[SuiteItem, ...]
    """The requests of the block; their decode steps are found in the arm's ledger."""
    load_1min: float | None = None
    """The machine's load average at the block's start."""
    gpu_before: GpuState | None = None
    """At the block's start; None where it was not recorded."""
    gpu_after: GpuState | None = None
    """At its end."""
    profile: StepKernels | None = None
    """What the GPU did in its steady steps; None where the block was not profiled."""


class ShownAnswers(Record):
    """What one arm of a timed cell answered in a block that was not timed, and how likely it held each given token."""

    arm: Arm
    items: tuple[SuiteItem, ...]
    """The requests of the cell's warm-up, with logprobs."""


class TimingEvidence(EvidenceRecord):
    """One performance cell: interleaved blocks of both arms at one batch."""

    kind: Literal["timing"] = "timing"
    cell: str
    batch: int
    num_output_tokens: int
    compares: tuple[Arm, Arm]
    """(reference, other): baseline and candidate, or baseline and baseline_again for the A/A."""
    blocks: tuple[TimingBlock, ...]
    tokens_given: bool = False
    """Whether the engines were told which tokens to go on with: answers are then alike whatever an arm computes."""
    shown: tuple[ShownAnswers, ...] = ()
    """One of each arm, where tokens were given."""

    @property
    def visits(self) -> tuple[tuple[str, Arm, tuple[SuiteItem, ...]], ...]:
        """Every block by name with its arm and requests, those that were not timed last."""
        timed = [(f"block {block.position}", block.arm, block.items) for block in self.blocks]
        return (*timed, *(("the block that is not timed", shown.arm, shown.items) for shown in self.shown))

    @property
    def is_profiled(self) -> bool:
        """Whether it is the GPU's busy time that it tells; the profiler disturbs the wall time."""
        return any(block.profile is not None for block in self.blocks)


class KernelCompilationEvidence(EvidenceRecord):
    """One entry point of the manifest's `[kernels]`, compiled for one architecture."""

    kind: Literal["kernel_compilation"] = "kernel_compilation"
    entry: str
    arch: str
    variants: tuple[str, ...]
    """Names of the variants that gave artefacts, in order; a variant may compile several modules."""
    failure: str = ""
    """Why it ended early; empty when it ran to its end and gave a kernel."""
    log_tail: tuple[str, ...] = ()
    """Last lines of its standard error: untrusted text."""
    versions: dict[str, str]
    """The interpreter and the compilers."""
    subject_files: dict[str, str]
    """Files of the judged commit that it imported: path relative to the repository, to sha256."""


class KernelAuditEvidence(EvidenceRecord):
    """What the audit says of all that one entry point compiled for one architecture, PTX and machine code, with the
    declared roles."""

    kind: Literal["kernel_audit"] = "kernel_audit"
    entry: str
    arch: str
    kernels: tuple[AuditedKernel, ...]
    unread: tuple[UnreadText, ...] = ()


class SweepEvidence(EvidenceRecord):
    """A sweep of performance cells, made before by `fasttrack sweep`."""

    kind: Literal["sweep"] = "sweep"
    subject: str
    """The commit whose code was served; other words where it says nothing of a commit."""
    plan: str
    """The digest of the sweep's plan."""
    num_blocks: int
    """Of each cell, as planned."""
    harness_sha256: str
    """Of the judge that measured."""
    cells: tuple[SweptCell, ...]
    gpu_topologies: tuple[str, ...] = ()
    """Of the machines that served engines of several ranks, as `nvidia-smi topo -m` draws them."""


class KernelTestsEvidence(EvidenceRecord):
    """A run of `fasttrack kernels test`, made before, beside what the head commit holds of its sources."""

    kind: Literal["kernel_tests"] = "kernel_tests"
    commit: str
    run: KernelTestRun
    files: dict[str, str]
    """sha256 of what the head commit holds under the names of the run's sources; what it lacks is not there."""
    imported: tuple[str, ...]
    """What any run of the tests that passed imports, by the head's text: their own files and all that these import."""

    @property
    def unnamed_sources(self) -> tuple[str, ...]:
        """Sources that the run must have imported and does not name."""
        return tuple(path for path in self.imported if path not in self.run.sources)

    @property
    def other_sources(self) -> tuple[str, ...]:
        """Sources of the run that are not the head's."""
        return tuple(path for path, digest in self.run.sources.items() if self.files.get(path) != digest)


class WaitSourceEvidence(EvidenceRecord):
    """Every inline-assembly `griddepcontrol.wait` in the sources that the entry points imported."""

    kind: Literal["wait_source"] = "wait_source"
    num_files: int
    """Source files that were searched."""
    statements: tuple[WaitStatement, ...]


class KernelSourcesEvidence(EvidenceRecord):
    """Which of the files that the change owns or edits hold kernels, tests and documents left out."""

    kind: Literal["kernel_sources"] = "kernel_sources"
    commit: str
    num_files: int
    """Files that were looked at."""
    files: tuple[KernelSource, ...]
    unreadable: tuple[str, ...] = ()
    """Python files that do not parse, with the reason."""


class PythonEffectsEvidence(EvidenceRecord):
    """What the subject's files, and the edited lines of others, do to things outside, as read from their text."""

    kind: Literal["python_effects"] = "python_effects"
    commit: str
    files: tuple[ReadFile, ...]
    effects: tuple[Effect, ...]
    searched: tuple[str, ...]
    """Where names were looked up: "merge base", and installed distributions with their versions."""
    searches: tuple[NameSearch, ...]
    """One for each name that is registered or exported to the environment."""


class ProbeEvidence(EvidenceRecord):
    """A scripted run of one arm's engines in one process, step by step."""

    kind: Literal["probe"] = "probe"
    arm: Arm
    process: ArmEvidence
    """How the process was started and ended, and that its tracer lives; it serves no port."""
    steps: tuple[ProbeStep, ...]
    """Writes are given for the steps that ran specialised code."""
    engines: tuple[ProbedEngine, ...]
    results: tuple[ScenarioResult, ...]
    refusals: tuple[Refusal, ...]


class HandoverEvidence(EvidenceRecord):
    """The candidate's probe beside that of its twin, which never took the specialised path."""

    kind: Literal["handover"] = "handover"
    arm: Arm
    twin: ArmEvidence
    formats: dict[str, str] = Field(default_factory=dict)
    """By engine: the coarsest format that the twin's model computes in or keeps its cache in, by PyTorch's name. Of an
    engine that is not named single precision is taken, which allows least."""
    steps: tuple[HandoverStep, ...]
    twin_engines: tuple[ProbedEngine, ...] = ()
    """The twin's, as they were started."""


class DefaultOffEvidence(EvidenceRecord):
    """Processes of one commit that serve models with the switch unset."""

    kind: Literal["default_off"] = "default_off"
    side: Literal["base", "head"]
    commit: str
    has_model: bool
    """Whether the commit holds the modules of the manifest's baseline code, and so can serve the subject's model."""
    imported: tuple[ImportedFile, ...]
    """What the process imported of the subject."""
    files: dict[str, str]
    """What the commit holds below the import roots: path to sha256."""
    snapshots: tuple[EngineSnapshot, ...]


class CapturedPointersEvidence(EvidenceRecord):
    """The addresses in one arm's captured graphs, and which of them the allocator took back before a replay."""

    kind: Literal["captured_pointers"] = "captured_pointers"
    arm: Arm
    process: ArmEvidence
    """How the process was started and ended, and what it imported."""
    graphs: tuple[CapturedGraph, ...]
    losses: tuple[OwnershipLoss, ...]
    planted_loss_seen: bool
    """Whether a graph of the harness's own, whose memory it freed before a replay, was told as a loss: of others none
    may then have been missed for want of events."""


class SurfaceEvidence(EvidenceRecord):
    """The settings that the change's code reads, its tests set and its documents name."""

    kind: Literal["surface"] = "surface"
    commit: str
    code: tuple[SettingUse, ...]
    tests: tuple[SettingUse, ...]
    documents: tuple[SettingUse, ...]
    num_documents: int
    switch: tuple[SwitchRead, ...]
    fields_read: tuple[str, ...]
    """Fields of configuration classes that code reads by name, as `Class.field`."""
    fields_are_read_whole: bool
    """Whether some code reads all fields of an object at once."""
    searched: tuple[str, ...]
    """Where names were looked up: "merge base", and installed distributions with their versions."""
    searches: tuple[NameSearch, ...]
    """For variables and flags: where the engine or the rest of the repository has them."""


class HooksEvidence(EvidenceRecord):
    """The hooked files of the manifest, hunk by hunk, and what each hunk does while the switch is off."""

    kind: Literal["hooks"] = "hooks"
    base: str
    commit: str
    files: tuple[HookedFile, ...]


class ImportsEvidence(EvidenceRecord):
    """Imports across the border of the subject: of it by other code, of the engine by it."""

    kind: Literal["imports"] = "imports"
    commit: str
    num_files: int
    """Python files of the head that were searched, tests and documents left out."""
    num_subject_files: int
    inward: tuple[InwardImport, ...]
    outward: tuple[OwnImport, ...]
    unreadable: tuple[str, ...] = ()
    """Files of the subject, or that speak of it, which do not parse, with the reason."""


class OwnTestsEvidence(EvidenceRecord):
    """The tests that the change brings, run as they are and with falsified answers of the subject."""

    kind: Literal["own_tests"] = "own_tests"
    commit: str
    files: tuple[OwnTestFile, ...]
    tests: tuple[OwnTest, ...]
    modules: tuple[str, ...]
    """Modules of the subject that the tests' process imported."""
    num_outside: int
    """Calls of the subject made while the test files were imported: none of them is falsified."""


class OwnersEvidence(EvidenceRecord):
    """The CODEOWNERS file of the merge base, as committed."""

    kind: Literal["owners"] = "owners"
    path: str
    """Empty when there is none."""
    text: str


class SourceEvidence(EvidenceRecord):
    """A bundle from which evidence was taken over."""

    kind: Literal["source"] = "source"
    content_sha256: str
    """Names the bundle."""
    signers: tuple[str, ...]
    """Fingerprints of the keys whose signatures held when it was taken over."""
    evidence: tuple[str, ...]
    """Ids of the records that came from it."""


class GapEvidence(EvidenceRecord):
    """Something that was to be collected and was not."""

    kind: Literal["gap"] = "gap"
    what: str
    """A tier, an arm or a suite: "tier gpu", "arm candidate", "suite greedy"."""
    broke: bool
    """True when the harness or its machine failed; False when something is missing or was not asked for."""
    reason: str
    details: tuple[str, ...] = ()


AnyEvidence = Annotated[
    ChangedFilesEvidence
    | EnvironmentEvidence
    | SubjectEvidence
    | ArmEvidence
    | LedgerEvidence
    | EvalSetEvidence
    | SuiteEvidence
    | TaskScoresEvidence
    | CoverageEvidence
    | TimingEvidence
    | KernelCompilationEvidence
    | KernelAuditEvidence
    | KernelTestsEvidence
    | SweepEvidence
    | WaitSourceEvidence
    | KernelSourcesEvidence
    | PythonEffectsEvidence
    | SurfaceEvidence
    | ProbeEvidence
    | HandoverEvidence
    | DefaultOffEvidence
    | CapturedPointersEvidence
    | HooksEvidence
    | ImportsEvidence
    | OwnTestsEvidence
    | OwnersEvidence
    | SourceEvidence
    | GapEvidence,
    Field(discriminator="kind"),
]
EVIDENCE_ADAPTER: TypeAdapter[AnyEvidence] = TypeAdapter(AnyEvidence)

E = TypeVar("E", bound=EvidenceRecord)


@dataclass(frozen=True, slots=True)
class EvidenceSet:
    """All evidence of a judgement, in the order in which it was recorded."""

    records: tuple[AnyEvidence, ...]

    def __iter__(self) -> Iterator[AnyEvidence]:
        return iter(self.records)

    def of(self, kind: type[E], *, tier: Tier | None = None) -> tuple[E, ...]:
        """All records of one type, at one tier when given."""
        return tuple(r for r in self.records if isinstance(r, kind) and (tier is None or r.tier == tier))

    def suite(self, suite: str, arm: Arm, tier: Tier) -> SuiteEvidence | None:
        """The latest record of one suite on one arm; None when it was not collected."""
        found = [r for r in self.of(SuiteEvidence, tier=tier) if r.suite == suite and r.arm == arm]
        return found[-1] if found else None

    def ledgers(self, arm: Arm, tier: Tier) -> tuple[LedgerEvidence, ...]:
        """The latest ledger of each of one arm's servers."""
        found = {r.session: r for r in self.of(LedgerEvidence, tier=tier) if r.arm == arm}
        return tuple(found.values())

    def ledger(self, arm: Arm, tier: Tier) -> LedgerEvidence | None:
        """The ledger of one arm; of several servers their ledgers one after the other, steps numbered through.

        It then bears the id of the last one's record.
        """
        found = self.ledgers(arm, tier)
        return join_ledgers(found) if len(found) > 1 else next(iter(found), None)

    def sessions(self, arm: Arm, tier: Tier) -> tuple[ArmEvidence, ...]:
        """The latest record of each of one arm's servers that answered something; where none did, of the latest."""
        found = {r.proof.nonce if r.proof else "": r for r in self.of(ArmEvidence, tier=tier) if r.arm == arm}
        if len(found) < 2:
            return tuple(found.values())
        asked = {
            mark for suite in self.of(SuiteEvidence, tier=tier) for mark in map(session_mark, suite.items)
        }
        asked |= {
            session_mark(item)
            for cell in self.of(TimingEvidence, tier=tier)
            for _, _, items in cell.visits
            for item in items
        }
        answered = tuple(r for nonce, r in found.items() if nonce and nonce[:8] in asked)
        return answered or tuple(found.values())[-1:]

    def arm(self, arm: Arm, tier: Tier) -> ArmEvidence | None:
        """The latest record of one arm's server."""
        found = [r for r in self.of(ArmEvidence, tier=tier) if r.arm == arm]
        return found[-1] if found else None

    def gaps(self, tier: Tier) -> tuple[GapEvidence, ...]:
        """What was to be collected at a tier and was not."""
        return self.of(GapEvidence, tier=tier)


def join_ledgers(ledgers: Sequence[LedgerEvidence]) -> LedgerEvidence:
    """Ledgers one after the other, steps numbered through, under the id of the last."""
    rows: list[LedgerRow] = []
    for ledger in ledgers:
        first = max((row.step for row in rows), default=-1) + 1
        rows += [row.model_copy(update={"step": first + row.step}) for row in ledger.rows]
    joined = ledgers[-1].model_copy(update={"rows": tuple(rows)})
    joined.__dict__["id"] = ledgers[-1].id
    return joined


def session_mark(item: SuiteItem) -> str:
    """The first digits of the nonce of the server that was asked, as the client writes them into request ids."""
    return item.request_id.rpartition("-")[0].rpartition("-")[2]


def evidence_set(records: Iterable[AnyEvidence]) -> EvidenceSet:
    """An `EvidenceSet` of the given records."""
    return EvidenceSet(tuple(records))
