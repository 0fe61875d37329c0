"""Small sweeps for the tests: a plan, simulated records of it, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from harness.model.words import Arm
from perf_sweeps.analysis import CellResult, Margins, SweepResult, analyse
from perf_sweeps.block import Block, Failure, SweepPlan, Visit
from perf_sweeps.cell import Axes, Cell, Workload
from perf_sweeps.measure import run_here
from perf_sweeps.simulated import Simulation

CODE = "c" * 64


def decode_cells(*batches: int) -> tuple[Cell, ...]:
    return Axes(workloads=(Workload.DECODE,), batches=batches, shapes=((16, 8),)).cells()


def plan_of(cells: Sequence[Cell], num_blocks: int = 6, **changed: Any) -> SweepPlan:
    return SweepPlan(subject="simulated", cells=tuple(cells), num_blocks=num_blocks, **changed)


def simulate(plan: SweepPlan, simulation: Simulation | None = None) -> list[Block]:
    records: list[Block | Failure] = []
    run_here(plan.tasks(), simulation or Simulation(), records.append, sweep=plan.digest, code_digest=CODE)
    return [r for r in records if isinstance(r, Block)]


def judge(plan: SweepPlan, records: Iterable[Block | Failure], margins: Margins | None = None) -> SweepResult:
    kept = list(records)
    return analyse(
        plan, lambda cell: [r for r in kept if r.cell == cell], margins or Margins(), code_digest=CODE
    )


def judge_one(plan: SweepPlan, records: Iterable[Block | Failure]) -> CellResult:
    return judge(plan, records).cells[0]


def with_visits(block: Block, change: Callable[[Visit], dict[str, Any]]) -> Block:
    """The block with every visit changed."""
    visits = tuple(v.model_copy(update=change(v)) for v in block.visits)
    return block.model_copy(update={"visits": visits})


def in_arm(arm: Arm, **update: Any) -> Callable[[Visit], dict[str, Any]]:
    return lambda visit: update if visit.arm is arm else {}
