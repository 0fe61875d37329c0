"""PDL003: the kernel does not complete before the grids before it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of
from harness.audit.program import Kind
from harness.audit.rules.base import not_dependent
from harness.audit.unwaited import Finding, Verdict
from harness.audit.walk import EXIT
from harness.audit.witness import sites_of


class WaitBeforeExit:
    """Completion stays transitive along the chain."""

    id = "PDL003"
    claim = "Every way through a kernel of a dependent-launch chain waits before it ends: completion is transitive"
    how = (
        "Walks all ways that have not waited to the kernel's end. A grid completes when its last thread ends: one "
        "class of threads that always waits holds the others' completion."
    )

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for the kernel."""
        model = analysis.model
        if not model.is_dependent:
            return [not_dependent(self.id, model)]
        ends = analysis.unwaited.at(EXIT)
        if not ends:
            reason = "No way reaches the end without the wait."
            return [result_of(self.id, model.kernel, Decision.PROVEN, reason)]
        ending = {threads for threads, _ in ends}
        waiting = [t for t in analysis.unwaited.classes if t not in ending]
        if waiting:
            holder = next((t for t in waiting if t.is_certain), waiting[0])
            reason = (
                f"Some threads end without the wait, but {holder.label} of every CTA always wait, and the grid "
                "completes only after its last thread."
            )
            assumed = () if holder.is_certain else (f"every CTA is launched with {holder.label}",)
            return [result_of(self.id, model.kernel, Decision.PROVEN, reason, assumptions=assumed)]
        return [self._of_ends(analysis, [f for _, f in ends])]

    def _of_ends(self, analysis: Analysis, ends: list[Finding]) -> AuditResult:
        """The result where every class of threads can end without having waited."""
        model = analysis.model
        shown = [f for f in ends if f.verdict is Verdict.SHOWN]
        finding = (shown or ends)[0]
        sites = sites_of(finding.way, "ends without the wait") if finding.way is not None else ()
        holder_cta = analysis.completion.waiting_cta()
        if holder_cta:
            reason = f"Some CTAs end without the wait, but {holder_cta} always waits, and the grid completes after it."
            return result_of(self.id, model.kernel, Decision.PROVEN, reason, sites=sites)
        has_wait = any(i.kind is Kind.WAIT for i in model.kernel.instructions)
        completion = analysis.completion
        by_cta = shown and has_wait and not completion.sees_all_ctas
        by_cta = by_cta and all(f.way is not None and completion.decides_by_cta(f.way) for f in shown)
        if by_cta and completion.may_hold_in_a_larger_grid():
            reason = (
                "CTAs end without the wait by their place in the grid; whether the grid has one that always waits "
                "depends on its size (`grid`)."
            )
            return result_of(self.id, model.kernel, Decision.UNDECIDED, reason, sites=sites)
        if shown:
            line = sites[-1].line if sites else 0
            reason = (
                f"The kernel can end at line {line} without the wait: the grid after it may then start although the "
                "grid before it has not completed."
            )
            return result_of(self.id, model.kernel, Decision.SHOWN, reason, sites=sites)
        reason = f"Whether every way waits is not clear: {finding.doubt}."
        return result_of(self.id, model.kernel, Decision.UNDECIDED, reason, sites=sites)
