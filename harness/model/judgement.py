"""The judgement: findings and the verdict that the policy draws from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from harness.model.change import Change
from harness.model.finding import Finding
from harness.model.policy import Policy
from harness.model.record import Record, digest_of
from harness.model.words import ExitCode, Outcome, Tier, Verdict

_WORST_FIRST = (
    Outcome.FAIL,
    Outcome.ERROR,
    Outcome.INCONCLUSIVE,
    Outcome.NOT_RUN,
    Outcome.PASS,
    Outcome.NOT_APPLICABLE,
)


class CheckSummary(Record):
    """One check's outcome: the worst of its findings."""

    check: str
    title: str
    principle: str
    tier: Tier
    required: bool
    outcome: Outcome
    num_findings: int


class Judgement(Record):
    """Everything decided about a change. Holds no clock time: deciding twice gives the same bytes."""

    schema_version: Literal[1] = 1
    verdict: Verdict
    reason: str
    change: Change
    manifest_sha256: str
    policy_sha256: str
    policy_version: str
    harness_version: str
    checks: tuple[CheckSummary, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> ExitCode:
        """0 admit, 1 reject, 3 undecided, 4 when what keeps it undecided is a failure of the harness."""
        if self.verdict is Verdict.ADMIT:
            return ExitCode.ADMIT
        if self.verdict is Verdict.REJECT:
            return ExitCode.REJECT
        broken = any(c.required and c.outcome is Outcome.ERROR for c in self.checks)
        return ExitCode.HARNESS if broken else ExitCode.UNDECIDED


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome that stands for several; none at all is `error`."""
    return min(outcomes, key=_WORST_FIRST.index, default=Outcome.ERROR)


def decide_verdict(summaries: Sequence[CheckSummary]) -> tuple[Verdict, str]:
    """The verdict over the required checks and one sentence why.

    A required check that fails rejects; otherwise one that does not let through leaves it undecided.
    No required check at all is undecided, never admit.
    """
    required = [s for s in summaries if s.required]
    failed = [s for s in required if s.outcome is Outcome.FAIL]
    open_checks = [s for s in required if not s.outcome.lets_through]
    if failed:
        names = ", ".join(s.check for s in failed)
        return Verdict.REJECT, f"{len(failed)} of {len(required)} required checks failed: {names}."
    if not required:
        return Verdict.UNDECIDED, "The policy requires no check, so nothing is shown."
    if open_checks:
        parts = []
        for outcome in (Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_RUN):
            group = [s for s in open_checks if s.outcome is outcome]
            if group:
                names = ", ".join(f"{s.check} ({s.tier} tier)" for s in group)
                parts.append(f"{len(group)} {_PHRASES[outcome]}: {names}")
        return Verdict.UNDECIDED, f"Of {len(required)} required checks, " + "; ".join(parts) + "."
    return Verdict.ADMIT, f"All {len(required)} required checks let the change through."


_PHRASES = {
    Outcome.ERROR: "ended in a harness error",
    Outcome.INCONCLUSIVE: "inconclusive",
    Outcome.NOT_RUN: "not run",
}


def policy_digest(policy: Policy) -> str:
    """The digest that names a policy in verdicts and bundles."""
    return digest_of(policy)
