"""Laws of a sweep's arms: what differs between them is what is timed, and what a CPU cannot serve is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.app.sweep_arms import CpuArms, draft_arguments
from harness.config import load_manifest
from harness.engine.arm_spec import CPU_ENV, ArmSpec
from harness.model.errors import EngineError
from harness.model.words import Arm
from perf_sweeps.cell import Engine

ROOT = Path(__file__).parents[3]
MANIFEST = load_manifest((ROOT / "fasttrack.toml").read_text("utf-8"), "fasttrack.toml")


def specs(tmp_path: Path, *, is_overhead: bool) -> dict[Arm, ArmSpec]:
    arms = CpuArms(manifest=MANIFEST, folder=tmp_path, passages=(), seed=0, is_overhead=is_overhead)
    return {arm: arms.spec(Engine(), arm, tmp_path) for arm in Arm}


def test_the_arms_of_a_sweep_differ_in_the_switch_and_all_are_traced(tmp_path: Path) -> None:
    found = specs(tmp_path, is_overhead=False)
    asked = {arm: spec.additional_config.get("decode_backend") for arm, spec in found.items()}
    assert asked == {
        Arm.BASELINE: None,
        Arm.CANDIDATE: "latency_specialized",
        Arm.BASELINE_AGAIN: "auto",
    }
    assert all(spec.is_traced for spec in found.values())


def test_the_overhead_is_that_of_the_tracer_alone(tmp_path: Path) -> None:
    found = specs(tmp_path, is_overhead=True)
    assert [arm for arm, spec in found.items() if spec.is_traced] == [Arm.CANDIDATE]
    assert len({tuple(spec.additional_config.items()) for spec in found.values()}) == 1


def test_an_untraced_arm_imports_the_commit_that_is_judged(tmp_path: Path) -> None:
    spec = specs(tmp_path, is_overhead=True)[Arm.BASELINE]
    assert spec.environment(tmp_path)["PYTHONPATH"] == str(spec.import_path)


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
    assert draft_arguments(0) == ()
    assert '"num_speculative_tokens": 3' in draft_arguments(3)[-1]


@pytest.mark.parametrize("is_overhead", [False, True])
def test_every_arm_runs_as_the_rest_of_the_cpu_tier_does(tmp_path: Path, is_overhead: bool) -> None:
    for spec in specs(tmp_path, is_overhead=is_overhead).values():
        assert spec.environment(tmp_path).items() >= CPU_ENV.items()
