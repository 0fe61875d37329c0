"""What each record of a bundle is called by people: the cell of the evidence that it fills."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bundles.contents import Bundle
from bundles.error import BundleError
from harness.model.evidence import (
    AnyEvidence,
    ArmEvidence,
    CapturedPointersEvidence,
    CoverageEvidence,
    DefaultOffEvidence,
    EvalSetEvidence,
    GapEvidence,
    HandoverEvidence,
    KernelAuditEvidence,
    KernelCompilationEvidence,
    LedgerEvidence,
    ProbeEvidence,
    SuiteEvidence,
    TaskScoresEvidence,
    TimingEvidence,
)


def name_of(record: AnyEvidence) -> str:
    """Kind and what tells the record from others of its kind, as `suite/greedy/candidate`."""
    match record:
        case SuiteEvidence() | TaskScoresEvidence():
            parts = [record.suite, record.arm]
        case TimingEvidence():
            parts = [record.cell, "-".join(record.compares)]
        case KernelCompilationEvidence() | KernelAuditEvidence():
            parts = [record.entry, record.arch]
        case (
            ProbeEvidence()
            | HandoverEvidence()
            | ArmEvidence()
            | LedgerEvidence()
            | CoverageEvidence()
            | CapturedPointersEvidence()
        ):
            parts = [record.arm]
        case DefaultOffEvidence():
            parts = [record.side]
        case EvalSetEvidence():
            parts = [record.suite]
        case GapEvidence():
            parts = [record.what]
        case _:
            parts = []
    return re.sub(r"[^\w./-]+", "-", "/".join([record.kind, *parts]))


def name_cells(records: Sequence[AnyEvidence]) -> dict[str, AnyEvidence]:
    """Every record by its name, in recorded order; of records with one name the later ones are numbered."""
    return dict(zip(numbered(map(name_of, records)), records, strict=True))


def numbered(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each once: what is called as an earlier one gets a number."""
    found: dict[str, None] = {}
    for name in names:
        once, number = name, 1
        while once in found:
            number += 1
            once = f"{name}#{number}"
        found[once] = None
    return tuple(found)


def find_cells(bundle: Bundle, wanted: str) -> dict[str, AnyEvidence]:
    """The cells that a name, an evidence id or a check's id stands for; of a check, what its findings rest on.

    Raises:
        BundleError: it stands for none; the message names the nearest.
    """
    cells = name_cells(bundle.records)
    ids = {i for finding in bundle.judgement.findings if finding.check == wanted for i in finding.evidence}
    found = {name: r for name, r in cells.items() if wanted in (name, r.id) or r.id in ids}
    if not found:
        near = [name for name in cells if wanted in name] or list(cells)
        shown = ", ".join(near[:12]) + (", ..." if len(near) > 12 else "")
        raise BundleError("no-such-cell", "", f"the bundle has no cell {wanted!r}.", f"It has {shown}.")
    return found
