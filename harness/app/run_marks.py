"""What a run leaves in evidence that no second run repeats: nonces, request ids, clock readings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.model.evaluation import SuiteItem
from harness.model.evidence import (
    AnyEvidence,
    ArmEvidence,
    CapturedPointersEvidence,
    HandoverEvidence,
    LedgerEvidence,
    ProbeEvidence,
    SuiteEvidence,
    TimingEvidence,
)

Mark = tuple[str, str]
"""What it is, and its value."""
_NUM_TIMES = 4
"""Different arrival times of one answer, in full precision, that two runs do not share by chance."""


def marks_of(records: Iterable[AnyEvidence]) -> frozenset[Mark]:
    """The marks of all runs behind the records, whatever the records are called and whenever they say they were made.

    Records that come out the same when they are made again, as digests of sources, questions and coverage do, have
    none: they show no run.
    """
    return frozenset(mark for record in records for mark in _of_record(record))


def _of_record(record: AnyEvidence) -> Iterator[Mark]:
    match record:
        case ArmEvidence():
            yield from _of_process(record)
        case ProbeEvidence() | CapturedPointersEvidence():
            yield from _of_process(record.process)
        case HandoverEvidence():
            yield from _of_process(record.twin)
        case LedgerEvidence():
            for row in record.rows:
                yield "step", f"{row.started_ns}/{row.duration_ns}"
        case SuiteEvidence():
            yield from _of_items(record.items)
        case TimingEvidence():
            for _, _, items in record.visits:
                yield from _of_items(items)


def _of_process(process: ArmEvidence) -> Iterator[Mark]:
    if process.proof is not None and process.proof.nonce:
        yield "nonce", process.proof.nonce


def _of_items(items: Iterable[SuiteItem]) -> Iterator[Mark]:
    for item in items:
        yield "request id", item.request_id
        if len(set(item.token_times_ms)) >= _NUM_TIMES:
            yield "arrival times", repr(item.token_times_ms)
