"""The manifest of two GPUs is the repository's own, but for what two ranks differ in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples.peers.plan import DEPLOYED_RANKS
from examples.slice.config import slice_config
from harness.app.arm_session import additional_config
from harness.app.gpu_tier import served_args
from harness.config import load_manifest
from harness.model.manifest import Manifest, SliceModel
from harness.model.words import Arm, Tier
from perf_sweeps.cell import find_misfits
from perf_sweeps.presets import preset_cells
from specialized_path.kimi_k3.switch import K3Deployment, list_refusals

ROOT = Path(__file__).parents[3]


def manifest_of(path: str) -> Manifest:
    return load_manifest((ROOT / path).read_text("utf-8"), path)


OWN, PAIR = manifest_of("fasttrack.toml"), manifest_of("examples/peers/two-gpus.toml")


def slice_of(manifest: Manifest) -> SliceModel:
    assert manifest.models.slice is not None
    return manifest.models.slice


def overrides(model: SliceModel) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(model.opt_in_args[model.opt_in_args.index("--hf-overrides") + 1])
    return found


def test_two_gpus_serve_the_repositorys_own_slice_two_deployed_ranks_wide() -> None:
    own, pair = slice_of(OWN), slice_of(PAIR)
    for name in ("config", "weights", "max_model_len", "graph_batches"):
        assert getattr(own, name) == getattr(pair, name)
    config = json.loads((ROOT / pair.config).read_text())
    wide = slice_config(DEPLOYED_RANKS // 2, config["num_hidden_layers"], config["max_position_embeddings"])
    assert config | overrides(pair) == wide | overrides(own)
    assert own.scope.model_copy(update={"tensor_parallel": (2,)}) == pair.scope


def test_the_path_takes_two_ranks_on_trial_and_only_where_it_is_switched_on() -> None:
    assert additional_config(PAIR, Arm.BASELINE) == {} and additional_config(PAIR, Arm.BASELINE_AGAIN) == {
        "decode_backend": "auto"
    }
    asked = additional_config(PAIR, Arm.CANDIDATE)
    assert asked == {"decode_backend": "latency_specialized", "decode_provider": "cute-experimental"}
    args = served_args(PAIR.at(Tier.GPU), Arm.CANDIDATE)
    assert json.loads(args[args.index("--additional-config") + 1]) == asked
    pair = K3Deployment(tensor_parallel_size=2)
    assert list_refusals(pair) and not list_refusals(pair, experimental=True)


def test_every_cell_of_the_sweep_lies_within_the_declared_scope() -> None:
    scope = PAIR.at(Tier.GPU).scope
    cells = preset_cells("scope", scope)
    assert {cell.engine.name for cell in cells} == {"tp2"} and not find_misfits(cells, scope)
