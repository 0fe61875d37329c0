"""Laws of the plans: candidate and twin run the same script, base and twin serve the same with the switch unset."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.app.probe_plans import has_model, plan_probes
from harness.config import load_manifest
from harness.model.probe import ProbePlan

MANIFEST = load_manifest((Path(__file__).resolve().parents[3] / "fasttrack.toml").read_bytes())


def plans(*, base_has_model: bool = True) -> dict[str, ProbePlan]:
    return plan_probes(MANIFEST, model_dir=Path("m"), bystander_dir=Path("b"), base_has_model=base_has_model)


def test_candidate_and_twin_run_the_same_scenarios_on_engines_that_differ_by_the_switch_alone() -> None:
    made = plans()
    candidate = {e.name: e for e in made["candidate"].engines}
    twin = {e.name: e for e in made["twin"].engines if e.name in candidate}
    assert list(twin) == ["plain", "verify"]
    for name, engine in twin.items():
        assert engine.scenarios == candidate[name].scenarios
        switched = [a for a in candidate[name].args if a not in engine.args]
        assert switched == ["--additional-config", '{"decode_backend": "latency_specialized"}']


def test_base_and_twin_begin_with_the_same_engines_so_that_their_processes_compare() -> None:
    made = plans()
    base = made["base"].engines
    assert [e.name for e in base] == ["bystander", "off"]
    assert made["twin"].engines[: len(base)] == base


def test_a_base_without_the_model_serves_the_bystander_alone() -> None:
    assert [e.name for e in plans(base_has_model=False)["base"].engines] == ["bystander"]


def test_engines_that_are_described_keep_the_cache_that_the_engine_chooses() -> None:
    assert not any("--num-gpu-blocks-override" in e.args for e in plans()["base"].engines)


def test_the_engine_beyond_the_scope_asks_for_one_draft_more_and_comes_last() -> None:
    last = plans()["candidate"].engines[-1]
    assert (last.name, last.within_scope) == ("beyond", False)
    assert any('"num_speculative_tokens": 4' in argument for argument in last.args)


def test_a_scope_without_drafts_has_no_engine_that_verifies() -> None:
    scope = MANIFEST.scope.model_copy(update={"max_draft_tokens": 0})
    manifest = MANIFEST.model_copy(update={"scope": scope})
    made = plan_probes(manifest, model_dir=Path("m"), bystander_dir=Path("b"), base_has_model=False)
    assert [e.name for e in made["candidate"].engines] == ["plain", "lora", "beyond"]


@pytest.mark.parametrize(
    "name", ["specialized_path/nano/model.py", "specialized_path/nano/model/__init__.py"]
)
def test_a_commit_has_the_model_when_it_holds_the_modules_of_its_baseline_code(
    name: str, tmp_path: Path
) -> None:
    assert not has_model(MANIFEST, tmp_path)
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    assert has_model(MANIFEST, tmp_path)
