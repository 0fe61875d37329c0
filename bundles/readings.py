"""What records say of the commits: each of those that the bundle is about, and each told once."""

from __future__ import annotations

from collections.abc import Sequence

from bundles.error import BundleError
from harness.model.change import Change
from harness.model.evidence import (
    AnyEvidence,
    ChangedFilesEvidence,
    DefaultOffEvidence,
    HooksEvidence,
    ImportsEvidence,
    KernelAuditEvidence,
    KernelCompilationEvidence,
    KernelSourcesEvidence,
    OwnersEvidence,
    PythonEffectsEvidence,
    SurfaceEvidence,
    WaitSourceEvidence,
)
from harness.model.record import digest_of
from harness.model.words import Tier

OF_THE_COMMITS = (
    ChangedFilesEvidence,
    HooksEvidence,
    ImportsEvidence,
    OwnersEvidence,
    KernelSourcesEvidence,
    PythonEffectsEvidence,
    SurfaceEvidence,
    KernelCompilationEvidence,
    KernelAuditEvidence,
    WaitSourceEvidence,
)
"""Kinds that follow from the commits, the engine's files and the compilers: two of one kind say the same."""
ABOUT_THE_MAKING = frozenset({"recorded_at", "hardware", "command", "seed"})
"""Fields of every record that say when, on what and how it was made, not what was found."""


def check_readings(records: Sequence[AnyEvidence], change: Change) -> None:
    """Nothing, when every record is of the commits of `change` and no two say different things of one of them.

    Raises:
        BundleError: with the first record that is of another commit, of another tier than its kind can be, or that
            contradicts an earlier one.
    """
    found: dict[tuple[str, ...], AnyEvidence] = {}
    for record in records:
        _check_commits(record, change)
        if not isinstance(record, OF_THE_COMMITS):
            continue
        if record.tier is not Tier.STATIC:
            message = f"{record.kind} follows from the commits; it is no evidence of the {record.tier} tier."
            raise BundleError("bundle-other-tier", f"evidence {record.id}", message)
        cell = _cell_of(record)
        earlier = found.setdefault(cell, record)
        if earlier is not record and content_of(earlier) != content_of(record):
            message = f"it holds two records of {' '.join(cell)} that say different things."
            advice = "The change has one: make the bundle again."
            raise BundleError("bundle-record-twice", f"evidence {record.id}", message, advice)


def content_of(record: AnyEvidence) -> str:
    """A digest over what was found, whenever, wherever and however."""
    return digest_of(record.model_dump(mode="json", exclude=set(ABOUT_THE_MAKING)))


def _cell_of(record: AnyEvidence) -> tuple[str, ...]:
    if isinstance(record, KernelCompilationEvidence | KernelAuditEvidence):
        return record.kind, record.entry, record.arch
    return (record.kind,)


def _check_commits(record: AnyEvidence, change: Change) -> None:
    is_of_base = isinstance(record, DefaultOffEvidence) and record.side == "base"
    wanted = {"commit": change.merge_base if is_of_base else change.head, "base": change.merge_base}
    for field, commit in wanted.items():
        if field in type(record).model_fields and (said := getattr(record, field)) != commit:
            message = (
                f"its {record.kind} is of {field} {said[:12]}; that of the bundle's change is {commit[:12]}."
            )
            raise BundleError("bundle-other-commit", f"evidence {record.id}#/{field}", message)
