"""Records evidence the moment it is made, with the tier, time, hardware and seed that it was made with."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from harness.model.errors import EngineError
from harness.model.evidence import AnyEvidence, EvidenceSet, GapEvidence, evidence_set
from harness.model.words import Tier


class EvidenceSink(Protocol):
    """Where records go; `bundles.writer.EvidenceStore` in the product."""

    def add(self, record: AnyEvidence) -> str:
        """Keeps the record durably and returns its id."""
        ...


def utc_now() -> str:
    """The time as evidence writes it: UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Progress:
    """Lines on stderr that say what is being done and for how long; never silent for a whole stage."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._start = time.monotonic()
        self._quiet = quiet
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """One line, with the seconds since the start."""
        if not self._quiet:
            with self._lock:
                # One write a line: other processes may say something at the same time.
                print(
                    f"[{time.monotonic() - self._start:5.0f} s] {text}\n", end="", file=sys.stderr, flush=True
                )


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The evidence of one run, kept in order; safe to use from several threads."""

    sink: EvidenceSink
    progress: Progress
    hardware: str = ""
    scrub: Callable[[AnyEvidence], AnyEvidence] = field(default=lambda record: record)
    """Takes out of a record what names this machine or its user."""
    records: list[AnyEvidence] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, evidence: AnyEvidence) -> AnyEvidence:
        """Keeps one record, scrubbed, and returns it as it was kept."""
        evidence = self.scrub(evidence)
        with self._lock:
            self.sink.add(evidence)
            self.records.append(evidence)
        return evidence

    def gap(self, tier: Tier, what: str, reason: str, *, broke: bool, details: Sequence[str] = ()) -> None:
        """Records that something was not collected."""
        self.progress.say(f"not collected: {what}: {reason}")
        self.record(
            GapEvidence(
                tier=tier,
                recorded_at=utc_now(),
                hardware=self.hardware,
                what=what,
                broke=broke,
                reason=reason,
                details=tuple(details),
            )
        )

    def broken(self, tier: Tier, what: str, error: EngineError) -> None:
        """Records that an engine's failure kept something from being collected, with the last lines of its log."""
        self.gap(tier, what, error.message, broke=True, details=error.log_tail.splitlines())

    @property
    def evidence(self) -> EvidenceSet:
        """All records so far."""
        with self._lock:
            return evidence_set(self.records)
