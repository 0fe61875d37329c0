"""SYN001: a mailbox is read with an order and scope that let the reader see the writer."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of, site_of
from harness.audit.mailboxes import Mailboxes, Spin
from harness.audit.model import Model, Touch
from harness.audit.program import Kind, Order, Scope

_STRENGTH = {Scope.NONE: 0, Scope.CTA: 1, Scope.CLUSTER: 2, Scope.GPU: 3, Scope.SYS: 4}


class PollsAreStrong:
    """Spinning reads are volatile, relaxed or acquire at gpu scope or wider; every mailbox read is tested."""

    id = "SYN001"
    claim = (
        "Reads that spin on a mailbox are volatile, relaxed or acquire, at a scope that includes the writer"
    )
    how = (
        "Finds loops whose exit depends on a mailbox read, looks at the order and scope of the reads, and at mailbox "
        "reads that no loop tests."
    )

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each mailbox read that is wrong, or one for the kernel."""
        model, boxes = analysis.model, analysis.mailboxes
        if not boxes.reads:
            reason = "The kernel reads no argument declared a mailbox."
            return [result_of(self.id, model.kernel, Decision.NOT_APPLICABLE, reason)]
        results = [r for s in boxes.spins for t in s.polls if (r := self._poll(model, boxes, t)) is not None]
        results += [r for t in boxes.untested if (r := self._untested(model, boxes, t)) is not None]
        if results:
            return results
        reason = f"All {len(boxes.reads)} mailbox reads are strong enough, and each is tested before its use."
        return [result_of(self.id, model.kernel, Decision.PROVEN, reason)]

    def _poll(self, model: Model, boxes: Mailboxes, touch: Touch) -> AuditResult | None:
        access, line = touch.access, touch.instruction.line
        wanted = Scope.SYS if boxes.assignment(touch).is_system_wide else Scope.GPU
        if access.order is Order.WEAK:
            decision = Decision.UNDECIDED if access.cache == "cv" else Decision.SHOWN
            reason = f"Line {line} spins on {touch.subject} with a weak read: it may be served from a cache for ever."
        elif _STRENGTH[access.scope] < _STRENGTH[wanted]:
            decision = Decision.SHOWN
            have = access.scope.value or "none"
            reason = f"Line {line} spins on {touch.subject} at scope {have}; {wanted.value} is needed."
        else:
            return None
        sites = (site_of(touch.instruction, "the spinning read"),)
        return result_of(self.id, model.kernel, decision, reason, sites=sites, subject=touch.subject)

    def _untested(self, model: Model, boxes: Mailboxes, touch: Touch) -> AuditResult | None:
        block = model.graph.block_of[touch.instruction.index]
        before = [
            s
            for s in boxes.spins
            if block not in s.loop.blocks and model.graph.dominates(s.loop.header, block)
        ]
        if any(self._acquires(model, s, block) for s in before):
            return None
        line = touch.instruction.line
        if before:
            reason = (
                f"Line {line} reads {touch.subject} after a spin on it that does not acquire: the read may have been "
                "made before."
            )
            decision = Decision.UNDECIDED
        else:
            reason = f"Line {line} reads {touch.subject}, and no loop waits until it is ready."
            decision = Decision.SHOWN
        sites = (site_of(touch.instruction, "read without a test of readiness"),)
        return result_of(self.id, model.kernel, decision, reason, sites=sites, subject=touch.subject)

    def _acquires(self, model: Model, spin: Spin, block: int) -> bool:
        if all(t.access.order in (Order.ACQUIRE, Order.ACQ_REL) for t in spin.polls):
            return True
        graph = model.graph
        fences = [i for i in model.kernel.instructions if i.kind is Kind.FENCE and i.predicate is None]
        return any(
            graph.dominates(spin.loop.header, at) and graph.dominates(at, block)
            for at in (graph.block_of[f.index] for f in fences)
            if at not in spin.loop.blocks
        )
