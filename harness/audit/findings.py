"""Results as findings, the form that every command of fasttrack prints."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.model.finding import Finding, Location
from harness.model.kernel_audit import AuditedKernel, Decision, KernelResult, UnreadText, WaitStatement
from harness.model.words import Outcome, Principle, Tier

OUTCOMES = {
    Decision.PROVEN: Outcome.PASS,
    Decision.SHOWN: Outcome.FAIL,
    Decision.UNDECIDED: Outcome.INCONCLUSIVE,
    Decision.NOT_APPLICABLE: Outcome.NOT_APPLICABLE,
}
SOURCE_RULE = "PDL005"
"""The rule about source text; all others are about compiled kernels."""
_ADVICE = {
    "PDL001": "Move the read after the wait, or say what the argument is with --role NAME=ROLE.",
    "PDL002": "Trigger after the last store, or declare that dependents wait with --dependents wait.",
    "PDL003": "Let every way to the end execute griddepcontrol.wait, at the latest just before it.",
    "PDL004": "Move the write after the wait.",
    "PDL005": "Give the statement a memory clobber.",
    "SYN001": "Poll with ld.relaxed or ld.acquire at gpu scope, sys when other GPUs write, and test every read.",
    "SYN002": "Count the rounds or look at the clock, and leave with an error.",
    "SYN003": "Store the empty word back after the read, or compare with a tag that changes every round.",
    "SYN004": "Test every element that is used, or read one wide scalar (b64, b128).",
    "SYN010": "Make the count equal to the threads of the roles that come to the barrier.",
    "SYN011": "Initialise the mbarrier with the number of arrivals of one phase.",
}
_MAX_NAME = 80
"""Characters of a kernel's name that a subject shows: names of CuTe DSL hold their argument types."""
_MAX_LISTED = 12


def kernel_findings(kernel: AuditedKernel, evidence: str) -> list[Finding]:
    """A finding for each result on one kernel; `evidence` names what it rests on."""
    return [_finding_of(kernel, result, evidence) for result in kernel.results]


def _finding_of(kernel: AuditedKernel, result: KernelResult, evidence: str) -> Finding:
    message = result.reason
    if result.assumptions:
        message += f" This assumes that {'; that '.join(result.assumptions)}."
    return static_finding(
        result.rule,
        OUTCOMES[result.decision],
        subject_of(kernel),
        message,
        location=_location(kernel.text, result.line),
        evidence=(evidence,),
        details=(*result.path, *(f"assumes: {text}" for text in result.assumptions)),
    )


def _location(text: str, line: int | None) -> Location | None:
    """A place in a file; what was compiled from an entry point lies in none."""
    return None if ":" in text else Location(path=text, line=line)


def subject_of(kernel: AuditedKernel) -> str:
    """The kernel, where it came from, and which of its texts is meant."""
    name = kernel.kernel if len(kernel.kernel) <= _MAX_NAME else f"{kernel.kernel[: _MAX_NAME - 1]}…"
    return f"{name} of {kernel.text} ({kernel.arch}, {kernel.level})"


def static_finding(
    rule: str,
    outcome: Outcome,
    subject: str,
    message: str,
    *,
    advice: str | None = None,
    location: Location | None = None,
    evidence: Sequence[str] = (),
    details: Sequence[str] = (),
) -> Finding:
    """A finding of the audit; advice is the rule's own where something needs doing and none is given."""
    if advice is None:
        advice = _ADVICE.get(rule, "") if outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE) else ""
    return Finding(
        check=rule,
        principle=Principle.CORRECTNESS,
        tier=Tier.STATIC,
        subject=subject,
        outcome=outcome,
        message=message,
        advice=advice,
        location=location,
        evidence=tuple(evidence) if outcome is not Outcome.NOT_APPLICABLE else (),
        details=tuple(details),
    )


def unread_finding(unread: UnreadText, rule: str, evidence: Sequence[str] = ()) -> Finding:
    """A text on which nothing was decided."""
    outcome = Outcome.ERROR if unread.broke else Outcome.NOT_RUN if unread.missing else Outcome.INCONCLUSIVE
    return static_finding(
        rule,
        outcome,
        unread.text,
        unread.reason if outcome is Outcome.NOT_RUN else f"line {unread.line}: {unread.reason}",
        advice="This is a fault of the audit; please report it with the text." if unread.broke else "",
        location=_location(unread.text, unread.line),
        evidence=evidence,
        details=unread.details,
    )


def statement_finding(statement: WaitStatement, evidence: str) -> Finding:
    """What the source lint says of one wait."""
    return static_finding(
        SOURCE_RULE,
        OUTCOMES[statement.decision],
        f"{statement.path}:{statement.line}",
        statement.reason,
        location=Location(path=statement.path, line=statement.line),
        evidence=(evidence,),
        details=(statement.text,),
    )


def group_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that say the same apart from numbers, as one: that of the first subject, with the others listed."""
    groups: dict[tuple[str, Outcome, str], list[Finding]] = {}
    for finding in findings:
        cause = _cause(finding.message)
        groups.setdefault((finding.check, finding.outcome, cause), []).append(finding)
    return [_merged(group) for group in groups.values()]


def _cause(message: str) -> str:
    """The message without numbers, without further places, and without the instruction that an order hangs on."""
    without = re.sub(r" So do lines [\d, ]+\.| \(lines [\d, ]+\)|(?<=another thread's wait): .*", "", message)
    return re.sub(r"#(, #)+", "#", re.sub(r"0x[0-9a-fA-F]+|\d+", "#", without))


def _merged(group: list[Finding]) -> Finding:
    first, others = group[0], group[1:]
    if not others:
        return first
    listed = [f"also {f.subject}" for f in others[:_MAX_LISTED]]
    if len(others) > _MAX_LISTED:
        listed.append(f"and {len(others) - _MAX_LISTED} more")
    return first.model_copy(
        update={
            "subject": f"{first.subject} and {len(others)} more",
            "details": (*first.details, *listed),
            "evidence": tuple(dict.fromkeys(e for f in group for e in f.evidence)),
        }
    )
