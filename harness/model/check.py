"""What a check is: a pure function from evidence to findings, with a name and a price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from harness.model.change import Change
from harness.model.evidence import EvidenceSet
from harness.model.finding import Finding, ItemScores, Location, Measurement
from harness.model.manifest import Manifest
from harness.model.policy import Policy
from harness.model.words import Outcome, Principle, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """All that a check may look at."""

    change: Change
    manifest: Manifest
    policy: Policy
    evidence: EvidenceSet

    def at(self, tier: Tier) -> CheckContext:
        """The same for a check of a tier, which sees the manifest as the tier takes it."""
        return replace(self, manifest=self.manifest.at(tier))


class Check(Protocol):
    """One testable claim. `run` is pure and returns at least one finding."""

    id: str
    title: str
    """The claim, as a sentence."""
    principle: Principle
    tier: Tier
    how: str
    """How it decides, in one line, as the report prints it."""

    @property
    def requires(self) -> tuple[str, ...]:
        """Ids of checks that must let through before this one means anything."""
        ...

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Decide from the evidence."""
        ...


class BaseCheck:
    """Convenience for checks of this repository: builds findings with the check's own id."""

    id: str
    title: str
    principle: Principle
    tier: Tier
    requires: tuple[str, ...] = ()
    how: str

    def finding(
        self,
        outcome: Outcome,
        subject: str,
        message: str,
        *,
        advice: str = "",
        location: Location | None = None,
        evidence: Sequence[str] = (),
        measurements: Sequence[Measurement] = (),
        items: Sequence[ItemScores] = (),
        details: Sequence[str] = (),
    ) -> Finding:
        """A finding of this check."""
        return Finding(
            check=self.id,
            principle=self.principle,
            tier=self.tier,
            subject=subject,
            outcome=outcome,
            message=message,
            advice=advice,
            location=location,
            evidence=tuple(evidence),
            measurements=tuple(measurements),
            items=tuple(items),
            details=tuple(details),
        )
