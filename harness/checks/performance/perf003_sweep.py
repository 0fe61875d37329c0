"""PERF003: on the GPU, no required cell of a sweep over the whole scope is slower."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from harness.checks.joins.missing import missing_ruling
from harness.checks.joins.ruling import Ruling, combine_rulings, finding_of
from harness.model.check import BaseCheck, CheckContext
from harness.model.evidence import EnvironmentEvidence, SweepEvidence
from harness.model.finding import Finding, Measurement
from harness.model.manifest import ScopeSection
from harness.model.policy import Policy
from harness.model.swept_cell import SweptCell
from harness.model.words import Arm, Outcome, Principle, Tier
from harness.stats.paired_verdict import MAX_DROPPED_SHARE, judge_pairs

_AGAIN = (
    "Run `fasttrack sweep --tier gpu --preset scope` at the head commit, and pass its folder on with --sweep."
)
_DECODE = "decode"
_ARMS = {Arm.BASELINE, Arm.CANDIDATE, Arm.BASELINE_AGAIN}


class SweptScope(BaseCheck):
    """A sweep's cells, judged anew from the times of their blocks."""

    id = "PERF003"
    title = "On the GPU, no cell of a sweep over the whole scope is slower"
    principle = Principle.PERFORMANCE
    tier = Tier.GPU
    how = (
        "Reads records of `fasttrack sweep`: they must be of the head and of this judge, and time decode at every "
        "power of two of the scope, its limit and one more, at short and half-full context, at each number of ranks. "
        "Each required cell must be non-inferior by the policy's margin beside a quiet A/A."
    )

    def run(self, context: CheckContext) -> Sequence[Finding]:
        """One finding for the records that do not count, one for the cells that are not there, one a required cell."""
        records = context.evidence.of(SweepEvidence, tier=self.tier)
        if not records:
            ruling = missing_ruling(context.evidence, self.tier, "a sweep of cells on a GPU", "sweep")
            return [finding_of(self, "sweep", ruling)]
        void = {record.id: why for record in records if (why := why_void(record, context))}
        counted = [record for record in records if record.id not in void]
        ids = [record.id for record in records]
        if not counted:
            return [finding_of(self, "records", _void_records(list(void.values())), ids)]
        findings = [finding_of(self, "scope", decide_breadth(counted, context.manifest.scope), ids)]
        if void:
            findings.append(finding_of(self, "records", _void_records(list(void.values())), ids))
        swept: dict[str, list[tuple[SweepEvidence, SweptCell]]] = {}
        for record in counted:
            for cell in record.cells:
                if cell.is_required:
                    swept.setdefault(cell.name, []).append((record, cell))
        for name, places in swept.items():
            # Measuring a cell again takes no result back: the worst counts.
            ruling = combine_rulings([decide_cell(cell, record, context.policy) for record, cell in places])
            findings.append(finding_of(self, name, ruling, [record.id for record, _ in places]))
        return findings


def why_void(record: SweepEvidence, context: CheckContext) -> str:
    """Why a record says nothing about the change under this judge; empty when it does."""
    if record.subject != context.change.head:
        return f"The sweep {record.plan[:12]} is about {record.subject[:40]}, not the head."
    judges = {e.harness_sha256 for e in context.evidence.of(EnvironmentEvidence)}
    if record.harness_sha256 not in judges:
        return f"The sweep {record.plan[:12]} was measured by another fasttrack than the one that judged."
    return ""


def _void_records(reasons: Sequence[str]) -> Ruling:
    return Ruling(
        outcome=Outcome.NOT_RUN,
        message=f"{len(reasons)} sweeps do not count.",
        advice=_AGAIN,
        details=tuple(reasons),
    )


def decide_breadth(records: Sequence[SweepEvidence], scope: ScopeSection) -> Ruling:
    """Whether required decode cells cover the scope: which cells are timed is not the contributor's to choose."""
    cells = [c for r in records for c in r.cells if c.is_required and c.workload == _DECODE]
    missing = []
    places = list(product(scope.tensor_parallel, scope.edge_batches))
    for ranks, batch in places:
        where = f"batch {batch}" if scope.tensor_parallel == (1,) else f"{ranks} ranks, batch {batch}"
        contexts = [c.context for c in cells if (c.tensor_parallel, c.batch) == (ranks, batch)]
        if not any(context < scope.max_context // 2 for context in contexts):
            missing.append(f"{where}, short context")
        if not any(context >= scope.max_context // 2 for context in contexts):
            missing.append(f"{where}, context of {scope.max_context // 2} or more")
    wanted = 2 * len(places)
    if missing:
        text = f"{len(missing)} of {wanted} cells that the scope asks for were not swept: {missing[0]}."
        return Ruling(outcome=Outcome.NOT_RUN, message=text, advice=_AGAIN, details=tuple(missing))
    text = f"The sweep times decode at {wanted} places of the scope: each edge batch, at short and half-full context."
    return Ruling(outcome=Outcome.PASS, message=text)


def decide_cell(cell: SweptCell, record: SweepEvidence, policy: Policy) -> Ruling:
    """The cell's faults first, then its blocks, then its times."""
    where = f" on {record.hardware}" if record.hardware else ""
    if cell.fault:
        outcome = cell.fault_outcome or Outcome.INCONCLUSIVE
        return Ruling(outcome=outcome, message=cell.fault, advice=_AGAIN)
    if [block.index for block in cell.blocks] != list(range(record.num_blocks)):
        text = f"{len(cell.blocks)} of {record.num_blocks} planned blocks are in the record."
        advice = "Finish the sweep (--resume): which blocks count is not to be chosen."
        return Ruling(outcome=Outcome.INCONCLUSIVE, message=text, advice=advice)
    if any(set(block.times_ms) != _ARMS for block in cell.blocks):
        return Ruling(outcome=Outcome.INCONCLUSIVE, message="Its blocks lack an arm.", advice=_AGAIN)
    kept = [block for block in cell.blocks if not block.dropped]
    dropped = tuple(block.dropped for block in cell.blocks if block.dropped)
    if len(dropped) > MAX_DROPPED_SHARE * len(cell.blocks) or len(kept) < max(2, policy.min_timing_blocks):
        text = f"{len(kept)} of {len(cell.blocks)} blocks can be used."
        advice = "Sweep on a quiet machine, with more blocks."
        return Ruling(outcome=Outcome.INCONCLUSIVE, message=text, advice=advice, details=dropped)
    times = {arm: [block.times_ms[arm] for block in kept] for arm in _ARMS}
    found = judge_pairs(
        times[Arm.BASELINE],
        times[Arm.CANDIDATE],
        times[Arm.BASELINE_AGAIN],
        margin=policy.itl_margin,
        alpha=policy.alpha,
    )
    advice = ""
    if found.outcome is Outcome.FAIL:
        advice = "The path is slower in this cell: correct it, or leave the cell out of the scope."
    elif found.needed is not None:
        advice = f"Sweep again with about {found.needed} blocks."
    timing = found.timing
    return Ruling(
        outcome=found.outcome,
        message=f"{found.message.rstrip('.')}{where}.",
        advice=advice,
        measurements=(
            Measurement(
                name=f"time ratio, {cell.name}",
                unit="ratio",
                estimate=timing.estimate,
                ci_low=timing.ci_low,
                ci_high=timing.ci_high,
                margin=1 + policy.itl_margin,
                n=timing.n,
                hardware=record.hardware,
            ),
        ),
        details=dropped,
    )
