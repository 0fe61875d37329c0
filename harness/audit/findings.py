"""Results as findings, the form that every command of fasttrack prints."""

from __future__ import annotations

from harness.audit.decide import AuditResult, Decision
from harness.model.finding import Finding, Location
from harness.model.words import Outcome, Principle, Tier

OUTCOMES = {
    Decision.PROVEN: Outcome.PASS,
    Decision.SHOWN: Outcome.FAIL,
    Decision.UNDECIDED: Outcome.INCONCLUSIVE,
    Decision.NOT_APPLICABLE: Outcome.NOT_APPLICABLE,
}
_ADVICE = {
    "PDL001": "Move the read after the wait, or say what the argument is with --role NAME=ROLE.",
    "PDL002": "Trigger after the last store, or declare that dependents wait with --dependents wait.",
    "PDL003": "Let every way to the end execute griddepcontrol.wait, at the latest just before it.",
    "PDL004": "Move the write after the wait.",
    "SYN001": "Poll with ld.relaxed or ld.acquire at gpu scope, sys when other GPUs write, and test every read.",
    "SYN002": "Count the rounds or look at the clock, and leave with an error.",
    "SYN003": "Store the empty word back after the read, or compare with a tag that changes every round.",
    "SYN004": "Test every element that is used, or read one wide scalar (b64, b128).",
    "SYN010": "Make the count equal to the threads of the roles that come to the barrier.",
    "SYN011": "Initialise the mbarrier with the number of arrivals of one phase.",
}


def finding_of(result: AuditResult, evidence: str) -> Finding:
    """The finding of one result; `evidence` names the audited text."""
    outcome = OUTCOMES[result.decision]
    details = [str(site) for site in result.sites]
    details += [f"assumes: {text}" for text in result.assumptions]
    message = result.reason
    if result.assumptions:
        message += f" This assumes that {'; that '.join(result.assumptions)}."
    line = result.sites[-1].line if result.sites else None
    where = next((s.line for s in result.sites if s.note.startswith(("reads", "writes", "prefetches"))), line)
    return Finding(
        check=result.rule,
        principle=Principle.CORRECTNESS,
        tier=Tier.STATIC,
        subject=f"{result.kernel} ({result.arch}, {result.level})",
        outcome=outcome,
        message=message,
        advice=_ADVICE.get(result.rule, "") if outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE) else "",
        location=Location(path=result.source_file, line=where) if result.source_file else None,
        evidence=(evidence,) if outcome is not Outcome.NOT_APPLICABLE else (),
        details=tuple(details),
    )


def unreadable_finding(path: str, line: int, reason: str) -> Finding:
    """A file that gave no kernel: nothing was decided about it."""
    return Finding(
        check="PDL001",
        principle=Principle.CORRECTNESS,
        tier=Tier.STATIC,
        subject=path,
        outcome=Outcome.INCONCLUSIVE,
        message=f"line {line}: {reason}",
        location=Location(path=path, line=line),
    )
