"""ISO009: the addresses in captured graphs still belong to whom they belonged at capture, at every replay."""

from __future__ import annotations

from collections.abc import Sequence

from harness.checks.joins.probes import GRAPHS, find_graphs
from harness.checks.joins.ruling import Ruling, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import CapturedPointersEvidence
from harness.model.finding import Finding
from harness.model.probe import CapturedGraph
from harness.model.words import Outcome, Principle, Tier


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
        record = find_graphs(context, self.tier)
        if isinstance(record, Ruling):
            return [finding_of(self, GRAPHS, record)]
        return [finding_of(self, GRAPHS, decide_pointers(record), [record.id])]


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
    untried = [why for g in graphs if (why := _untried(g))]
    if not graphs or untried or not record.planted_loss_seen:
        what = "no graph was captured" if not graphs else "the loss that was planted did not show"
        if untried:
            what = f"{len(untried)} of {len(graphs)} graphs were not put to the test"
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"Nothing was lost, and {what}, so a loss might not have shown.",
            advice="Replay every graph once all are captured, and again after an eager step.",
            details=tuple(untried),
        )
    replays = sum(g.num_replays for g in graphs)
    return Ruling(
        outcome=Outcome.PASS,
        message=f"All {addresses} addresses of {len(graphs)} graphs kept their memory over {replays} replays, "
        f"{sum(g.num_replays_after_eager for g in graphs)} of them after an eager step.",
    )


def _untried(graph: CapturedGraph) -> str:
    """Why a graph could not have shown a loss; empty when it could."""
    if not graph.num_addresses:
        return f"{graph.name}: no address was found in the parameters of its {graph.num_kernels} kernels"
    if not graph.num_replays_after_largest:
        return f"{graph.name}: not replayed after the largest capture"
    return "" if graph.num_replays_after_eager else f"{graph.name}: not replayed after an eager step"
