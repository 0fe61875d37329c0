"""Laws of the gpu tier, without a GPU: what it would run, what it records, and what a failure leaves."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.app import gpu_tier
from harness.app.cpu_tier import CpuRun
from harness.app.gpu_tier import (
    GRAPHS,
    HANDOVER,
    NOT_ASKED,
    SLICE,
    GpuRequest,
    candidate_engines,
    choose,
    collect_gpu_tier,
    graph_engine,
    graph_scenario,
    plan_gpu,
)
from harness.app.probes import ProbeRun, new_process
from harness.app.recorder import Progress, Recorder
from harness.app.suite_plan import SIZES
from harness.app.validate import collect_tiers
from harness.config import load_manifest
from harness.engine.probe.process import ProbeProcess
from harness.model.change import Change
from harness.model.evidence import (
    CapturedPointersEvidence,
    DefaultOffEvidence,
    GapEvidence,
    ProbeEvidence,
)
from harness.model.manifest import Manifest
from harness.model.probe import DRAWN_FORMAT, ProbePlan, WeightsSource
from harness.model.words import Arm, Tier
from harness.options import Profile
from tests.harness.app.kept_records import Kept

ROOT = Path(__file__).resolve().parents[3]
SLICED = load_manifest((ROOT / "fasttrack.toml").read_bytes())
OURS = SLICED.model_copy(update={"models": SLICED.models.model_copy(update={"slice": None})})
"""Without the slice the gpu tier serves the miniature model."""


WEIGHTS = b"def fill(model):\n    pass\n"


def on(*platforms: str) -> Manifest:
    """Our manifest with other platforms in its scope."""
    return OURS.model_copy(update={"scope": OURS.scope.model_copy(update={"platforms": platforms})})


MANIFEST = on("cpu", "sm_90a")
CHANGE = Change(base="a" * 40, merge_base="a" * 40, head="b" * 40, head_subject="made")


@pytest.fixture
def run(tmp_path: Path) -> CpuRun:
    """A run whose base has no model and whose checkpoint is built by nothing."""
    for name in ("base", "head", "work"):
        (tmp_path / name).mkdir()
    nano = MANIFEST.nano_model.model_copy(update={"build": ("-c", "pass")})
    models = MANIFEST.models.model_copy(update={"nano": nano})
    return CpuRun(
        manifest=MANIFEST.model_copy(update={"models": models}),
        recorder=Recorder(sink=Kept(), progress=Progress(quiet=True)),
        import_path=tmp_path / "head",
        base_path=tmp_path / "base",
        change=CHANGE,
        workdir=tmp_path / "work",
        data_root=tmp_path,
        tasks_root=tmp_path,
    )


PROGRAM = """
import json, pathlib, sys
plan = pathlib.Path(sys.argv[1])
folder = plan.parent
settings = json.loads((folder / "trace.json").read_text())
header = {"kind": "header", "nonce": settings["nonce"], "pid": 1}
(folder / "1.jsonl").write_text(json.dumps(header) + "\\n")
records = [{"kind": "started", "name": e["name"], "ready_s": 1.0, "caches_prefixes": False}
           for e in json.loads(plan.read_text())["engines"]]
graph = {"name": "graph 0", "num_kernels": 2, "num_addresses": 3, "num_replays": 4, "num_replays_after_largest": 4,
         "num_replays_after_eager": 1}
if GRAPHS:
    records.append({"kind": "graphs", "engine": "graphs", "graphs": [graph], "losses": [], "planted_loss_seen": True})
lines = [json.dumps(r) + "\\n" for r in [*records, {"kind": "end"}]]
(folder / "probe.records").write_text("".join(lines))
"""


def programs(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Puts a program in the driver's place, and times nothing."""
    monkeypatch.setattr(gpu_tier, "collect_gpu_timing", lambda *_, meanwhile, **__: meanwhile())

    def made(run: ProbeRun, name: str, plan: ProbePlan) -> ProbeProcess:
        process = new_process(run, name, plan)
        return ProbeProcess(process.spec, plan, program=(sys.executable, "-S", "-c", program))

    new_process = gpu_tier.new_process
    monkeypatch.setattr(gpu_tier, "new_process", made)


