"""The few facts that tell what one evidence record is."""

from __future__ import annotations

from dataclasses import dataclass

from bundles.contents import EvidenceFile
from harness.model.evidence import (
    AnyEvidence,
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
    KernelTestsEvidence,
    LedgerEvidence,
    OwnersEvidence,
    OwnTestsEvidence,
    ProbeEvidence,
    PythonEffectsEvidence,
    SourceEvidence,
    SubjectEvidence,
    SuiteEvidence,
    SurfaceEvidence,
    SweepEvidence,
    TaskScoresEvidence,
    TimingEvidence,
    WaitSourceEvidence,
)
from reports.shown import Length, Piece, Shown, format_number, pointer, visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A label and a value."""

    label: Piece
    value: Piece


FACTS: dict[type[AnyEvidence], dict[str, str]] = {
    ChangedFilesEvidence: {"files": "changed files", "num_not_judged": "not judged"},
    SubjectEvidence: {"commit": "commit", "files": "files"},
    ArmEvidence: {
        "arm": "arm",
        "started": "started",
        "ready_s": "ready after (s)",
        "failure": "failure",
        "modules": "subject modules imported",
    },
    LedgerEvidence: {"arm": "arm", "rows": "engine steps"},
    SuiteEvidence: {
        "suite": "suite",
        "arm": "arm",
        "items": "items",
        "perturbation": "made wrong on purpose",
    },
    EvalSetEvidence: {
        "suite": "suite",
        "source": "source",
        "grader": "grader",
        "rows": "questions",
        "num_left_out": "left out",
    },
    TaskScoresEvidence: {"suite": "suite", "arm": "arm", "library": "scored by", "scores": "scores"},
    CoverageEvidence: {"arm": "arm", "files": "files"},
    TimingEvidence: {"cell": "cell", "batch": "batch", "blocks": "timed blocks"},
    KernelCompilationEvidence: {
        "entry": "entry point",
        "arch": "architecture",
        "variants": "variants",
        "failure": "failure",
    },
    KernelAuditEvidence: {"entry": "entry point", "arch": "architecture", "kernels": "kernels"},
    WaitSourceEvidence: {"num_files": "files searched", "statements": "waits"},
    KernelSourcesEvidence: {"num_files": "files searched", "files": "files with kernels"},
    PythonEffectsEvidence: {"commit": "commit", "files": "files read", "effects": "reaches outside"},
    ProbeEvidence: {"arm": "arm", "steps": "engine steps"},
    HandoverEvidence: {"arm": "arm", "steps": "engine steps"},
    DefaultOffEvidence: {"side": "side", "commit": "commit", "snapshots": "models served"},
    CapturedPointersEvidence: {"arm": "arm", "graphs": "graphs", "losses": "addresses lost"},
    SurfaceEvidence: {
        "commit": "commit",
        "code": "settings in code",
        "switch": "places that read the switch",
        "num_documents": "documents read",
    },
    HooksEvidence: {"files": "hooked files", "base": "compared with"},
    ImportsEvidence: {
        "num_files": "files searched",
        "inward": "imports of the subject",
        "outward": "imports by the subject",
    },
    OwnersEvidence: {"path": "file"},
    OwnTestsEvidence: {"commit": "commit", "files": "test files", "tests": "tests"},
    SweepEvidence: {"subject": "commit", "cells": "cells", "num_blocks": "blocks a cell"},
    KernelTestsEvidence: {"commit": "commit", "files": "sources of the run that the head has"},
    SourceEvidence: {
        "content_sha256": "bundle",
        "signers": "signed by keys",
        "evidence": "records taken over",
    },
    GapEvidence: {"what": "missing", "reason": "reason"},
    EnvironmentEvidence: {"cpu": "processor"},
}
"""By kind of record: which fields are shown, and under what words. Of a list or object its length is."""
OF_ALL = {"hardware": "hardware", "seed": "seed"}


def view_facts(file: EvidenceFile) -> tuple[Fact, ...]:
    """What is known of the record; an empty text and a number that it lacks are left out."""
    fields = OF_ALL | FACTS.get(type(file.record), {})
    return tuple(
        Fact(label=label, value=_show(getattr(file.record, key), pointer(file.path, key)))
        for key, label in fields.items()
        if getattr(file.record, key) not in (None, "")
    )


def _show(value: object, ref: str) -> Piece:
    match value:
        case bool():
            return Shown(text="yes" if value else "no", ref=ref)
        case str():
            return Shown(text=visible(value), ref=ref)
        case int() | float():
            return Shown(text=format_number(value), ref=ref)
        case tuple() | dict():
            return Length(value=len(value), ref=ref)
        case _:
            raise TypeError(f"{ref}: a fact of type {type(value).__name__}")
