"""Holds what a profiler saw of the candidate's steps against the captured graph that such a step replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.checks.joins.ruling import Ruling
from harness.checks.performance.cell_rulings import FairCell, VoidCell
from harness.model.evidence import CapturedPointersEvidence
from harness.model.probe import CapturedGraph
from harness.model.words import Arm, Outcome


def hold_to_graphs(cell: FairCell | VoidCell, record: CapturedPointersEvidence | None) -> FairCell | VoidCell:
    """The profiled cell; void where a block of the candidate shows fewer kernels a step than the replayed graph holds.

    A step has more kernels than its graph: embedding, sampling and the like are launched beside it. Without a graph of
    known size for the batch there is nothing to hold it against, and the cell's lines say so.
    """
    if isinstance(cell, VoidCell):
        return cell
    wanted = None if record is None else num_kernels_of(record.graphs, cell.batch)
    if record is None or wanted is None:
        return _noted(cell, "the candidate's captured graphs are not known: its profile is held against none")
    seen = [
        b.profile.num_kernels or 0.0
        for b in cell.timing.blocks
        if b.arm is Arm.CANDIDATE and b.profile is not None
    ]
    words = f"{min(seen):g} to {max(seen):g} kernels a step in the candidate's profile, {wanted} in the step's graph"
    noted = replace(_noted(cell, words), evidence_ids=(*cell.evidence_ids, record.id))
    if min(seen) >= wanted:
        return noted
    return VoidCell(
        ruling=Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"Profile at batch {cell.batch}: {words}: the profiler did not see all that the GPU did.",
            advice="Profile where PyTorch's profiler sees the kernels of replayed graphs.",
        ),
        evidence_ids=noted.evidence_ids,
    )


def num_kernels_of(graphs: Sequence[CapturedGraph], batch: int) -> int | None:
    """Kernels of the graph that a decode step of `batch` requests replays: of the smallest size that holds them.

    Of several of that size the one with most kernels counts: a step that replays the others instead replays all of
    them. None where no graph is known to be that large.
    """
    sizes = [graph.num_tokens for graph in graphs if graph.num_tokens >= batch]
    return max((g.num_kernels for g in graphs if g.num_tokens == min(sizes)), default=None) if sizes else None


def _noted(cell: FairCell, line: str) -> FairCell:
    return replace(cell, timing=replace(cell.timing, notes=(*cell.timing.notes, line)))