def probes_of(run: CpuRun, manifest: Manifest) -> ProbeRun:
    return ProbeRun(
        manifest=manifest,
        recorder=run.recorder,
        head_path=run.import_path,
        base_path=run.base_path,
        change=CHANGE,
        model_dir=run.workdir,
        workdir=run.workdir,
        tier=Tier.GPU,
    )


def gaps_of(run: CpuRun) -> dict[str, GapEvidence]:
    return {r.what: r for r in run.recorder.records if isinstance(r, GapEvidence)}


def test_graphs_and_both_commits_are_recorded_at_the_gpu_tier(
    run: CpuRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(monkeypatch, PROGRAM.replace("GRAPHS", "True"))
    collect_gpu_tier(run)
    (graphs,) = run.recorder.evidence.of(CapturedPointersEvidence, tier=Tier.GPU)
    assert (graphs.graphs[0].num_addresses, graphs.planted_loss_seen) == (3, True)
    assert [e.name for r in run.recorder.evidence.of(ProbeEvidence, tier=Tier.GPU) for e in r.engines] == [
        "graphs",
        "handover",
        "beyond",
        "lora",
    ]
    assert {r.side for r in run.recorder.evidence.of(DefaultOffEvidence, tier=Tier.GPU)} == {"base", "head"}


@pytest.mark.parametrize("profile", ["full", "quick"])
def test_decode_is_timed_in_the_full_profile_and_a_gap_in_the_others(
    run: CpuRun, monkeypatch: pytest.MonkeyPatch, profile: Profile
) -> None:
    programs(monkeypatch, PROGRAM.replace("GRAPHS", "True"))
    asked: list[tuple[tuple[int, ...], int, set[str]]] = []

    def timed(
        probes: ProbeRun,
        args_of: Callable[[Arm], Sequence[str]],
        *,
        num_pairs: int,
        meanwhile: Callable[[], None],
    ) -> None:
        meanwhile()
        switches = {word for arm in Arm for word in args_of(arm) if "decode_backend" in word}
        asked.append((probes.manifest.performance.batches, num_pairs, switches))

    monkeypatch.setattr(gpu_tier, "collect_gpu_timing", timed)
    collect_gpu_tier(
        replace(run, manifest=SLICED, slice_config=b"{}", slice_weights=WEIGHTS, sizes=SIZES[profile])
    )
    gaps = gaps_of(run)
    if profile == "full":
        both = {json.dumps({SLICED.switch.key: value}) for value in (SLICED.switch.on, SLICED.switch.off)}
        assert asked == [((1, 8, 64), 8, both)] and "timing" not in gaps
    else:
        assert not asked and "--profile full" in gaps["timing"].reason and not gaps["timing"].broke


def test_of_a_change_without_a_gpu_in_its_scope_only_both_commits_are_run(
    run: CpuRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(monkeypatch, PROGRAM.replace("GRAPHS", "True"))
    collect_gpu_tier(replace(run, manifest=on("cpu", "gfx950")))
    gaps = gaps_of(run)
    assert gaps.keys() == {"timing", *gpu_tier.NEEDS["candidate"]}
    assert {gap.reason for gap in gaps.values()} == {
        "no deployment that it declares has an NVIDIA GPU (platforms: cpu, gfx950)"
    }
    assert not run.recorder.evidence.of(CapturedPointersEvidence)
    assert {r.side for r in run.recorder.evidence.of(DefaultOffEvidence, tier=Tier.GPU)} == {"base", "head"}


@pytest.mark.parametrize(
    ("program", "missing"),
    [
        (
            "raise RuntimeError('no CUDA device')",
            {need for needs in gpu_tier.NEEDS.values() for need in needs},
        ),
        (
            PROGRAM.replace("GRAPHS", "False"),
            {gpu_tier.NEEDS["candidate"][0], gpu_tier.NEEDS["twin"][0]},
        ),
    ],
    ids=["every process fails", "no graphs"],
)
def test_a_process_that_shows_nothing_leaves_a_gap_that_broke(
    run: CpuRun, monkeypatch: pytest.MonkeyPatch, program: str, missing: set[str]
) -> None:
    programs(monkeypatch, program)
    collect_gpu_tier(run)
    gaps = gaps_of(run)
    assert {what for what, gap in gaps.items() if gap.broke} == missing


@pytest.mark.parametrize(
    ("engines", "left_out"),
    [
        ({"candidate": {GRAPHS}}, {"probe of twin", "default off of head", "default off of base"}),
        (
            {"candidate": {HANDOVER}, "twin": {HANDOVER}},
            {"captured graphs of candidate", "default off of head", "default off of base"},
        ),
        (
            {"head": {"bystander"}, "base": {"bystander"}},
            {"captured graphs of candidate", "probe of candidate", "probe of twin"},
        ),
    ],
    ids=["graphs", "hand-over", "both commits"],
)
def test_what_is_not_asked_for_is_not_started_and_leaves_a_gap_that_did_not_break(
    run: CpuRun, monkeypatch: pytest.MonkeyPatch, engines: dict[str, set[str]], left_out: set[str]
) -> None:
    programs(monkeypatch, PROGRAM.replace("GRAPHS", "'graphs' in plan.read_text()"))
    held: list[str] = []

    @contextmanager
    def room_for(process: str) -> Iterator[None]:
        assert not (run.workdir / "probes" / process / "probe.records").exists()
        yield
        assert (run.workdir / "probes" / process / "probe.records").exists()
        held.append(process)

    collect_gpu_tier(run, GpuRequest(engines=engines, room_for=room_for))
    gaps = {what: gap for what, gap in gaps_of(run).items() if gap.reason == NOT_ASKED}
    assert gaps.keys() == left_out and not any(gap.broke for gap in gaps.values())
    assert sorted(held) == sorted(engines)
    for process, names in engines.items():
        plan = ProbePlan.model_validate_json((run.workdir / f"probes/{process}/plan.json").read_bytes())
        assert {engine.name for engine in plan.engines} <= names
    records = run.recorder.evidence.of(CapturedPointersEvidence, tier=Tier.GPU)
    assert bool(records) is (GRAPHS in engines.get("candidate", ()))


def test_graphs_that_were_asked_for_and_are_not_there_broke_the_run(
    run: CpuRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(monkeypatch, PROGRAM.replace("GRAPHS", "False"))
    collect_gpu_tier(run, GpuRequest(engines={"candidate": {GRAPHS}}))
    assert gaps_of(run)["captured graphs of candidate"].broke


def test_only_engines_that_are_given_their_cache_start_on_a_smaller_share(run: CpuRun) -> None:
    for manifest, is_given in ((SLICED.at(Tier.GPU), True), (MANIFEST, False)):
        every = plan_gpu(probes_of(run, manifest))
        chosen = choose(every, GpuRequest(memory_share="0.1"))
        for name, shares in (("candidate", "0.1" if is_given else "0.3"), ("head", "0.1")):
            for before, after in zip(every[name].engines, chosen[name].engines, strict=True):
                at = before.args.index("--gpu-memory-utilization") + 1
                assert (before.args[at], after.args[at]) == ("0.3", shares)
                assert (*before.args[:at], *before.args[at + 1 :]) == (
                    *after.args[:at],
                    *after.args[at + 1 :],
                )


def test_nothing_is_left_out_where_nothing_is_said(run: CpuRun) -> None:
    every = plan_gpu(probes_of(run, SLICED.at(Tier.GPU)))
    assert choose(every, gpu_tier.EVERYTHING) == every


@pytest.mark.parametrize("sizes", [tuple(range(1, 10)), (1, 2, 4, 8)], ids=["every batch", "few sizes"])
def test_every_batch_is_decoded_and_every_size_prompted_before_and_after_an_eager_step(
    sizes: tuple[int, ...],
) -> None:
    """Told without an engine: a request takes one step for its prompt and one for each further token."""
    scenario, most = graph_scenario(sizes, 9, 2048), 9
    batches: Counter[int] = Counter()
    prompts: Counter[int] = Counter()
    decoding: Counter[int] = Counter()
    for event in scenario.events:
        for request in event.add:
            for step in range(1, request.max_tokens):
                decoding[event.before_step + step] += 1
            if "_decode_" not in request.name and request.num_tokens is not None:
                prompts[request.num_tokens] += 1
    batches.update(decoding.values())
    assert {size: batches[size] for size in range(1, most + 1)} == dict.fromkeys(range(1, most + 1), 2)
    assert {size: count for size, count in prompts.items() if size <= most} == dict.fromkeys(sizes, 2)
    assert [n for n in prompts if n > most] == [gpu_tier.EAGER_TOKENS]


def test_prompts_of_a_graphs_size_have_their_steps_to_themselves() -> None:
    scenario = graph_scenario(range(1, 10), 9, 2048)
    last_decode = max(
        event.before_step + request.max_tokens - 1 for event in scenario.events[:1] for request in event.add
    )
    assert last_decode < min(event.before_step for event in scenario.events[1:])


def test_the_candidate_has_a_graph_for_each_batch_of_its_scope_and_one_more() -> None:
    engine = graph_engine(MANIFEST)
    at = engine.args.index("--cudagraph-capture-sizes")
    assert engine.args[at + 1 : at + 2 + MANIFEST.scope.max_batch] == tuple("123456789")
    assert "--enforce-eager" not in engine.args
    assert json.dumps({MANIFEST.switch.key: MANIFEST.switch.on}) in engine.args


@pytest.mark.parametrize("manifest", [MANIFEST, SLICED.at(Tier.GPU)], ids=["miniature", "slice"])
def test_base_and_head_run_the_same_plan_with_the_switch_unset(run: CpuRun, manifest: Manifest) -> None:
    probes = probes_of(run, manifest)
    plans = plan_gpu(probes)
    assert plans["base"] == plans["head"]
    caches = [new_process(probes, name, plan).spec.cache_dir for name, plan in plans.items()]
    assert len(set(caches)) == len(plans), "one finds what another compiled"
    assert all(e.watches_graphs and e.takes_snapshot for e in plans["head"].engines)
    assert {len(e.scenarios) for e in plans["head"].engines} == {1 + gpu_tier.NUM_REPEATS}
    assert not any("--additional-config" in e.args for e in plans["head"].engines)
    assert [e.name for e in plans["candidate"].engines] == [GRAPHS, HANDOVER, "beyond", "lora"]


def test_the_gpu_tier_serves_the_slice_within_its_own_scope_and_with_drawn_weights(
    run: CpuRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(monkeypatch, PROGRAM.replace("GRAPHS", "True"))
    collect_gpu_tier(replace(run, manifest=SLICED, slice_config=b"{}", slice_weights=WEIGHTS))
    assert (run.workdir / SLICE / "config.json").read_bytes() == b"{}"
    plan = ProbePlan.model_validate_json((run.workdir / "probes/candidate/plan.json").read_bytes())
    args = " ".join(plan.engines[0].args)
    assert f"--max-num-seqs {SLICED.at(Tier.GPU).scope.max_batch + 1} " in args
    assert f"--load-format {DRAWN_FORMAT}" in args and "KimiK3SpecializedForCausalLM" in args
    assert plan.weights is not None and Path(plan.weights.file).read_bytes() == WEIGHTS
    assert plan.weights.name == "examples/slice/weights.py:fill"
    assert args.endswith("--cudagraph-capture-sizes 1 2 4 8 16 32 64")


def test_a_slice_whose_file_the_head_lacks_is_a_gap_that_broke(run: CpuRun) -> None:
    collect_gpu_tier(replace(run, manifest=SLICED))
    gap = gaps_of(run)["tier gpu"]
    assert gap.broke and "examples/slice/rank-slice.json" in gap.reason


def test_weights_that_the_head_lacks_are_a_gap_that_broke(run: CpuRun) -> None:
    collect_gpu_tier(replace(run, manifest=SLICED, slice_config=b"{}"))
    gap = gaps_of(run)["tier gpu"]
    assert gap.broke and "examples/slice/weights.py" in gap.reason


def test_both_sides_of_a_comparison_ask_for_the_same_weights_and_base_and_head_for_the_engines(
    run: CpuRun,
) -> None:
    source = WeightsSource(name="w.py:fill", file="w.py")
    plans = plan_gpu(replace(probes_of(run, SLICED.at(Tier.GPU)), weights=source))
    formats = {
        name: {e.args[e.args.index("--load-format") + 1] for e in plan.engines if "{model}" in e.args}
        for name, plan in plans.items()
    }
    assert formats["candidate"] == formats["twin"] == {DRAWN_FORMAT}
    assert plans["candidate"].weights == plans["twin"].weights == source
    assert formats["head"] | formats["base"] <= {"dummy"} and plans["head"].weights is None


@pytest.mark.parametrize("has_class", [False, True])
def test_the_changes_own_class_is_served_with_the_switch_unset_only_where_the_base_has_it(
    run: CpuRun, has_class: bool
) -> None:
    if has_class:
        module = run.base_path / "specialized_path/kimi_k3/decode.py"
        module.parent.mkdir(parents=True)
        module.touch()
    engines = {
        e.name: " ".join(e.args) for e in plan_gpu(probes_of(run, SLICED.at(Tier.GPU)))["base"].engines
    }
    assert engines.keys() == {"bystander", "off"}
    assert ("KimiK3SpecializedForCausalLM" in engines["off"]) is has_class


def test_deployments_beyond_the_scope_are_the_same_with_one_thing_more() -> None:
    served, _, *others = candidate_engines(SLICED.at(Tier.GPU))
    assert {e.args[len(served.args)] for e in others} == {"--speculative-config", "--enable-lora"}
    assert all(
        e.args[: len(served.args)] == served.args and e.may_refuse and not e.within_scope for e in others
    )


def test_the_twin_runs_the_candidates_script_with_the_switch_unset(run: CpuRun) -> None:
    plans = plan_gpu(probes_of(run, SLICED.at(Tier.GPU)))
    (twin,), ours = plans["twin"].engines, plans["candidate"].engines[1]
    switch = SLICED.switch
    at = ours.args.index("--additional-config")
    assert ours.args[at + 1] == json.dumps({switch.key: switch.on})
    assert twin.args == (*ours.args[:at], *ours.args[at + 2 :])
    assert (twin.name, twin.scenarios) == (ours.name, ours.scenarios)
    assert twin.watches_handover and ours.watches_handover and not twin.may_refuse


def test_no_deployment_of_the_candidate_replays_a_graph_unseen() -> None:
    assert all(e.watches_graphs for e in candidate_engines(SLICED.at(Tier.GPU)))


@pytest.mark.parametrize("able", [True, False])
def test_the_tier_is_collected_where_the_machine_can_and_leaves_a_gap_elsewhere(
    run: CpuRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, able: bool
) -> None:
    collected: list[object] = []
    # The package exports the function of this name, too.
    module = importlib.import_module("harness.app.validate")
    monkeypatch.setattr(
        module, "can_run", lambda tier: (able and tier is Tier.GPU, f"no {tier} on this machine")
    )
    monkeypatch.setattr(module, "run_cpu_tier", lambda *arguments: collected.append(arguments[-2:]))
    question = SimpleNamespace(policy=SimpleNamespace(required={}), manifest=MANIFEST)
    options = SimpleNamespace(change=SimpleNamespace(tier=Tier.GPU), out=tmp_path)
    collectors = {Tier.CPU: lambda _: None, Tier.GPU: collect_gpu_tier}
    collect_tiers(question, options, run.recorder, collectors)  # type: ignore[arg-type]
    assert collected == ([(collect_gpu_tier, Tier.GPU)] if able else [])
    assert ("tier gpu" in gaps_of(run)) is not able
