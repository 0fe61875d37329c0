"""What a rule is, and what every rule's results have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of
from harness.audit.model import Model


class Rule(Protocol):
    """One claim about every kernel."""

    id: str
    claim: str
    how: str

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """At least one result."""
        ...


def not_dependent(rule: str, model: Model) -> AuditResult:
    """The result for a kernel that starts after the grids before it have completed."""
    has = model.kernel.uses_dependent_launch
    reason = (
        "Declared as launched without programmatic dependent launch: the grids before it have completed."
        if has
        else "The kernel neither waits nor triggers, and nothing says that it is launched with the attribute."
    )
    return result_of(rule, model.kernel, Decision.NOT_APPLICABLE, reason)


def decide_all(rules: Sequence[Rule], analysis: Analysis) -> list[AuditResult]:
    """The results of all rules on one kernel.

    A text that could not be read in full never passes: what would be proven becomes undecided, with the line. When
    nothing that was read can be trusted, faults become undecided too.
    """
    model = analysis.model
    found: list[AuditResult] = []
    spoilt = next((p for p in model.kernel.problems if p.spoils_all), None)
    for rule in rules:
        if spoilt is not None:
            reason = f"line {spoilt.line}: {spoilt.reason}: {spoilt.text}"
            found.append(result_of(rule.id, model.kernel, Decision.UNDECIDED, reason))
            continue
        results = list(rule.decide(analysis))
        if model.unreadable:
            harmless = (Decision.PROVEN, Decision.NOT_APPLICABLE)
            results = [r for r in results if r.decision not in harmless] or [
                result_of(rule.id, model.kernel, Decision.UNDECIDED, f"Not all was read: {model.unreadable}")
            ]
        found += results
    return found
