"""Takes folders of `fasttrack sweep` into evidence: the times of every block, and what the rules said of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.app.recorder import Recorder
from harness.model.errors import ConfigurationError, EvidenceError
from harness.model.evidence import SweepEvidence
from harness.model.swept_cell import SweptBlock, SweptCell
from harness.model.words import Tier
from perf_sweeps.analysis import block_time_ms, find_cell_fault, sort_records
from perf_sweeps.block import Block, Failure, SweepPlan
from perf_sweeps.cell import Cell
from perf_sweeps.journal import RecordIndex, read_plan
from perf_sweeps.void import find_disturbance


def record_sweeps(folders: Sequence[Path], recorder: Recorder, code_digest: str) -> None:
    """Records each folder, of whatever commit it is; a check says whether it counts.

    Blocks that another judge than the present one (`code_digest`) measured are left out, and so are missing.

    Raises:
        ConfigurationError: a folder holds no sweep, one that was changed, or one of the cpu tier.
    """
    for folder in folders:
        try:
            recorder.record(read_sweep_folder(folder, code_digest))
        except EvidenceError as error:
            raise ConfigurationError(
                "sweep-folder", error.message, "Give the --out of `fasttrack sweep`."
            ) from error


def read_sweep_folder(folder: Path, code_digest: str) -> SweepEvidence:
    """A sweep's folder as evidence; raises `EvidenceError` for one that was changed."""
    plan, index = read_plan(folder), RecordIndex(folder)
    if plan.tier is not Tier.GPU:
        message = f"{folder.name}: a sweep of the {plan.tier} tier says nothing of a GPU, and is no evidence."
        raise ConfigurationError("sweep-tier", message, "Sweep with --tier gpu.")
    cells, machines, topologies = [], set(), set()
    for cell in plan.cells:
        blocks, failures = sort_records(index.of(cell.name), plan.digest, code_digest)
        cells.append(_swept(cell, plan, blocks, failures))
        machines |= {block.hardware for block in blocks}
        topologies |= {block.gpu_topology for block in blocks if block.gpu_topology}
    return SweepEvidence(
        tier=plan.tier,
        recorded_at=index.last_at,
        hardware="; ".join(sorted(machines)),
        command=("fasttrack", "sweep"),
        seed=plan.seed,
        subject=plan.subject,
        plan=plan.digest,
        num_blocks=plan.num_blocks,
        harness_sha256=code_digest,
        cells=tuple(cells),
        gpu_topologies=tuple(sorted(topologies)),
    )


def _swept(cell: Cell, plan: SweepPlan, blocks: Sequence[Block], failures: Sequence[Failure]) -> SweptCell:
    fault = find_cell_fault(cell, blocks, failures)
    return SweptCell(
        name=cell.name,
        workload=str(cell.workload),
        batch=cell.batch,
        context=cell.context,
        tensor_parallel=cell.engine.tensor_parallel,
        is_required=cell.is_required,
        fault=fault[1] if fault else "",
        fault_outcome=fault[0] if fault else None,
        blocks=() if fault else tuple(_block(cell, block, plan) for block in blocks),
    )


def _block(cell: Cell, block: Block, plan: SweepPlan) -> SweptBlock:
    times = {arm: block_time_ms(cell, block, arm) for arm in plan.arms}
    return SweptBlock(index=block.index, times_ms=times, dropped=find_disturbance(block))
