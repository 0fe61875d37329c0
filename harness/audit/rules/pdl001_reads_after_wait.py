"""PDL001: reads of what an earlier grid writes come after the wait."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, Site, result_of, site_of
from harness.audit.model import Model, Need, Touch, is_prefetch
from harness.audit.program import Kind
from harness.audit.rules.base import not_dependent
from harness.audit.unwaited import Finding, Verdict
from harness.audit.witness import sites_of


class ReadsAfterWait:
    """No thread reads producer-written memory before the wait."""

    id = "PDL001"
    claim = "Every read of an argument that an earlier grid writes comes after griddepcontrol.wait, in every warp role"
    how = (
        "Walks all ways from the entry that have not waited, for each class of threads, and looks which reads they "
        "reach; addresses are followed back to the kernel's parameters."
    )

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each argument read too early, or one for the kernel."""
        model = analysis.model
        if not model.is_dependent:
            return [not_dependent(self.id, model)]
        early: dict[str, list[tuple[Touch, Finding]]] = {}
        for touch in model.reads:
            if touch.read_need is Need.NO:
                continue
            for _, finding in analysis.unwaited.at(touch.instruction.index):
                early.setdefault(touch.subject, []).append((touch, finding))
        results = [self._of_subject(model, subject, found) for subject, found in early.items()]
        results += self._of_unknown(analysis)
        return results or [self._proven(model)]

    def _of_subject(self, model: Model, subject: str, found: list[tuple[Touch, Finding]]) -> AuditResult:
        sure = [(t, f) for t, f in found if f.verdict is Verdict.SHOWN and t.read_need is Need.YES]
        touch, finding = (sure or found)[0]
        instruction = touch.instruction
        what = "prefetches" if is_prefetch(touch) else "reads"
        others = sorted({t.instruction.line for t, _ in found} - {instruction.line})
        more = f" So do lines {', '.join(map(str, others[:8]))}." if others else ""
        end = f"{what} {subject} before any wait"
        sites = sites_of(finding.way, end) if finding.way is not None else (site_of(instruction, end),)
        sites += _waits(model)
        why = finding.doubt or "it is not known which of the arguments the address starts from"
        reason = f"Line {instruction.line} {what} {subject} where no wait is sure: {why}.{more}"
        if sure:
            reason = f"Line {instruction.line} {what} {subject} before griddepcontrol.wait.{more}"
        return result_of(
            self.id,
            model.kernel,
            Decision.SHOWN if sure else Decision.UNDECIDED,
            reason,
            sites=sites,
            subject=subject,
            arguments=touch.arguments,
        )

    def _of_unknown(self, analysis: Analysis) -> list[AuditResult]:
        model = analysis.model
        for instruction in model.unknown_instructions:
            if analysis.unwaited.at(instruction.index):
                reason = f"Line {instruction.line} may read anything and can run before the wait: {instruction.text}"
                sites = (site_of(instruction),)
                return [result_of(self.id, model.kernel, Decision.UNDECIDED, reason, sites=sites)]
        return []

    def _proven(self, model: Model) -> AuditResult:
        needed = [t for t in model.reads if t.read_need is not Need.NO]
        exempt = sorted({s for t in model.reads if t.read_need is Need.NO for s in t.subject.split(", ")})
        reason = f"All {len(needed)} reads of arguments that an earlier grid may write come after the wait."
        if exempt:
            reason += f" Not asked to wait: {', '.join(exempt)}."
        assumptions = tuple(
            f"{source} was written by a grid that had completed before this one could start"
            for source in sorted(
                {str(s) for t in model.reads for s, a in t.assignments if a.role.value == "settled"}
            )
        )
        return result_of(self.id, model.kernel, Decision.PROVEN, reason, assumptions=assumptions)


def _waits(model: Model) -> tuple[Site, ...]:
    """Where the waits stand, after the path."""
    waits = [i for i in model.kernel.instructions if i.kind is Kind.WAIT]
    return tuple(site_of(i, "a wait, not on this path") for i in waits[:3])
