"""Kernels that the change brings beside those that its manifest has compiled: what the audit did not see."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.ruling import Ruling
from harness.model.check import CheckContext
from harness.model.evidence import KernelCompilationEvidence, KernelSourcesEvidence
from harness.model.finding import Location
from harness.model.kernel_audit import KernelSource
from harness.model.words import Outcome, Tier

_LINE = re.compile(r"\bline (\d+)")
_NAMED = 3
"""Files that a message names; the details name all."""


def undeclared_kernels(context: CheckContext) -> tuple[Ruling, tuple[str, ...]]:
    """What follows for a change without entry points in `[kernels]`, and the evidence for it."""
    record, gpus = _record(context), context.manifest.at(Tier.GPU).scope.nvidia_platforms
    if record is None and gpus:
        return missing_ruling(context.evidence, Tier.STATIC, "the change's kernel sources"), ()
    none = "The manifest declares no kernel under [kernels]"
    if record is None or not gpus:
        files = () if record is None else record.files
        brought = f" {_count(files)}: {_some(files)}." if files else ""
        message = f"{none}, and {context.manifest.at(Tier.GPU).scope.why_no_nvidia_gpu}.{brought}"
        return Ruling(outcome=Outcome.NOT_APPLICABLE, message=message, details=_lines(files)), ()
    if record.files:
        ruling = Ruling(
            outcome=Outcome.NOT_RUN,
            message=f"{none}, so none was compiled. {_count(record.files)}: {_some(record.files)}.",
            advice="Name entry points that compile them under [kernels]; docs/manifest.md describes these.",
            details=_lines(record.files),
            location=_place(record.files),
        )
    elif record.unreadable:
        path, _, problem = record.unreadable[0].partition(": ")
        ruling = Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"{none}, and whether {path} makes kernels cannot be told: {problem}.",
            advice="Commit a file that parses.",
            details=record.unreadable,
            location=Location(path=path, line=int(line[1]) if (line := _LINE.search(problem)) else 1),
        )
    else:
        message = f"{none}, and none of {record.num_files} files of the change makes one."
        ruling = Ruling(outcome=Outcome.NOT_APPLICABLE, message=message)
    return ruling, (record.id,)


def unseen_kernels(context: CheckContext) -> tuple[Ruling, tuple[str, ...]] | None:
    """What follows from kernel sources that no entry point imported; None when nothing does."""
    record, gpus = _record(context), context.manifest.at(Tier.GPU).scope.nvidia_platforms
    if record is None:
        ruling = missing_ruling(context.evidence, Tier.STATIC, "the change's kernel sources")
        return (ruling, ()) if gpus else None
    seen = {p for c in context.evidence.of(KernelCompilationEvidence) for p in c.subject_files}
    unseen = tuple(f for f in record.files if f.path not in seen)
    if not unseen:
        return None
    message = f"No entry point of [kernels] imported them. {_count(unseen)}: {_some(unseen)}."
    outcome, advice = Outcome.INCONCLUSIVE, "Add entry points that compile them."
    if not gpus:
        outcome, advice = Outcome.NOT_APPLICABLE, ""
        message = f"{message} But {context.manifest.at(Tier.GPU).scope.why_no_nvidia_gpu}."
    ruling = Ruling(
        outcome=outcome, message=message, advice=advice, details=_lines(unseen), location=_place(unseen)
    )
    return ruling, (record.id,)


def untested_kernels(context: CheckContext, imported: Set[str]) -> Ruling | None:
    """What follows from kernel sources in Python that no process of the tests imported; None when nothing does."""
    record = _record(context)
    if record is None:
        return missing_ruling(context.evidence, Tier.STATIC, "the change's kernel sources")
    untested = tuple(f for f in record.files if f.path.endswith(".py") and f.path not in imported)
    if not untested:
        return None
    return Ruling(
        outcome=Outcome.NOT_RUN,
        message=f"No record's tests imported them. {_count(untested)}: {_some(untested)}.",
        advice="Run the tests that launch them, at the head commit.",
        details=_lines(untested),
        location=_place(untested),
    )


def _record(context: CheckContext) -> KernelSourcesEvidence | None:
    """The latest record of the judged commit."""
    records = context.evidence.of(KernelSourcesEvidence)
    return next((r for r in reversed(records) if r.commit == context.change.head), None)


def _count(files: Sequence[KernelSource]) -> str:
    return "1 file of the change makes kernels" if len(files) == 1 else f"{len(files)} files make kernels"


def _some(files: Sequence[KernelSource]) -> str:
    named = ", ".join(f"{f.path} ({f.form})" for f in files[:_NAMED])
    return named + (f" and {len(files) - _NAMED} more" if len(files) > _NAMED else "")


def _place(files: Sequence[KernelSource]) -> Location:
    """Where the first file makes a kernel; its first line where the file as a whole is one."""
    return Location(path=files[0].path, line=files[0].lines[0] if files[0].lines else 1)


def _lines(files: Sequence[KernelSource]) -> tuple[str, ...]:
    return tuple(f.path + (f":{f.lines[0]}" if f.lines else "") + f": {f.form}" for f in files)
