"""What the gate says, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from bundles.contents import Bundle
from bundles.waiver import RuledWaiver
from harness.app.trust import Part, TierTrust
from harness.app.validate import Question
from harness.model.evidence import AnyEvidence
from harness.model.finding import Finding
from harness.model.judgement import Judgement
from harness.model.words import ExitCode, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The evidence that the gate judged, of replicates that of the worst, and what it came to."""

    question: Question
    records: tuple[AnyEvidence, ...]
    judgement: Judgement
    first: Bundle
    """The bundle that the judgement is about as far as it is about one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What the gate says."""

    verdict: Verdict
    code: ExitCode
    terms: Question
    """Of which change, under which policy."""
    lines: tuple[str, ...]
    """Why, a reason a line."""
    findings: tuple[Finding, ...]
    waivers: tuple[RuledWaiver, ...] = ()
    parts: tuple[Part, ...] = ()
    """The bundles that are whole and about this change."""
    refused: tuple[str, ...] = ()
    """The names of the others."""
    trust: tuple[TierTrust, ...] = ()
    """By tier of which there is evidence; nothing where a bundle was refused."""
    judged: Judged | None = None
    """None where a bundle was refused."""

    @property
    def about(self) -> str:
        """Of which change, in words."""
        return f"change: {self.terms.change.merge_base[:12]}..{self.terms.change.head[:12]}"

    @property
    def text(self) -> str:
        """The answer on a terminal."""
        return "\n".join([f"gate: {self.verdict}", self.about, *self.lines])
