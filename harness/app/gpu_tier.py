"""Collects the gpu tier: captured graphs, the way of every step, both commits on a GPU with the switch unset, and
timings of decode.

What is served is the manifest's slice of the real model, or the miniature model where there is none. A change that
declares no deployment with a GPU leaves gaps for its candidate and its timings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from eval_suites.edges import plain_scenarios
from eval_suites.prompts import long_prompt, select_prompts
from harness.app.arm_session import additional_config
from harness.app.cpu_tier import CHECKPOINT, NOT_IN_PROFILE, CpuRun, build_checkpoint, probe_run
from harness.app.gpu_timing import collect_gpu_timing
from harness.app.probe_plans import SEED, bystander_engine, has_code, has_model, off_engine, repeated
from harness.app.probes import (
    FinishedRun,
    ProbeRun,
    describe_process,
    new_process,
    read_steps,
    record_handover,
    record_snapshots,
)
from harness.app.recorder import utc_now
from harness.engine.bystander import write_bystander
from harness.engine.probe.process import ProbeProcess
from harness.engine.probe.recording import Recording
from harness.model.errors import EngineError, EvidenceError
from harness.model.evidence import ArmEvidence, CapturedPointersEvidence, ProbeEvidence
from harness.model.manifest import Manifest
from harness.model.probe import (
    DRAWN_FORMAT,
    LORA,
    ProbeEngine,
    ProbeEvent,
    ProbePlan,
    ProbeRequest,
    Scenario,
    WeightsSource,
)
from harness.model.words import Arm, Tier

NOT_ASKED = "not asked of this change"
GRAPHS = "graphs"
"""The engine whose captured graphs are followed."""
BEYOND = "beyond"
"""The engine with more drafts than the scope has."""
HANDOVER = "handover"
"""The engine whose states and cache rows are compared with the twin's at every step."""
SLICE = "slice"
"""The folder of the slice's checkpoint, below the run's."""
NEEDS = {
    "candidate": (f"captured graphs of {Arm.CANDIDATE}", f"probe of {Arm.CANDIDATE}"),
    "twin": ("probe of twin",),
    "head": ("default off of head",),
    "base": ("default off of base",),
}
"""How gaps name what each process would have shown."""
NUM_REPEATS = 8
"""How often base and head serve again what they are compared by: kernels that add in any order show here."""
EAGER_TOKENS = 1024
"""A prompt of more tokens than any graph is captured for."""
_SHARE = "--gpu-memory-utilization"
_MEMORY = (_SHARE, "0.3")
"""Of the GPU, which the processes share; the cache of those that are compared is given outright below."""
_CACHE = "--kv-cache-memory-bytes"
_COMPARED = (
    *(_CACHE, str(256 * 2**20)),
    *("--max-num-seqs", "64"),
    *("--cudagraph-capture-sizes", "1", "2", "4", "8", "16", "32", "64"),
)
"""What base and head are given alike: memory that vLLM measures is not the same twice, and graphs take time."""


