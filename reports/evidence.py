"""Evidence records as a report shows them: what they are, and the first of what they hold."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from bundles.contents import HEAD_CHARACTERS, Bundle, EvidenceFile
from bundles.layout import MANIFEST_JSON
from harness.model.evidence import (
    ArmEvidence,
    CapturedPointersEvidence,
    ChangedFilesEvidence,
    CoverageEvidence,
    DefaultOffEvidence,
    EnvironmentEvidence,
    EvalSetEvidence,
    GapEvidence,
    HandoverEvidence,
    HooksEvidence,
    ImportsEvidence,
    KernelAuditEvidence,
    KernelCompilationEvidence,
    KernelSourcesEvidence,
    LedgerEvidence,
    OwnersEvidence,
    ProbeEvidence,
    PythonEffectsEvidence,
    SubjectEvidence,
    SuiteEvidence,
    SurfaceEvidence,
    TaskScoresEvidence,
    TimingEvidence,
    WaitSourceEvidence,
)
from harness.model.words import Tier
from reports.shown import Length, Piece, Shown, format_number, pointer, visible

EXCERPT_CHARACTERS = 1200
TOTAL_EXCERPT_CHARACTERS = 300_000
"""Over all records: with many of them each excerpt shrinks, so that the page stays small."""
LOG_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A label and a value."""

    label: str
    value: Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The first characters of a file of the bundle."""

    text: str
    path: str
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceEntry:
    """One record."""

    anchor: str
    id: str
    path: str
    kind: str
    tier: Tier
    sha256: Shown
    size: Shown
    recorded_at: Shown
    command: Shown | None
    facts: tuple[Fact, ...]
    excerpt: Excerpt
    log_tail: tuple[Shown, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentView:
    """One machine and its software."""

    facts: tuple[Fact, ...]
    packages: tuple[Fact, ...]


def view_evidence(bundle: Bundle) -> tuple[EvidenceEntry, ...]:
    """An entry for every record, in recorded order."""
    limit = min(EXCERPT_CHARACTERS, TOTAL_EXCERPT_CHARACTERS // max(len(bundle.evidence), 1), HEAD_CHARACTERS)
    return tuple(_view_record(bundle, file, limit) for file in bundle.evidence)


def evidence_anchor(evidence_id: str) -> str:
    """Where the report shows a record."""
    return f"evidence-{evidence_id}"


def view_environments(bundle: Bundle) -> tuple[EnvironmentView, ...]:
    """Every machine that took part."""
    return tuple(
        _view_environment(f.path, f.record)
        for f in bundle.evidence
        if isinstance(f.record, EnvironmentEvidence)
    )


def _view_record(bundle: Bundle, file: EvidenceFile, limit: int) -> EvidenceEntry:
    record, digest = file.record, bundle.contents[file.path]

    def listed(key: str, text: str) -> Shown:
        return Shown(text=text, ref=pointer(MANIFEST_JSON, "files", file.path, key))

    command = shlex.join(record.command)
    text = file.head[:limit]
    log = record.log_tail if isinstance(record, (ArmEvidence, KernelCompilationEvidence)) else ()
    first = max(len(log) - LOG_LINES, 0)
    return EvidenceEntry(
        anchor=evidence_anchor(record.id),
        id=record.id,
        path=file.path,
        kind=record.kind,
        tier=record.tier,
        sha256=listed("sha256", digest.sha256),
        size=listed("size", format_number(digest.size)),
        recorded_at=Shown(text=visible(record.recorded_at), ref=pointer(file.path, "recorded_at")),
        command=Shown(text=visible(command), ref=pointer(file.path, "command")) if command else None,
        facts=tuple(_facts(file)),
        excerpt=Excerpt(
            text=visible(text, multiline=True), path=file.path, is_whole=len(text.encode()) == digest.size
        ),
        log_tail=tuple(
            Shown(text=visible(line), ref=pointer(file.path, "log_tail", first + i))
            for i, line in enumerate(log[first:])
        ),
    )


def _facts(file: EvidenceFile) -> list[Fact]:
    record, shown = file.record, _Facts(file)
    if record.hardware:
        shown.value("hardware", "hardware", record.hardware)
    if record.seed is not None:
        shown.value("seed", "seed", record.seed)
    match record:
        case ChangedFilesEvidence():
            shown.length("changed files", "files", len(record.files))
            shown.value("not judged", "num_not_judged", record.num_not_judged)
        case SubjectEvidence():
            shown.value("commit", "commit", record.commit)
            shown.length("files", "files", len(record.files))
        case ArmEvidence():
            shown.value("arm", "arm", record.arm)
            shown.value("started", "started", record.started)
            if record.ready_s is not None:
                shown.value("ready after (s)", "ready_s", record.ready_s)
            if record.failure:
                shown.value("failure", "failure", record.failure)
            shown.length("subject modules imported", "modules", len(record.modules))
        case LedgerEvidence():
            shown.value("arm", "arm", record.arm)
            shown.length("engine steps", "rows", len(record.rows))
        case SuiteEvidence():
            shown.value("suite", "suite", record.suite)
            shown.value("arm", "arm", record.arm)
            shown.length("items", "items", len(record.items))
            if record.perturbation:
                shown.value("made wrong on purpose", "perturbation", record.perturbation)
                shown.value("results made wrong", "num_perturbed_calls", record.num_perturbed_calls)
        case EvalSetEvidence():
            shown.value("suite", "suite", record.suite)
            shown.value("source", "source", record.source)
            shown.value("grader", "grader", record.grader)
            shown.length("questions", "rows", len(record.rows))
            shown.value("left out", "num_left_out", record.num_left_out)
        case TaskScoresEvidence():
            shown.value("suite", "suite", record.suite)
            shown.value("arm", "arm", record.arm)
            shown.value("scored by", "library", record.library)
            shown.length("scores", "scores", len(record.scores))
        case CoverageEvidence():
            shown.value("arm", "arm", record.arm)
            shown.length("files", "files", len(record.files))
        case TimingEvidence():
            shown.value("cell", "cell", record.cell)
            shown.value("batch", "batch", record.batch)
            shown.length("timed blocks", "blocks", len(record.blocks))
        case KernelCompilationEvidence():
            shown.value("entry point", "entry", record.entry)
            shown.value("architecture", "arch", record.arch)
            shown.length("variants", "variants", len(record.variants))
            if record.failure:
                shown.value("failure", "failure", record.failure)
        case KernelAuditEvidence():
            shown.value("entry point", "entry", record.entry)
            shown.value("architecture", "arch", record.arch)
            shown.length("kernels", "kernels", len(record.kernels))
        case WaitSourceEvidence():
            shown.value("files searched", "num_files", record.num_files)
            shown.length("waits", "statements", len(record.statements))
        case KernelSourcesEvidence():
            shown.value("files searched", "num_files", record.num_files)
            shown.length("files with kernels", "files", len(record.files))
        case PythonEffectsEvidence():
            shown.value("commit", "commit", record.commit)
            shown.length("files read", "files", len(record.files))
            shown.length("reaches outside", "effects", len(record.effects))
        case ProbeEvidence() | HandoverEvidence():
            shown.value("arm", "arm", record.arm)
            shown.length("engine steps", "steps", len(record.steps))
        case DefaultOffEvidence():
            shown.value("side", "side", record.side)
            shown.value("commit", "commit", record.commit)
            shown.length("models served", "snapshots", len(record.snapshots))
        case CapturedPointersEvidence():
            shown.value("arm", "arm", record.arm)
            shown.length("graphs", "graphs", len(record.graphs))
            shown.length("addresses lost", "losses", len(record.losses))
        case SurfaceEvidence():
            shown.value("commit", "commit", record.commit)
            shown.length("settings in code", "code", len(record.code))
            shown.length("places that read the switch", "switch", len(record.switch))
            shown.value("documents read", "num_documents", record.num_documents)
        case HooksEvidence():
            shown.length("hooked files", "files", len(record.files))
            shown.value("compared with", "base", record.base)
        case ImportsEvidence():
            shown.value("files searched", "num_files", record.num_files)
            shown.length("imports of the subject", "inward", len(record.inward))
            shown.length("imports by the subject", "outward", len(record.outward))
        case OwnersEvidence():
            shown.value("file", "path", record.path)
        case GapEvidence():
            shown.value("missing", "what", record.what)
            shown.value("reason", "reason", record.reason)
        case EnvironmentEvidence():
            shown.value("processor", "cpu", record.cpu)
    return shown.facts


class _Facts:
    """Facts of one record, each with its place in the record's file."""

    def __init__(self, file: EvidenceFile) -> None:
        self._path = file.path
        self.facts: list[Fact] = []

    def value(self, label: str, key: str, value: str | float) -> None:
        """A value of the record."""
        if isinstance(value, str):
            text = visible(value)
        elif isinstance(value, bool):
            text = "yes" if value else "no"
        else:
            text = format_number(value)
        self.facts.append(Fact(label=label, value=Shown(text=text, ref=pointer(self._path, key))))

    def length(self, label: str, key: str, value: int) -> None:
        """The length of a list or object of the record."""
        self.facts.append(Fact(label=label, value=Length(value=value, ref=pointer(self._path, key))))


def _view_environment(path: str, record: EnvironmentEvidence) -> EnvironmentView:
    def show(text: str, *parts: str | int) -> Shown:
        return Shown(text=visible(text), ref=pointer(path, *parts))

    facts = [
        Fact(label="processor", value=show(record.cpu, "cpu")),
        Fact(label="cores", value=show(format_number(record.num_cores), "num_cores")),
        Fact(label="memory (GiB)", value=show(format_number(record.memory_gib), "memory_gib")),
        *(Fact(label="GPU", value=show(gpu, "gpus", i)) for i, gpu in enumerate(record.gpus)),
        *(() if record.gpus else (Fact(label="GPU", value="none"),)),
        Fact(label="operating system", value=show(record.os, "os")),
        Fact(label="Python", value=show(record.python, "python")),
        Fact(label="harness source (sha256)", value=show(record.harness_sha256, "harness_sha256")),
    ]
    return EnvironmentView(
        facts=tuple(facts),
        packages=tuple(
            Fact(label=visible(name), value=show(version, "packages", name))
            for name, version in sorted(record.packages.items())
        ),
    )
