"""What a rule is, and what every rule's results have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of, site_of
from harness.audit.model import Model
from harness.audit.program import Kind
from harness.model.kernels import Launch


class Rule(Protocol):
    """One claim about every kernel."""

    id: str
    claim: str
    how: str

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """At least one result."""
        ...


def not_dependent(rule: str, model: Model) -> AuditResult:
    """The result for a kernel that starts after the grids before it have completed, as far as is known."""
    called = next((i for i in model.unknown_instructions if i.kind is Kind.CALL), None)
    if called is not None and model.options.launch is Launch.UNKNOWN:
        reason = (
            f"Line {called.line} calls what may wait or trigger, and nothing says how the kernel is launched: "
            f"{called.text}"
        )
        return result_of(rule, model.kernel, Decision.UNDECIDED, reason, sites=(site_of(called),))
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
