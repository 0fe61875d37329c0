"""ISO009: the addresses in captured graphs still belong to whom they belonged at capture, at every replay."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import CapturedPointersEvidence
from harness.model.finding import Finding
from harness.model.words import Arm, Outcome, Principle, Tier

GRAPHS = "captured graphs"
"""How gaps name this evidence."""


class CapturedPointers(BaseCheck):
    """Losses of ownership between capture and replay, on the candidate."""

    id = "ISO009"
    title = "A replayed graph touches only memory that it was captured with and that nobody gave back since"
    principle = Principle.ISOLATION
    tier = Tier.GPU
    how = (
        "Follows the allocator: every address in the parameters of captured kernels must lie in the same allocation "
        "at each replay, also after the largest capture and after eager steps."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding for all graphs of the candidate."""
        found = [
            r for r in context.evidence.of(CapturedPointersEvidence, tier=self.tier) if r.arm is Arm.CANDIDATE
        ]
        if not found:
            ruling = missing_ruling(
                context.evidence, self.tier, "the candidate's captured graphs", f"{GRAPHS} of {Arm.CANDIDATE}"
            )
            return [finding_of(self, "captured graphs", ruling)]
        return [finding_of(self, "captured graphs", decide_pointers(found[-1]), [found[-1].id])]


def decide_pointers(record: CapturedPointersEvidence) -> Ruling:
    """No address lost its memory, and the replays that could have shown a loss took place."""
    graphs, losses = record.graphs, record.losses
    addresses = sum(g.num_addresses for g in graphs)
    if losses:
        kinds = f"{sum(loss.reused for loss in losses)} of them were somebody else's by then"
        return Ruling(
            outcome=Outcome.FAIL,
            message=f"{len(losses)} of {addresses} captured addresses had lost their memory at a replay; {kinds}.",
            advice="Allocate what a graph uses once, at its largest, and keep it as long as the graph.",
            details=tuple(
                f"{loss.graph}, replay {loss.replay}: {loss.kernel} has {loss.address:#x}, "
                f"in {loss.block_bytes} bytes that were given back{' and given out again' if loss.reused else ''}"
                for loss in losses
            ),
        )
    untried = [g.name for g in graphs if not g.num_replays_after_largest or not g.num_addresses]
    eager = sum(g.num_replays_after_eager for g in graphs)
    if not graphs or untried or not eager:
        what = "no graph was captured" if not graphs else "no replay followed an eager step"
        if untried:
            what = f"{len(untried)} of {len(graphs)} graphs have no address, or no replay after the largest capture"
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"Nothing was lost, and {what}, so a loss might not have shown.",
            advice="Replay every graph once all are captured, with eager steps in between.",
            details=tuple(untried),
        )
    replays = sum(g.num_replays for g in graphs)
    return Ruling(
        outcome=Outcome.PASS,
        message=f"All {addresses} addresses of {len(graphs)} graphs kept their memory over {replays} replays, "
        f"{eager} of them after an eager step.",
    )
