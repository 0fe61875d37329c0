"""Laws of a sweep's arms: what differs between them is what is timed, and what cannot be served is refused."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from harness.app import sweep_arms
from harness.app.cpu_tier import CHECKPOINT
from harness.app.gpu_tier import SLICE, served_args
from harness.app.sweep_arms import CpuArms, GpuArms, OverheadArms, ShippedArms, draft_arguments
from harness.config import load_manifest
from harness.engine.arm_spec import CPU_ENV, ArmSpec
from harness.engine.block_server import BlockServer
from harness.model.errors import EngineError
from harness.model.evidence import GpuState
from harness.model.words import Arm, Tier
from perf_sweeps.block import Block, Failure, SweepPlan
from perf_sweeps.cell import Axes, Engine, Workload
from perf_sweeps.measure import run_here
from perf_sweeps.void import find_faults, find_wrong_path
from tests.harness.app.timed_programs import programs

ROOT = Path(__file__).parents[3]
MANIFEST = load_manifest((ROOT / "fasttrack.toml").read_text("utf-8"), "fasttrack.toml")


def specs(tmp_path: Path) -> dict[Arm, ArmSpec]:
    arms = CpuArms(manifest=MANIFEST, folder=tmp_path, passages=(), seed=0)
    return {arm: arms.spec(Engine(), arm, tmp_path) for arm in Arm}


def test_the_arms_of_a_sweep_differ_in_the_switch(tmp_path: Path) -> None:
    asked = {arm: spec.additional_config.get("decode_backend") for arm, spec in specs(tmp_path).items()}
    assert asked == {
        Arm.BASELINE: None,
        Arm.CANDIDATE: "latency_specialized",
        Arm.BASELINE_AGAIN: "auto",
    }


def test_a_driver_whose_modules_are_not_there_is_an_error_that_names_them(tmp_path: Path) -> None:
    server = gpu_arms(tmp_path).server(Engine(), Arm.BASELINE, tmp_path)
    lost = BlockServer(
        replace(server.spec, env={**server.spec.env, "PYTHONPATH": "/nowhere"}),
        (),
        program=(sys.executable, "-S", "-P", "-m", "harness.engine.probe.block_driver"),
        ready_timeout_s=60,
    )
    with pytest.raises(EngineError, match="No module named 'harness'") as caught:
        lost.start()
    assert "harness" in caught.value.log_tail


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (Engine(tensor_parallel=2), "one rank, not tp2"),
        (Engine(draft_tokens=3, acceptance_length=2), "no synthetic acceptance length"),
    ],
)
def test_an_engine_that_a_cpu_does_not_serve_is_refused_with_the_reason(
    tmp_path: Path, engine: Engine, said: str
) -> None:
    arms = CpuArms(manifest=MANIFEST, folder=tmp_path, passages=(), seed=0)
    with pytest.raises(EngineError, match=said):
        arms(engine, (Arm.BASELINE,))


def test_drafts_are_asked_for_only_by_cells_with_drafts() -> None:
    assert draft_arguments(Engine()) == ()
    assert '"num_speculative_tokens": 3' in draft_arguments(Engine(draft_tokens=3))[-1]
    assert "synthetic" not in draft_arguments(Engine(draft_tokens=3))[-1]


def test_every_arm_runs_as_the_rest_of_the_cpu_tier_does(tmp_path: Path) -> None:
    for spec in specs(tmp_path).values():
        assert spec.environment(tmp_path).items() >= CPU_ENV.items()


GPU_MANIFEST = MANIFEST.at(Tier.GPU)
GPU = GpuState(
    name="made", sm_clock_mhz=1980, memory_clock_mhz=2619, power_w=300.0, temperature_c=40, slowdowns=()
)
CELLS = Axes(workloads=(Workload.DECODE,), batches=(2,), shapes=((8, 10),)).cells()
PLAN = SweepPlan(subject="made", tier=Tier.GPU, cells=CELLS, num_blocks=2)


def gpu_arms(folder: Path) -> GpuArms:
    return GpuArms(
        manifest=GPU_MANIFEST,
        folder=folder,
        passages=("some text that is long enough",),
        seed=0,
    )


def plan_of(server: BlockServer) -> list[str]:
    return json.loads(server.command[-1])["args"]


def test_arms_on_a_gpu_serve_the_slice_as_the_gpu_tier_does(tmp_path: Path) -> None:
    arms = gpu_arms(tmp_path)
    for arm in Arm:
        server = arms.server(Engine(), arm, tmp_path)
        assert plan_of(server) == list(served_args(GPU_MANIFEST, arm))
        assert server.spec.dispatch == GPU_MANIFEST.dispatch
        assert server.spec.additional_config.get("decode_backend") == (
            {"candidate": "latency_specialized", "baseline_again": "auto"}.get(arm)
        )


def test_the_overhead_is_that_of_the_candidates_engine_on_either_tier(tmp_path: Path) -> None:
    on_a_gpu = OverheadArms(arms=gpu_arms(tmp_path)).server(tmp_path)
    on_a_cpu = OverheadArms.on_a_cpu(MANIFEST, tmp_path, (), 0).server(tmp_path)
    for server in (on_a_gpu, on_a_cpu):
        assert server.spec.additional_config["decode_backend"] == "latency_specialized"
    assert on_a_cpu.spec.environment(tmp_path).items() >= CPU_ENV.items()
    assert (on_a_gpu.spec.model_dir.name, on_a_cpu.spec.model_dir.name) == (SLICE, CHECKPOINT)


def test_drafts_on_a_gpu_are_accepted_by_chance_and_have_graphs_of_as_many_rows(tmp_path: Path) -> None:
    args = plan_of(
        gpu_arms(tmp_path).server(Engine(draft_tokens=3, acceptance_length=2.5), Arm.BASELINE, tmp_path)
    )
    plain = list(served_args(GPU_MANIFEST, Arm.BASELINE))
    assert args[: len(plain)] == plain
    rest = args[len(plain) :]
    assert rest[: rest.index("--no-enable-prefix-caching")] == [
        "--cudagraph-capture-sizes",
        *("4", "8", "16", "32", "64", "128", "256"),
    ]
    asked = json.loads(rest[-1])
    assert (asked["method"], asked["num_speculative_tokens"]) == ("ngram", 3)
    assert (asked["rejection_sample_method"], asked["synthetic_acceptance_length"]) == ("synthetic", 2.5)


def test_an_engine_that_says_that_it_does_not_take_the_deployment_is_told_apart_from_one_that_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (failure,) = measured(tmp_path, monkeypatch, candidate="refuses")
    assert isinstance(failure, Failure)
    assert (failure.cause, failure.arm) == ("refused", Arm.CANDIDATE)
    assert "ValueError: no drafts" in failure.message


@pytest.mark.parametrize(("visible", "has"), [("0,1", 2), ("", 0), ("3", 1)])
def test_an_engine_of_more_ranks_than_the_machine_leaves_gpus_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, has: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(EngineError, match=f"tp8 needs 8 GPUs of one machine, and has {has}"):
        gpu_arms(tmp_path)(Engine(tensor_parallel=8), tuple(Arm))


def test_an_engine_of_several_ranks_is_started_by_vllms_own_executor(tmp_path: Path) -> None:
    server = gpu_arms(tmp_path).server(
        Engine(tensor_parallel=4, decode_context_parallel=2), Arm.BASELINE, tmp_path
    )
    args = plan_of(server)
    asked = dict(pairwise(args))
    assert (asked["--tensor-parallel-size"], asked["--decode-context-parallel-size"]) == ("4", "2")
    assert asked["--distributed-executor-backend"] == "mp" and server.spec.num_ranks == 4
    assert asked["--worker-extension-cls"].endswith("RankWorker")
    assert "--tensor-parallel-size" not in plan_of(
        gpu_arms(tmp_path).server(Engine(), Arm.BASELINE, tmp_path)
    )


def measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: SweepPlan = PLAN, **behaviour: str
) -> list[Block | Failure]:
    """A sweep on two made GPUs, whose arms are programs that sleep."""
    programs(monkeypatch, behaviour, user=sweep_arms)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(sweep_arms, "find_gpu_reader", lambda: (lambda: GPU, ""))
    (tmp_path / "slice").mkdir()
    (tmp_path / "head").mkdir()
    records: list[Block | Failure] = []
    run_here(plan.tasks(), gpu_arms(tmp_path), records.append, sweep=plan.digest, code_digest="")
    return records


PAIR = PLAN.model_copy(
    update={"cells": tuple(c.model_copy(update={"engine": Engine(tensor_parallel=2)}) for c in CELLS)}
)


def test_the_account_of_two_ranks_is_rank_0s_and_the_other_did_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = measured(tmp_path, monkeypatch, PAIR)
    assert len(blocks) == 2
    for block in blocks:
        assert isinstance(block, Block) and find_faults(PAIR.cells[0], block) == ()
        assert {(v.num_ranks, v.counted_tokens, v.rank_difference) for v in block.visits} == {(2, 20, "")}
        assert "2 ranks served it, not 1" in find_faults(CELLS[0], block)[0]


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("has a rank that decides otherwise", "decisions of rank 1 are"),
        ("has a rank that skips a step", "the row of rank 1 is not there"),
    ],
)
def test_ranks_that_did_not_do_the_same_make_the_cell_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, said: str
) -> None:
    for block in measured(tmp_path, monkeypatch, PAIR, candidate=behaviour):
        assert isinstance(block, Block)
        faults = find_faults(PAIR.cells[0], block)
        assert faults and all("the ranks did not do the same" in f and said in f for f in faults)
        assert all(f.startswith("candidate") for f in faults)


def test_a_rank_without_a_ledger_leaves_nothing_to_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (failure,) = measured(tmp_path, monkeypatch, PAIR, candidate="loses a rank")
    assert isinstance(failure, Failure) and "of 2 ranks, [0] have shown" in failure.message


def test_a_visit_on_a_gpu_has_the_ledgers_account_and_the_gpus_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = measured(tmp_path, monkeypatch)
    assert len(blocks) == 2
    for block in blocks:
        assert isinstance(block, Block)
        assert find_faults(CELLS[0], block) == () and find_wrong_path(CELLS[0], block) == ""
        for visit in block.visits:
            assert (visit.counted_tokens, visit.specialized_share) == (20, float(visit.arm is Arm.CANDIDATE))
            assert visit.decode_step_ms is not None and visit.decode_step_ms >= 2
            assert visit.machine.num_gpu_samples >= 2 and visit.machine.sm_clock_mhz == 1980


@pytest.mark.parametrize("behaviour", ["loses a token", "answers nothing"])
def test_an_arm_on_a_gpu_that_did_other_work_is_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    for record in measured(tmp_path, monkeypatch, candidate=behaviour):
        assert isinstance(record, Block) and find_faults(CELLS[0], record)


@pytest.mark.parametrize("behaviour", ["dies", "remembers", "does not start", "babbles"])
def test_an_arm_on_a_gpu_that_breaks_is_a_failure_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    (failure,) = measured(tmp_path, monkeypatch, candidate=behaviour)
    assert isinstance(failure, Failure) and failure.cause == "engine" and "candidate" in failure.message


def test_routing_functions_are_told_to_the_tracers_of_the_arms(tmp_path: Path) -> None:
    about = {
        "folder": tmp_path,
        "passages": (),
        "seed": 0,
        "routers": ("m:route",),
    }
    for spec in (
        CpuArms(manifest=MANIFEST, **about).spec(Engine(), Arm.CANDIDATE, tmp_path),
        GpuArms(manifest=GPU_MANIFEST, **about).server(Engine(), Arm.CANDIDATE, tmp_path).spec,
    ):
        assert spec.trace_settings.routers == ("m:route",)


def test_a_machine_without_the_folder_gets_its_files_and_one_with_it_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen, gone = tmp_path / "sweep", [], []
    (folder / "head").mkdir(parents=True)
    (folder / "head" / "a.py").write_text("first")
    shipped = pickle.loads(pickle.dumps(ShippedArms.of(gpu_arms(folder))))
    monkeypatch.setattr(
        GpuArms, "__call__", lambda arms, *_: seen.append((arms.folder / "head/a.py").read_text())
    )
    monkeypatch.setattr(sweep_arms.atexit, "register", lambda *call, **_: gone.append(call[1]))
    (folder / "head" / "a.py").write_text("second")
    shipped(Engine(), tuple(Arm))
    shutil.rmtree(folder)
    shipped(Engine(), tuple(Arm))
    assert (seen, gone) == (["second", "first"], [folder])
