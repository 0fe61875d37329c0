"""Laws of a sweep on Ray: a lost machine loses nothing, nothing is measured twice, and other code is refused."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.model.errors import ConfigurationError, EngineError
from harness.model.words import Arm
from perf_sweeps.block import Block, BlockTask, Failure, Visit
from perf_sweeps.cell import Engine
from perf_sweeps.ray_run import RayOptions, make_lanes, run_on_ray
from perf_sweeps.simulated import SimulatedHost, Simulation
from tests.perf_sweeps.sweeps import CODE, decode_cells, plan_of

PLAN = plan_of(decode_cells(1, 2, 4, 8), num_blocks=3)


def same_code() -> str:
    return CODE


def test_a_cell_is_never_split_among_lanes_and_no_block_is_left_out() -> None:
    lanes = make_lanes(PLAN.tasks(), 3)
    assert Counter(t.key for lane in lanes for t in lane) == Counter(t.key for t in PLAN.tasks())
    assert [len({t.cell.name for t in lane}) for lane in lanes] == [2, 1, 1]


@dataclass(frozen=True)
class Pids:
    """Opens hosts that write down which process began and finished which block."""

    folder: Path
    pause_s: float = 0.0
    dies_at: int = 0
    """A batch at which the candidate's server dies."""

    def __call__(self, engine: Engine, arms: tuple[Arm, ...]) -> PidHost:
        return PidHost(self)


class PidHost(SimulatedHost):
    def __init__(self, how: Pids) -> None:
        super().__init__(Simulation())
        self.how = how

    def visit(self, task: BlockTask, arm: Arm, position: int) -> Visit:
        if position == 0:
            with (self.how.folder / "begun").open("a") as file:
                file.write(f"{os.getpid()} {task.cell.batch} {task.index}\n")
            time.sleep(self.how.pause_s)
        if task.cell.batch == self.how.dies_at and arm is Arm.CANDIDATE:
            raise EngineError("engine-died", "it died")
        return super().visit(task, arm, position)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without room for work and two machines with room for one lane each."""
    ray = pytest.importorskip("ray", reason="needs the extra `sweep`")
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    small = {"object_store_memory": 80_000_000, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    nodes.machines = [
        nodes.add_node(num_cpus=1, num_gpus=2, object_store_memory=80_000_000) for _ in range(2)
    ]
    ray.init(address=nodes.address, log_to_driver=False)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def run(open_host: Any, keep: Any, **options: Any) -> None:
    asked = {"address": "here", "num_lanes": 2, "uses_gpus": False} | options
    run_on_ray(
        PLAN.tasks(),
        open_host,
        keep,
        sweep=PLAN.digest,
        code_digest=same_code,
        options=RayOptions(**asked),
    )


@pytest.mark.usefixtures("cluster")
def test_the_candidates_death_is_recorded_and_not_tried_again(tmp_path: Path) -> None:
    records: list[Block | Failure] = []
    run(Pids(tmp_path, dies_at=4), records.append)
    failures = [r for r in records if isinstance(r, Failure)]
    assert [(f.cause, f.arm, f.attempt) for f in failures] == [("engine", Arm.CANDIDATE, 1)]
    assert len(records) - 1 == 9


@pytest.mark.usefixtures("cluster")
def test_gpus_that_no_cluster_has_are_refused_before_anything_waits(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="GB300"):
        run(Pids(tmp_path), lambda _: None, uses_gpus=True, gpu_type="GB300")


@pytest.mark.usefixtures("cluster")
def test_a_lane_with_gpus_gets_them(tmp_path: Path) -> None:
    records: list[Block | Failure] = []
    run(Pids(tmp_path), records.append, uses_gpus=True)
    assert len(records) == 12


@pytest.mark.usefixtures("cluster")
def test_a_worker_with_other_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="other code"):
        run_on_ray(
            PLAN.tasks(),
            Pids(tmp_path),
            lambda _: None,
            sweep=PLAN.digest,
            code_digest=lambda: str(os.getpid()),
            options=RayOptions(address="here", uses_gpus=False),
        )


def test_a_machine_that_is_killed_in_the_middle_loses_no_block_and_none_is_recorded_twice(
    cluster: Any, tmp_path: Path
) -> None:
    """Last in this file: the machine does not come back."""
    records: list[Block | Failure] = []

    def keep(record: Block | Failure) -> None:
        records.append(record)
        if len(records) == 3:
            kill_machine_of(cluster, int((tmp_path / "begun").read_text().split("\n")[-2].split()[0]))

    run(Pids(tmp_path, pause_s=0.3), keep)
    blocks = Counter((r.cell, r.index) for r in records if isinstance(r, Block))
    assert blocks == Counter(t.key for t in PLAN.tasks())
    assert [r.cause for r in records if isinstance(r, Failure)] == ["infrastructure"]
    begun = (tmp_path / "begun").read_text().splitlines()
    assert len(begun) == len(PLAN.tasks()) + 1, "only the block that was under way was begun again"


def kill_machine_of(cluster: Any, pid: int) -> None:
    """Kills the machine whose raylet is the worker's parent, and the worker: what a power cut does."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    for machine in cluster.machines:
        if machine.all_processes["raylet"][0].process.pid == parent:
            os.kill(pid, signal.SIGKILL)
            cluster.remove_node(machine, allow_graceful=False)
            return
    raise AssertionError("no machine of the cluster started that worker")
