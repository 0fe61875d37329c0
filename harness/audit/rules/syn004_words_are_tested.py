"""SYN004: every word that a spin takes out of a mailbox was seen to be ready."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of, site_of
from harness.audit.mailboxes import Mailboxes
from harness.audit.model import Model, Touch
from harness.audit.program import Level
from harness.audit.readiness import Untested

_ONE_WORD = 8
"""Bytes that a machine load moves at once, whatever the source called them."""


class WordsAreTested:
    """The elements of a vector read are separate accesses: each that is used must be tested."""

    id = "SYN004"
    claim = "A vector read of a mailbox tests every element that it uses, since elements arrive separately"
    how = (
        "The PTX memory model takes a vector access as one access an element, in no order. Each element of a mailbox "
        "read that reaches a store or an address must have been tested itself where another element of it was."
    )

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each vector with an untested element, or one for the kernel."""
        model, boxes = analysis.model, analysis.mailboxes
        if not boxes.reads:
            reason = "The kernel reads no argument declared a mailbox."
            return [result_of(self.id, model.kernel, Decision.NOT_APPLICABLE, reason)]
        results = [r for t in boxes.reads if (r := self._decide(model, boxes, t)) is not None]
        if results:
            return results
        reason = "Every element of every mailbox read that is tested is tested itself, or unused."
        return [result_of(self.id, model.kernel, Decision.PROVEN, reason)]

    def _decide(self, model: Model, boxes: Mailboxes, touch: Touch) -> AuditResult | None:
        access, index = touch.access, touch.instruction.index
        count = access.num_elements
        uses = {
            element: use
            for (place, element), use in boxes.readiness.untested.items()
            if place == index and use.is_partial
        }
        if count <= 1 or not uses:
            return None
        first = uses[min(uses)].instruction
        size = access.element_bytes or 0
        wide = f"{count} elements of {size} bytes"
        sites = (
            site_of(touch.instruction, f"reads {wide}"),
            site_of(first, "takes an element without a test"),
        )
        which = ", ".join(map(str, sorted(uses)))
        if model.kernel.level is Level.SASS and (size * count) <= _ONE_WORD:
            return None
        if model.kernel.level is Level.SASS:
            reason = (
                f"Line {touch.instruction.line} polls {wide} of {touch.subject} and tests not all (not {which}); "
                "whether the source read one wide word or a vector cannot be seen in SASS."
            )
            return result_of(
                self.id, model.kernel, Decision.UNDECIDED, reason, sites=sites, subject=touch.subject
            )
        reason = (
            f"Line {touch.instruction.line} polls {wide} of {touch.subject} and uses elements that it does not test: "
            f"{which}. They may not have arrived yet."
        )
        sure = any(u.untested is Untested.SHOWN for u in uses.values())
        decision = Decision.SHOWN if sure else Decision.UNDECIDED
        return result_of(self.id, model.kernel, decision, reason, sites=sites, subject=touch.subject)
