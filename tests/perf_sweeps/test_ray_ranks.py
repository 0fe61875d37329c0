"""Arms of two real ranks each on a Ray cluster of this machine: a placement group of two GPUs, blocks interleaved.

The GPUs are Ray's to count only; vLLM computes on the CPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.app.cpu_tier import CHECKPOINT
from harness.app.sweep_arms import GpuArms
from harness.config import load_manifest
from harness.engine.arm_spec import CPU_ENV
from harness.facts.packages import digest_of_judge
from harness.model.words import Arm, Tier
from perf_sweeps.block import Block, Failure, SweepPlan
from perf_sweeps.cell import Axes, Engine, Workload
from perf_sweeps.ray_run import RayOptions, run_on_ray
from perf_sweeps.void import find_faults, find_wrong_path

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.engine
SUBJECT = """
def decide(num_rows, is_on):
    return type("Plan", (), {"path": "fast" if is_on and num_rows <= 2 else "slow", "reason": f"{num_rows} rows"})()

def fast(logits):
    return logits

def slow(logits):
    return logits
"""
PROCESSOR = """
from toy_ranks import paths
from vllm.v1.sample.logits_processor import LogitsProcessor

class Toy(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.is_on = (vllm_config.additional_config or {}).get("toy") == "on"

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        return None

    def apply(self, logits):
        is_fast = paths.decide(logits.shape[0], self.is_on).path == "fast"
        return paths.fast(logits) if is_fast else paths.slow(logits)
"""
MANIFEST = """
schema_version = 1
[change]
id = "toy"
title = "toy"
model = "toy"
vllm = "0.32.0"
[paths]
owned = ["toy_ranks/**"]
import_roots = ["toy_ranks"]
[switch]
key = "toy"
on = "on"
off = "off"
[scope]
platforms = ["cpu"]
tensor_parallel = [2]
max_batch = 2
max_context = 512
[dispatch]
specialized_code = ["toy_ranks.paths:fast"]
baseline_code = ["toy_ranks.paths:slow"]
[[dispatch.decisions]]
target = "toy_ranks.paths:decide"
value = "path"
specialized = "fast"
reason = "reason"
[performance]
decode_batches = [1, 2]
[models.nano]
build = ["-m", "none", "{out}"]
max_model_len = 512
engine_args = ["--dtype", "float32", "--enforce-eager", "--skip-tokenizer-init", "--no-enable-prefix-caching",
               "--logits-processors", "toy_ranks.processor:Toy"]
"""


@pytest.fixture
def cluster() -> Iterator[None]:
    """A machine with two GPUs, as Ray counts them."""
    ray = pytest.importorskip("ray", reason="needs the extra `sweep`")
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    small = {"object_store_memory": 80_000_000, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    nodes.add_node(num_cpus=1, num_gpus=2, object_store_memory=80_000_000)
    ray.init(address=nodes.address, log_to_driver=False)
    yield
    ray.shutdown()
    nodes.shutdown()


def without_remains(folder: Path, before: set[Path]) -> None:
    """Takes away what vLLM's CPU ranks leave in shared memory when they are killed: their groups are in the logs."""
    logs = "".join(log.read_text(errors="replace") for log in folder.rglob("server.log"))
    for left in set(Path("/dev/shm").glob("*cpushm*")) - before:
        group = left.name.partition("-tp:")[0]
        if group and group in logs:
            left.unlink()


@pytest.mark.usefixtures("cluster")
def test_two_ranks_an_arm_are_placed_served_and_held_against_each_other(tmp_path: Path) -> None:
    package = tmp_path / "head" / "toy_ranks"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", "paths": SUBJECT, "processor": PROCESSOR}.items():
        (package / f"{name}.py").write_text(text)
    tiny = ROOT / "tests" / "harness" / "engine" / "tiny_llama.py"
    subprocess.run([sys.executable, str(tiny), tmp_path / CHECKPOINT], check=True)
    arms = GpuArms(
        manifest=load_manifest(MANIFEST, "toy"),
        folder=tmp_path,
        passages=("some text that is long enough for a prompt",),
        seed=0,
        env=CPU_ENV,
    )
    cells = Axes(
        workloads=(Workload.DECODE,),
        batches=(2, 3),
        shapes=((8, 12),),
        engines=(Engine(tensor_parallel=2),),
    ).cells()
    plan = SweepPlan(
        subject="toy", tier=Tier.GPU, cells=cells, arms=(Arm.BASELINE, Arm.CANDIDATE), num_blocks=2
    )
    records: list[Block | Failure] = []
    before = set(Path("/dev/shm").glob("*cpushm*"))
    run_on_ray(
        plan.tasks(),
        arms,
        records.append,
        sweep=plan.digest,
        code_digest=digest_of_judge,
        options=RayOptions(address="here"),
    )
    without_remains(tmp_path, before)
    blocks = [record for record in records if isinstance(record, Block)]
    assert len(blocks) == len(records) == 4, records
    for block in blocks:
        cell = next(cell for cell in cells if cell.name == block.cell)
        assert find_faults(cell, block) == ()
        assert {(v.num_ranks, v.rank_difference) for v in block.visits} == {(2, "")}
        order = [v.arm for v in block.visits]
        assert order == order[::-1] and order[0] is not order[1]
        is_served = find_wrong_path(cell, block) == ""
        assert is_served == (cell.batch == 2)
        fell_back = [v.fallbacks for v in block.visits if v.arm is Arm.CANDIDATE]
        assert fell_back == ([{}, {}] if cell.batch == 2 else [{"3 rows": 11}] * 2)
