"""PDL005: the compiler knows that the wait orders memory."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.findings import group_findings, statement_finding
from harness.checks.joins.kernel_sources import undeclared_kernels, unseen_kernels
from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.ruling import finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import WaitSourceEvidence
from harness.model.finding import Finding
from harness.model.words import Outcome, Principle, Tier


class WaitClobbersMemory(BaseCheck):
    """Every inline-assembly wait in the sources that entry points import tells the compiler that it orders memory."""

    id = "PDL005"
    title = "Every griddepcontrol.wait in inline assembly tells the compiler that it orders memory"
    principle = Principle.CORRECTNESS
    tier = Tier.STATIC
    how = (
        "Reads every source file that the entry points imported, the DSL's included, and looks at the clobbers of "
        "each inline-assembly wait and at plain loads near it."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding for each wait, those that say the same together."""
        if not context.manifest.kernels.entries:
            return [finding_of(self, "kernels", *undeclared_kernels(context))]
        unseen = unseen_kernels(context)
        open_sources = [] if unseen is None else [finding_of(self, "kernel sources", *unseen)]
        return [*self._waits(context), *open_sources]

    def _waits(self, context: CheckContext) -> Sequence[Finding]:
        records = context.evidence.of(WaitSourceEvidence)
        if not records or not records[-1].num_files:
            ruling = missing_ruling(context.evidence, self.tier, "the sources of the kernels", "kernels")
            return [finding_of(self, "sources", ruling)]
        record = records[-1]
        if not record.statements:
            message = f"None of {record.num_files} imported source files has a wait in inline assembly."
            return [self.finding(Outcome.NOT_APPLICABLE, "sources", message)]
        return group_findings([statement_finding(s, record.id) for s in record.statements])
