"""SYN001: a mailbox is read with an order and scope that let the reader see the writer."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of, site_of
from harness.audit.mailboxes import Mailboxes
from harness.audit.model import Model, Touch
from harness.audit.program import Order, Scope
from harness.audit.readiness import Untested, Use

_STRENGTH = {Scope.NONE: 0, Scope.CTA: 1, Scope.CLUSTER: 2, Scope.GPU: 3, Scope.SYS: 4}


class PollsAreStrong:
    """Spinning reads are volatile, relaxed or acquire at gpu scope or wider; every mailbox read is tested."""

    id = "SYN001"
    claim = (
        "Reads that spin on a mailbox are volatile, relaxed or acquire, at a scope that includes the writer"
    )
    how = (
        "Follows what each mailbox read brought to every store and address that takes it: a test of that same data "
        "must lie between. Looks at the order and scope of reads that are tested, and of reads that a loop repeats."
    )

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each mailbox read that is wrong, or one for the kernel."""
        model, boxes = analysis.model, analysis.mailboxes
        if not boxes.reads:
            reason = "The kernel reads no argument declared a mailbox."
            return [result_of(self.id, model.kernel, Decision.NOT_APPLICABLE, reason)]
        results = [r for t in boxes.reads if (r := self._decide(model, boxes, t)) is not None]
        if results:
            return results
        reason = f"All {len(boxes.reads)} mailbox reads are strong enough, and each is tested before its use."
        return [result_of(self.id, model.kernel, Decision.PROVEN, reason)]

    def _decide(self, model: Model, boxes: Mailboxes, touch: Touch) -> AuditResult | None:
        index = touch.instruction.index
        polled = any(t.instruction.index == index for s in boxes.spins for t in s.polls)
        if not polled and boxes.is_behind_acquire(touch):
            return None
        if not touch.access.registers:
            return self._untested(model, boxes, touch, None)
        uses = [
            u for (place, _), u in boxes.readiness.untested.items() if place == index and not u.is_partial
        ]
        is_used = any(place == index for place, _ in boxes.readiness.used)
        weak = self._poll(model, boxes, touch) if polled or is_used else None
        if not uses:
            return weak
        shown = [u for u in uses if u.untested is Untested.SHOWN]
        # A poll that is too weak is so whether or not what it brought was tested.
        return (
            weak if weak and polled and not shown else self._untested(model, boxes, touch, (shown or uses)[0])
        )

    def _poll(self, model: Model, boxes: Mailboxes, touch: Touch) -> AuditResult | None:
        access, line = touch.access, touch.instruction.line
        wanted = Scope.SYS if boxes.assignment(touch).is_system_wide else Scope.GPU
        if access.order is Order.WEAK:
            decision = Decision.UNDECIDED if access.cache == "cv" else Decision.SHOWN
            reason = (
                f"Line {line} polls {touch.subject} with a weak read: it may be served from a cache for ever."
            )
        elif _STRENGTH[access.scope] < _STRENGTH[wanted]:
            decision = Decision.SHOWN
            have = access.scope.value or "none"
            reason = f"Line {line} polls {touch.subject} at scope {have}; {wanted.value} is needed."
        else:
            return None
        sites = (site_of(touch.instruction, "the poll"),)
        return result_of(self.id, model.kernel, decision, reason, sites=sites, subject=touch.subject)

    def _untested(self, model: Model, boxes: Mailboxes, touch: Touch, use: Use | None) -> AuditResult:
        line = touch.instruction.line
        sites = [site_of(touch.instruction, "read without a test of readiness")]
        if use is not None and use.untested is Untested.UNDECIDED:
            decision = Decision.UNDECIDED
            reason = (
                f"Whether what line {line} reads of {touch.subject} was tested before its use is not clear."
            )
        elif boxes.spins_before(touch):
            decision = Decision.UNDECIDED
            reason = (
                f"Line {line} reads {touch.subject} after a spin on it that does not acquire: the read may have been "
                "made before."
            )
        else:
            decision = Decision.SHOWN
            reason = f"Line {line} reads {touch.subject}, and nothing waits until it is ready."
        if use is not None:
            sites.append(site_of(use.instruction, "takes what was read"))
            reason += f" Line {use.instruction.line} takes it."
        return result_of(self.id, model.kernel, decision, reason, sites=tuple(sites), subject=touch.subject)
