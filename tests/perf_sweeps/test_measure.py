"""Laws of measuring: a server that dies costs its own cell, and servers are started once an engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from harness.model.errors import EngineError
from harness.model.words import Arm
from perf_sweeps.bench_result import BenchResultError
from perf_sweeps.block import Block, BlockTask, Failure, Visit
from perf_sweeps.cell import Axes, Engine, Workload
from perf_sweeps.measure import run_here
from perf_sweeps.simulated import SimulatedHost, Simulation
from tests.perf_sweeps.sweeps import CODE, decode_cells, plan_of


@dataclass
class Watched:
    """Opens simulated hosts and counts; the candidate's visits to one batch raise."""

    error: Exception | None = None
    at_batch: int = 4
    opened: list[str] = field(default_factory=list)
    num_closed: int = 0

    def __call__(self, engine: Engine, arms: tuple[Arm, ...]) -> WatchedHost:
        self.opened.append(engine.name)
        return WatchedHost(self)


class WatchedHost(SimulatedHost):
    def __init__(self, watched: Watched) -> None:
        super().__init__(Simulation())
        self.watched = watched

    def visit(self, task: BlockTask, arm: Arm, position: int) -> Visit:
        if self.watched.error and arm is Arm.CANDIDATE and task.cell.batch == self.watched.at_batch:
            raise self.watched.error
        return super().visit(task, arm, position)

    def close(self) -> None:
        self.watched.num_closed += 1


PLAN = plan_of(decode_cells(1, 2, 4, 8, 16, 32), num_blocks=2)


def run(watched: Watched) -> list[Block | Failure]:
    records: list[Block | Failure] = []
    run_here(PLAN.tasks(), watched, records.append, sweep=PLAN.digest, code_digest=CODE)
    return records


def test_a_server_that_dies_in_the_third_cell_of_six_leaves_the_other_five_whole() -> None:
    records = run(Watched(EngineError("engine-died", "it died")))
    whole = {r.cell for r in records if isinstance(r, Block)}
    (failure,) = (r for r in records if isinstance(r, Failure))
    assert whole == {c.name for c in PLAN.cells if c.batch != 4}
    assert (failure.cause, failure.arm, failure.message) == ("engine", Arm.CANDIDATE, "it died")


@pytest.mark.parametrize(
    ("error", "starts"), [(None, 1), (EngineError("x", "died"), 2), (BenchResultError("NaN"), 1)]
)
def test_servers_are_started_once_and_anew_only_after_one_of_them_failed(
    error: Exception | None, starts: int
) -> None:
    watched = Watched(error)
    run(watched)
    assert (len(watched.opened), watched.num_closed) == (starts, starts)


def test_a_result_that_cannot_be_read_is_not_called_the_engines_failure() -> None:
    (failure,) = (r for r in run(Watched(BenchResultError("It holds NaN."))) if isinstance(r, Failure))
    assert failure.cause == "measurement"


def test_an_interrupt_stops_the_servers_and_keeps_what_was_measured() -> None:
    watched, records = Watched(KeyboardInterrupt()), []  # type: ignore[arg-type,var-annotated]
    with pytest.raises(KeyboardInterrupt):
        run_here(PLAN.tasks(), watched, records.append, sweep=PLAN.digest, code_digest=CODE)
    assert (len(records), watched.num_closed) == (4, 1)


def test_each_engine_configuration_has_servers_of_its_own() -> None:
    engines = (Engine(), Engine(tensor_parallel=2))
    cells = Axes(workloads=(Workload.DECODE,), batches=(1, 2), shapes=((4, 4),), engines=engines).cells()
    plan, watched = plan_of(cells, num_blocks=2), Watched()
    run_here(plan.tasks(), watched, lambda _: None, sweep=plan.digest, code_digest=CODE)
    assert watched.opened == ["tp1", "tp2"]


def test_a_server_that_dies_keeps_its_logs_last_lines_and_the_sweep_shows_them() -> None:
    records = run(Watched(EngineError("engine-died", "it died", log_tail="one\ntwo")))
    (failure,) = (r for r in records if isinstance(r, Failure))
    assert failure.lines == ("it died", "log: one", "log: two")
