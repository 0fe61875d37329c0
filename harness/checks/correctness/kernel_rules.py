"""PDL001..PDL004, SYN001..SYN011: one check for each rule of the synchronisation audit, over recorded results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.audit.entry_findings import entry_findings, idle_findings, missing_findings
from harness.audit.findings import group_findings
from harness.audit.rules import RULES, Rule
from harness.checks.joins.kernel_sources import undeclared_kernels, unseen_kernels
from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.ruling import finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import KernelAuditEvidence, KernelCompilationEvidence
from harness.model.finding import Finding
from harness.model.words import Outcome, Principle, Tier


class KernelRule(BaseCheck):
    """One rule holds for every kernel that the manifest's entry points compile, in PTX and in machine code."""

    principle = Principle.CORRECTNESS
    tier = Tier.STATIC

    def __init__(self, rule: Rule) -> None:
        self.id = rule.id
        self.title = rule.claim
        self.how = rule.how

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """Every entry point for every architecture that the manifest asks for."""
        requests = context.manifest.kernels.requests()
        if not requests:
            return [finding_of(self, "kernels", *undeclared_kernels(context))]
        compilations = {(r.entry, r.arch): r for r in context.evidence.of(KernelCompilationEvidence)}
        audits = {(r.entry, r.arch): r for r in context.evidence.of(KernelAuditEvidence)}
        found: list[Finding] = []
        for request in requests:
            compilation, audit = compilations.get(request), audits.get(request)
            if compilation is None or audit is None:
                found.append(self._not_collected(context, *request))
                continue
            found += missing_findings(self.id, compilation, audit)
            found += idle_findings(self.id, context.manifest.kernels, compilation)
            found += self._foreign(compilation)
            found += self._decided(audit)
        unseen = unseen_kernels(context)
        found += [] if unseen is None else [finding_of(self, "kernel sources", *unseen)]
        return group_findings(found)

    def _not_collected(self, context: CheckContext, entry: str, arch: str) -> Finding:
        name = f"{entry} ({arch})"
        ruling = missing_ruling(
            context.evidence, self.tier, f"{name}, compiled", "kernels", f"kernels {name}"
        )
        return self.finding(
            ruling.outcome, name, ruling.message, advice=ruling.advice, details=ruling.details
        )

    def _foreign(self, compilation: KernelCompilationEvidence) -> Iterator[Finding]:
        """An entry point that used nothing of the change compiled other kernels than the change's."""
        if compilation.subject_files or compilation.failure:
            return
        name = f"{compilation.entry} ({compilation.arch})"
        message = "It imported no file of the judged commit: whose kernels it compiled is not known."
        advice = (
            "Import the change's own package in the entry point, or put the entry point into the repository."
        )
        yield self.finding(Outcome.INCONCLUSIVE, name, message, advice=advice, evidence=(compilation.id,))

    def _decided(self, audit: KernelAuditEvidence) -> Iterator[Finding]:
        """What is open or out of order kernel by kernel; what is in order in one finding."""
        found = entry_findings(self.id, audit)
        yield from (f for f in found if not f.outcome.lets_through)
        for outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE):
            same = [f for f in found if f.outcome is outcome]
            if same:
                yield self._summary(audit, outcome, same)

    def _summary(self, audit: KernelAuditEvidence, outcome: Outcome, same: Sequence[Finding]) -> Finding:
        kernels = {f.subject for f in same}
        says = "are in order" if outcome is Outcome.PASS else "are not concerned"
        details = sorted({d for f in same for d in f.details if d.startswith("assumes: ")})
        name = f"{audit.entry} ({audit.arch})"
        return self.finding(
            outcome,
            name,
            f"{name}: {len(kernels)} of {len(audit.kernels)} kernels, each level counted, {says}.",
            evidence=(audit.id,) if outcome is Outcome.PASS else (),
            details=details,
        )


def kernel_rule_checks() -> tuple[KernelRule, ...]:
    """A check for each rule about compiled kernels."""
    return tuple(KernelRule(rule) for rule in RULES)
