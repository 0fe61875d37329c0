"""SYN002: a spin gives up some day."""

from __future__ import annotations

from collections.abc import Sequence

from harness.audit.analysis import Analysis
from harness.audit.decide import AuditResult, Decision, result_of, site_of


class SpinsAreBounded:
    """A loop that waits for a mailbox also ends by a count or a clock."""

    id = "SYN002"
    claim = "Every loop that spins on a mailbox has a bound, so that a lost writer is an error and not a hang"
    how = "Looks for an exit of the loop whose condition depends on a counter that the loop steps, or on a clock."

    def decide(self, analysis: Analysis) -> Sequence[AuditResult]:
        """One result for each loop without a bound, or one for the kernel."""
        model, boxes = analysis.model, analysis.mailboxes
        if not boxes.spins:
            reason = "No loop spins on an argument declared a mailbox."
            return [result_of(self.id, model.kernel, Decision.NOT_APPLICABLE, reason)]
        results = []
        for spin in boxes.spins:
            if boxes.is_bounded(spin):
                continue
            poll = spin.polls[-1]
            header = model.kernel.instructions[model.graph.blocks[spin.loop.header].start]
            reason = (
                f"The loop at line {header.line} waits for {poll.subject} and has no exit by a count or a clock: if "
                "the writer is lost, the GPU hangs."
            )
            sites = (
                site_of(header, "the loop begins"),
                *(site_of(t.instruction, "polls") for t in spin.polls),
                *(site_of(e.instruction, "leaves when ready") for e in spin.ready),
            )
            results.append(
                result_of(self.id, model.kernel, Decision.SHOWN, reason, sites=sites, subject=poll.subject)
            )
        if results:
            return results
        reason = f"Each of {len(boxes.spins)} spinning loops has a bound."
        return [result_of(self.id, model.kernel, Decision.PROVEN, reason)]
