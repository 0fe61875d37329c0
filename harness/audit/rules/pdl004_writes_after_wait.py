"""PDL004: nothing that an earlier grid may still use is written before the wait."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of, site_of
from harness.audit.model import Model, Need, Touch
from harness.audit.rules.base import not_dependent
from harness.audit.unwaited import Finding, Verdict
from harness.audit.witness import sites_of
from harness.model.kernels import Role


class WritesAfterWait:
    """No global write, atomic or reduction above the wait, but to mailboxes and settled memory."""

    id = "PDL004"
    claim = "No global write before the wait changes anything that an earlier grid may still read or write"
    how = "Walks all ways that have not waited and looks which writes, atomics, reductions and bulk stores they reach."

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each argument written too early, or one for the kernel."""
        model = analysis.model
        if not model.is_dependent:
            return [not_dependent(self.id, model)]
        early: dict[str, list[tuple[Touch, Finding]]] = {}
        for touch in model.writes:
            if touch.write_need is Need.NO:
                continue
            for _, finding in analysis.unwaited.at(touch.instruction.index):
                early.setdefault(touch.subject, []).append((touch, finding))
        results = [self._of_subject(model, subject, found) for subject, found in early.items()]
        results += self._of_static(model)
        results += self._of_unknown(analysis)
        if results:
            return results
        reason = "Every global write that an earlier grid could notice comes after the wait."
        settled = sorted({str(s) for t in model.writes for s, a in t.assignments if a.role is Role.SETTLED})
        assumptions = tuple(
            f"no grid that may still run when this one starts reads or writes {source}" for source in settled
        )
        if settled:
            reason += f" Not asked to wait: {', '.join(settled)} (settled)."
        return [result_of(self.id, model.kernel, Decision.PROVEN, reason, assumptions=assumptions)]

    def _of_subject(self, model: Model, subject: str, found: list[tuple[Touch, Finding]]) -> AuditResult:
        sure = [(t, f) for t, f in found if f.verdict is Verdict.SHOWN and t.write_need is Need.YES]
        touch, finding = (sure or found)[0]
        line = touch.instruction.line
        others = sorted({t.instruction.line for t, _ in found} - {line})
        more = f" So do lines {', '.join(map(str, others[:8]))}." if others else ""
        end = f"writes {subject} before any wait"
        sites = sites_of(finding.way, end) if finding.way is not None else (site_of(touch.instruction, end),)
        why = finding.doubt or "it is not known which of the arguments the address starts from"
        reason = f"Line {line} writes {subject} where no wait is sure: {why}.{more}"
        if sure:
            reason = f"Line {line} writes {subject} before griddepcontrol.wait: an earlier grid may still use it.{more}"
        return result_of(
            self.id,
            model.kernel,
            Decision.SHOWN if sure else Decision.UNDECIDED,
            reason,
            sites=sites,
            subject=subject,
            arguments=touch.arguments,
        )

    def _of_static(self, model: Model) -> list[AuditResult]:
        """A static argument that the kernel writes is none; reads of it were let through by its role."""
        touched = [t for t in model.writes if t.touches(Role.STATIC) and not t.reach.is_ambiguous]
        sure = [t for t in touched if all(a.role is Role.STATIC for _, a in t.assignments)]
        for touch in (sure or touched)[:1]:
            site = site_of(touch.instruction, "writes an argument declared static")
            reason = f"Line {site.line} writes {touch.subject}: an argument that is written is not static."
            if not sure:
                reason = (
                    f"Line {site.line} writes {touch.subject}; whether it can be the static one is not clear."
                )
            decision = Decision.SHOWN if sure else Decision.UNDECIDED
            return [result_of(self.id, model.kernel, decision, reason, sites=(site,), subject=touch.subject)]
        return []

    def _of_unknown(self, analysis: Analysis) -> list[AuditResult]:
        model = analysis.model
        for instruction in model.unknown_instructions:
            if analysis.unwaited.at(instruction.index):
                reason = f"Line {instruction.line} may write anything and can run before the wait: {instruction.text}"
                return [
                    result_of(
                        self.id, model.kernel, Decision.UNDECIDED, reason, sites=(site_of(instruction),)
                    )
                ]
        return []