def _has_room(_process: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """How much of the tier is run, and on how much of the GPU."""

    engines: Mapping[str, Collection[str]] | None = None
    """Names of the engines that are started, by process; None: all. What is left out leaves a gap."""
    memory_share: str = ""
    """Of the GPU's memory: what must be free for an engine to start that is given its cache outright; empty: as
    always."""
    room_for: Callable[[str], AbstractContextManager[None]] = _has_room
    """What is held while the process of a name runs."""


EVERYTHING = GpuRequest()


def collect_gpu_tier(run: CpuRun, request: GpuRequest = EVERYTHING) -> None:
    """Runs the processes side by side on the GPU and records what they show; what fails leaves a gap."""
    run = replace(run, manifest=run.manifest.at(Tier.GPU))
    no_gpu = run.manifest.scope.why_no_nvidia_gpu
    if no_gpu:
        for need in ("timing", *NEEDS["candidate"]):
            run.recorder.gap(Tier.GPU, need, no_gpu, broke=False)
    is_slice = run.manifest.models.slice is not None
    probes = replace(probe_run(run, run.workdir / (SLICE if is_slice else CHECKPOINT)), tier=Tier.GPU)
    probes = replace(probes, weights=weights_source(run.manifest, run.workdir))
    every = plan_gpu(probes)
    plans = choose(every, request)
    for need in needs_left_out(every, plans):
        run.recorder.gap(Tier.GPU, need, NOT_ASKED, broke=False)
    try:
        if any("{model}" in engine.args for plan in plans.values() for engine in plan.engines):
            _ = write_slice(run) if is_slice else build_checkpoint(run)
    except EngineError as error:
        run.recorder.broken(Tier.GPU, f"tier {Tier.GPU}", error)
        return
    write_bystander(probes.workdir / "bystander")

    def run_one(name: str) -> FinishedRun | None:
        return _run_process(probes, name, plans[name], request.room_for)

    with ThreadPoolExecutor(max(1, len(plans))) as pool:
        try:
            done = dict(zip(plans, pool.map(run_one, plans), strict=True))
        except BaseException:
            probes.kill()
            raise
    compare = partial(_record_handover_of, probes, done)
    if run.sizes.timing_pairs and not no_gpu:
        args_of, num_pairs = partial(served_args, run.manifest), run.sizes.timing_pairs
        collect_gpu_timing(probes, args_of, num_pairs=num_pairs, meanwhile=compare)
        return
    compare()
    if not no_gpu:
        run.recorder.gap(Tier.GPU, "timing", NOT_IN_PROFILE, broke=False)


def choose(plans: Mapping[str, ProbePlan], request: GpuRequest) -> dict[str, ProbePlan]:
    """The plans with the engines that are asked for, on the asked share of memory."""
    chosen = {}
    for name, plan in plans.items():
        engines = tuple(
            _on_share(engine, request.memory_share)
            for engine in plan.engines
            if request.engines is None or engine.name in request.engines.get(name, ())
        )
        if engines:
            chosen[name] = plan.model_copy(update={"engines": engines})
    return chosen


def _on_share(engine: ProbeEngine, share: str) -> ProbeEngine:
    """An engine that finds its cache by that share keeps the tier's own."""
    if not share or _CACHE not in engine.args:
        return engine
    at = engine.args.index(_SHARE) + 1
    return engine.model_copy(update={"args": (*engine.args[:at], share, *engine.args[at + 1 :])})


def needs_left_out(every: Mapping[str, ProbePlan], chosen: Mapping[str, ProbePlan]) -> Iterator[str]:
    """What the plans would have shown that were not chosen, as gaps name it."""
    for name in every:
        if name not in chosen:
            yield from NEEDS[name]
        elif name == "candidate" and not _follows_graphs(chosen[name]):
            yield NEEDS[name][0]


def _follows_graphs(plan: ProbePlan) -> bool:
    return any(engine.name == GRAPHS for engine in plan.engines)


def write_slice(run: CpuRun) -> Path:
    """Writes the slice's configuration, for which vLLM draws weights, and returns its folder.

    Raises `EngineError` when the head commit has no such file.
    """
    found = run.manifest.models.slice
    if found is None or run.slice_config is None:
        message = f"the head commit has no {found.config if found else 'slice'}"
        raise EngineError("no-slice-config", message, "see [models.slice] config in the manifest")
    folder = run.workdir / SLICE
    folder.mkdir(parents=True, exist_ok=True)
    source = weights_source(run.manifest, run.workdir)
    if source is not None:
        if run.slice_weights is None:
            message = f"the head commit has no {source.name.partition(':')[0]}"
            raise EngineError("no-slice-weights", message, "see [models.slice] weights in the manifest")
        Path(source.file).write_bytes(run.slice_weights)
    (folder / "config.json").write_bytes(run.slice_config)
    return folder


def weights_source(manifest: Manifest, folder: Path) -> WeightsSource | None:
    """What draws the slice's weights, and where `write_slice` puts it below `folder`."""
    found = manifest.models.slice
    if found is None or not found.weights:
        return None
    return WeightsSource(name=found.weights, file=str(folder / "slice_weights.py"))


def _record_handover_of(run: ProbeRun, done: Mapping[str, FinishedRun | None]) -> None:
    candidate, twin = done.get("candidate"), done.get("twin")
    if candidate is not None and twin is not None:
        record_handover_on_a_gpu(run, candidate.recording, twin)
        run.recorder.progress.say("compared the candidate's cache with the twin's")


def record_handover_on_a_gpu(run: ProbeRun, candidate: Recording, twin: FinishedRun) -> None:
    """Records how far the candidate's steps start from the twin's; a gap where that was not watched on both sides."""
    if not all(HANDOVER in recording.layouts for recording in (candidate, twin.recording)):
        reason = "the cache of one of the two processes was not watched"
        run.recorder.gap(Tier.GPU, NEEDS["twin"][0], reason, broke=True)
        return
    try:
        record_handover(run, candidate, twin.recording, twin.process)
    except ValueError as error:
        run.recorder.gap(Tier.GPU, NEEDS["twin"][0], str(error), broke=True)


def _run_process(
    probes: ProbeRun, name: str, plan: ProbePlan, room_for: Callable[[str], AbstractContextManager[None]]
) -> FinishedRun | None:
    process = new_process(probes, name, plan)
    probes.processes.append(process)
    try:
        with room_for(name):
            probes.recorder.progress.say(f"{NEEDS[name][-1]}: starting")
            recording = process.run()
    except (EngineError, EvidenceError) as error:
        log = error.log_tail.splitlines() if isinstance(error, EngineError) else ()
        for need in NEEDS[name]:
            probes.recorder.gap(Tier.GPU, need, error.message, broke=True, details=log)
        return None
    probes.recorder.progress.say(f"{NEEDS[name][-1]}: {len(recording.steps)} steps")
    if name == "candidate":
        record_candidate_on_a_gpu(probes, recording, process)
    elif name != "twin":
        record_snapshots(probes, name, recording)
    return FinishedRun(process=process, recording=recording)


def plan_gpu(run: ProbeRun) -> dict[str, ProbePlan]:
    """What each process does, by its name: the candidate's graphs are replayed, a twin that never takes the path runs
    the script of its hand-overs, and both commits are described.

    Without a declared GPU there is no candidate to run: its engine must refuse to start there, or falls back.
    """
    manifest = run.manifest
    off = [bystander_engine(_on_a_gpu(_COMPARED))]
    if has_model(manifest, run.base_path):
        # A class that the base lacks cannot be asked of it by name.
        opted_in = has_code(manifest, manifest.dispatch.specialized_code, run.base_path)
        off.append(
            off_engine(
                manifest.gpu_model,
                _on_a_gpu((*_COMPARED, *_slice_args(manifest, "dummy", opted_in=opted_in))),
            )
        )
    off = [repeated(engine, NUM_REPEATS).model_copy(update={"watches_graphs": True}) for engine in off]
    engines: dict[str, Sequence[ProbeEngine]] = {"head": off, "base": off}
    if manifest.scope.nvidia_platforms:
        twin = [handover_engine(manifest, is_candidate=False)]
        engines = {"candidate": candidate_engines(manifest), "twin": twin} | engines
    return {
        name: ProbePlan(
            engines=tuple(found),
            model_dir=str(run.model_dir),
            bystander_dir=str(run.workdir / "bystander"),
            weights=None if name in ("head", "base") else run.weights,
        )
        for name, found in engines.items()
    }


def candidate_engines(manifest: Manifest) -> list[ProbeEngine]:
    """The deployment of the scope, the same beside a twin, and two beyond, which are refused or fall back: with drafts,
    with adapters.
    """
    served = graph_engine(manifest)
    beyond = served.model_copy(
        update={
            "scenarios": served.scenarios[-1:],
            "watches_pages": False,
            "within_scope": False,
        }
    )
    drafts = {
        "method": "ngram",
        "num_speculative_tokens": manifest.scope.max_draft_tokens + 1,
        "prompt_lookup_min": 1,
        "prompt_lookup_max": 3,
    }
    others = {BEYOND: ("--speculative-config", json.dumps(drafts)), LORA: ("--enable-lora",)}
    return [
        served,
        handover_engine(manifest, is_candidate=True),
        *(
            beyond.model_copy(update={"name": name, "args": (*served.args, *args)})
            for name, args in others.items()
        ),
    ]


def graph_engine(manifest: Manifest) -> ProbeEngine:
    """The candidate with its graphs, for one request more than its scope takes; at every edge of the scope.

    The graphs are those that the slice's deployment captures; without a slice, one for every batch.
    """
    scope, model = manifest.scope, manifest.gpu_model
    sizes = graph_sizes(manifest)
    return ProbeEngine(
        name=GRAPHS,
        args=served_args(manifest, Arm.CANDIDATE),
        scenarios=(graph_scenario(sizes, scope.max_batch + 1, model.max_model_len), *_edges(manifest)),
        watches_state=False,
        watches_pages=True,
        watches_graphs=True,
        may_refuse=True,
    )


def handover_engine(manifest: Manifest, *, is_candidate: bool) -> ProbeEngine:
    """The deployment of the scope at every edge of it, with what each step starts from; or its twin, switched off."""
    return ProbeEngine(
        name=HANDOVER,
        args=served_args(manifest, Arm.CANDIDATE if is_candidate else Arm.BASELINE),
        scenarios=_edges(manifest),
        watches_state=False,
        watches_handover=True,
        gives_tokens=True,
        watches_graphs=True,
        may_refuse=is_candidate,
    )


def _edges(manifest: Manifest) -> tuple[Scenario, ...]:
    return plain_scenarios(manifest.scope, max_model_len=manifest.gpu_model.max_model_len, seed=SEED + 40)


def graph_sizes(manifest: Manifest) -> tuple[int, ...]:
    """What graphs are captured for, in requests of a decode step."""
    declared = manifest.models.slice.graph_batches if manifest.models.slice is not None else ()
    return declared or tuple(range(1, manifest.scope.max_batch + 2))


def served_args(manifest: Manifest, arm: Arm) -> tuple[str, ...]:
    """Of an engine for one request more than the scope takes; all arms ask for the change's own class."""
    model = manifest.gpu_model
    args = {
        "--model": "{model}",
        "--max-model-len": str(model.max_model_len),
        "--max-num-seqs": str(manifest.scope.max_batch + 1),
        "--max-num-batched-tokens": str(max(EAGER_TOKENS, min(model.max_model_len, 2 * EAGER_TOKENS))),
    }
    if switch := additional_config(manifest, arm):
        args["--additional-config"] = json.dumps(switch)
    pairs = tuple(word for pair in args.items() for word in pair)
    drawn = DRAWN_FORMAT if manifest.models.slice is not None and manifest.models.slice.weights else "dummy"
    captured = ("--cudagraph-capture-sizes", *map(str, graph_sizes(manifest)))
    return _on_a_gpu((*pairs, *_slice_args(manifest, drawn, opted_in=True), *model.engine_args, *captured))


def graph_scenario(sizes: Sequence[int], most: int, max_model_len: int) -> Scenario:
    """Every batch by decodes and every size by prompts, then a prompt that no graph is captured for, then all again.

    Args:
        sizes: What graphs are captured for.
        most: Requests that decode together at first.
        max_model_len: Tokens that the model takes.
    """
    text = long_prompt(8 * EAGER_TOKENS, seed=SEED + 31)
    length = min(EAGER_TOKENS, max_model_len - 2)
    eager = ProbeRequest(name="eager", text=text, num_tokens=length, max_tokens=1)
    between = most + len(sizes) + 4
    events = (
        *_every_size("a", sizes, most, 0),
        ProbeEvent(before_step=between, add=(eager,)),
        *_every_size("b", sizes, most, between + 3),
    )
    return Scenario(name="every_graph", events=events)


def _every_size(prefix: str, sizes: Sequence[int], most: int, start: int) -> Iterator[ProbeEvent]:
    """As many requests as a step takes, which end one after the other; then prompts of the sizes of graphs."""
    texts = select_prompts(most, seed=SEED + 32, min_bytes=most, max_bytes=most + 24)
    # Short enough that one step takes all of them.
    ladder = (
        ProbeRequest(name=f"{prefix}_decode_{index}", text=text, num_tokens=4, max_tokens=2 + index)
        for index, text in enumerate(texts)
    )
    yield ProbeEvent(before_step=start, add=tuple(ladder))
    for index, length in enumerate(sizes):
        prompt = ProbeRequest(
            name=f"{prefix}_prompt_{length}", text=texts[0], num_tokens=length, max_tokens=1
        )
        yield ProbeEvent(before_step=start + most + 2 + index, add=(prompt,))


def _slice_args(manifest: Manifest, load_format: str, *, opted_in: bool) -> tuple[str, ...]:
    found = manifest.models.slice
    if found is None:
        return ()
    return ("--load-format", load_format, "--skip-tokenizer-init", *(found.opt_in_args if opted_in else ()))


def _on_a_gpu(args: Sequence[str]) -> tuple[str, ...]:
    # A step of the script is a step of the engine, its outputs fetched before the next begins.
    return ("--seed", "0", "--no-async-scheduling", *_MEMORY, *args)


def record_candidate_on_a_gpu(run: ProbeRun, recording: Recording, process: ProbeProcess) -> None:
    """Records the way of every step of the candidate, and its captured graphs.

    With the graphs, what the ledger's reader complains of stands among the notes: no step is judged by them.
    """
    arm = describe_process(process, recording, run)
    run.recorder.record(
        ProbeEvidence(
            **_head(run, process),
            process=arm,
            steps=read_steps(recording, run.manifest.dispatch.targets),
            engines=recording.engines,
            results=recording.results,
            refusals=recording.refusals,
        )
    )
    if _follows_graphs(process.plan):
        record_graphs(run, recording, process, arm)


def record_graphs(run: ProbeRun, recording: Recording, process: ProbeProcess, arm: ArmEvidence) -> None:
    """Records the captured graphs of the candidate; a gap where its process recorded none."""
    found = recording.graphs.get(GRAPHS)
    if found is None:
        run.recorder.gap(run.tier, NEEDS["candidate"][0], "the process recorded no graphs", broke=True)
        return
    run.recorder.record(
        CapturedPointersEvidence(
            **_head(run, process),
            process=arm.model_copy(
                update={"ledger_problems": (), "ledger_notes": (*arm.ledger_notes, *arm.ledger_problems)}
            ),
            graphs=found.graphs,
            losses=found.losses,
            planted_loss_seen=found.planted_loss_seen,
        )
    )


def _head(run: ProbeRun, process: ProbeProcess) -> dict[str, Any]:
    """What every record of the candidate's process begins with."""
    return {
        "tier": run.tier,
        "recorded_at": utc_now(),
        "hardware": run.recorder.hardware,
        "command": process.command,
        "seed": SEED,
        "arm": Arm.CANDIDATE,
    }
