"""Collects the gpu tier: captured graphs, and what base and head look like on a GPU with the switch unset.

The parts of the tier that this version cannot collect leave gaps, and so does the candidate of a change that declares
no deployment with a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from eval_suites.prompts import long_prompt, select_prompts
from harness.app.cpu_tier import CHECKPOINT, CpuRun, build_checkpoint, probe_run
from harness.app.probe_plans import SEED, bystander_engine, has_model, off_engine
from harness.app.probes import ProbeRun, describe_process, new_process, record_snapshots
from harness.app.recorder import utc_now
from harness.engine.bystander import write_bystander
from harness.engine.probe.process import ProbeProcess
from harness.engine.probe.recording import Recording
from harness.model.errors import EngineError, EvidenceError
from harness.model.evidence import CapturedPointersEvidence
from harness.model.manifest import Manifest
from harness.model.probe import ProbeEngine, ProbeEvent, ProbePlan, ProbeRequest, Scenario
from harness.model.words import Arm, Tier

GRAPHS = "graphs"
"""The engine whose captured graphs are followed."""
NEEDS = {
    "candidate": f"captured graphs of {Arm.CANDIDATE}",
    "head": "default off of head",
    "base": "default off of base",
}
"""How gaps name what each process would have shown."""
NO_TIMING = "this version of fasttrack has no collector for timings on a GPU yet"
EAGER_TOKENS = 1024
"""A prompt of more tokens than any graph is captured for."""
_COMPARED = (
    *("--kv-cache-memory-bytes", str(256 * 2**20)),
    *("--max-num-seqs", "64"),
    *("--cudagraph-capture-sizes", "1", "2", "4", "8", "16", "32", "64"),
)
"""What base and head are given alike: memory that vLLM measures is not the same twice, and graphs take time."""


def collect_gpu_tier(run: CpuRun) -> None:
    """Runs the processes one after the other on the GPU and records what they show; what fails leaves a gap."""
    no_gpu = run.manifest.scope.why_no_nvidia_gpu
    run.recorder.gap(Tier.GPU, "timing", no_gpu or NO_TIMING, broke=False)
    if no_gpu:
        run.recorder.gap(Tier.GPU, NEEDS["candidate"], no_gpu, broke=False)
    probes = replace(probe_run(run, run.workdir / CHECKPOINT), tier=Tier.GPU)
    plans = plan_gpu(probes)
    try:
        if any("{model}" in engine.args for plan in plans.values() for engine in plan.engines):
            build_checkpoint(run)
    except EngineError as error:
        run.recorder.broken(Tier.GPU, f"tier {Tier.GPU}", error)
        return
    write_bystander(probes.workdir / "bystander")
    for name, plan in plans.items():
        _run_process(probes, name, plan)


def _run_process(probes: ProbeRun, name: str, plan: ProbePlan) -> None:
    process = new_process(probes, name, plan)
    probes.processes.append(process)
    probes.recorder.progress.say(f"{NEEDS[name]}: starting")
    try:
        recording = process.run()
    except (EngineError, EvidenceError) as error:
        log = error.log_tail.splitlines() if isinstance(error, EngineError) else ()
        probes.recorder.gap(Tier.GPU, NEEDS[name], error.message, broke=True, details=log)
        return
    except BaseException:
        probes.kill()
        raise
    if name == "candidate":
        record_graphs(probes, recording, process)
    else:
        record_snapshots(probes, name, recording)


def plan_gpu(run: ProbeRun) -> dict[str, ProbePlan]:
    """What each process does, by its name: the candidate's graphs are replayed, both commits are described.

    Without a declared GPU there is no candidate to run: its engine must refuse to start there, or falls back.
    """
    manifest = run.manifest
    off = [bystander_engine(_on_a_gpu(_COMPARED))]
    if has_model(manifest, run.base_path):
        off.append(off_engine(manifest, _on_a_gpu(_COMPARED)))
    off = [engine.model_copy(update={"watches_graphs": True}) for engine in off]
    engines: dict[str, Sequence[ProbeEngine]] = {"head": off, "base": off}
    if manifest.scope.nvidia_platforms:
        engines = {"candidate": [graph_engine(manifest)]} | engines
    return {
        name: ProbePlan(
            engines=tuple(found),
            model_dir=str(run.model_dir),
            bystander_dir=str(run.workdir / "bystander"),
        )
        for name, found in engines.items()
    }


def graph_engine(manifest: Manifest) -> ProbeEngine:
    """The candidate with a graph for every batch of its scope, and for one request more."""
    scope, nano = manifest.scope, manifest.nano_model
    most = scope.max_batch + 1
    args = {
        "--model": "{model}",
        "--max-model-len": str(nano.max_model_len),
        "--max-num-seqs": str(most),
        "--max-num-batched-tokens": str(max(nano.max_model_len, EAGER_TOKENS)),
        "--additional-config": json.dumps({manifest.switch.key: manifest.switch.on}),
    }
    pairs = tuple(word for pair in args.items() for word in pair)
    sizes = tuple(str(size) for size in range(1, most + 1))
    return ProbeEngine(
        name=GRAPHS,
        args=_on_a_gpu((*pairs, *nano.engine_args, "--cudagraph-capture-sizes", *sizes)),
        scenarios=(graph_scenario(most, nano.max_model_len),),
        watches_state=False,
        watches_graphs=True,
    )


def graph_scenario(most: int, max_model_len: int) -> Scenario:
    """Every size of a graph by decodes and by prompts, then a prompt that no graph is captured for, then all again."""
    text = long_prompt(8 * EAGER_TOKENS, seed=SEED + 31)
    length = min(EAGER_TOKENS, max_model_len - 2)
    eager = ProbeRequest(name="eager", text=text, num_tokens=length, max_tokens=1)
    between = 2 * most + 4
    events = (
        *_every_size("a", most, 0),
        ProbeEvent(before_step=between, add=(eager,)),
        *_every_size("b", most, between + 3),
    )
    return Scenario(name="every_graph", events=events)


def _every_size(prefix: str, most: int, start: int) -> Iterator[ProbeEvent]:
    """As many requests as the largest graph takes, which end one after the other; then prompts of every length."""
    texts = select_prompts(most, seed=SEED + 32, min_bytes=most, max_bytes=most + 24)
    ladder = (
        ProbeRequest(name=f"{prefix}_decode_{index}", text=text, max_tokens=2 + index)
        for index, text in enumerate(texts)
    )
    yield ProbeEvent(before_step=start, add=tuple(ladder))
    for length in range(1, most + 1):
        prompt = ProbeRequest(
            name=f"{prefix}_prompt_{length}", text=texts[0], num_tokens=length, max_tokens=1
        )
        yield ProbeEvent(before_step=start + most + 1 + length, add=(prompt,))


def _on_a_gpu(args: Sequence[str]) -> tuple[str, ...]:
    # A step of the script is a step of the engine, its outputs fetched before the next begins.
    return ("--seed", "0", "--no-async-scheduling", *args)


def record_graphs(run: ProbeRun, recording: Recording, process: ProbeProcess) -> None:
    """Records the candidate's captured graphs with the proof of the process that captured them.

    What the ledger's reader complains of stands among the notes: no step is judged by this process, and the tracer
    cannot follow steps into graphs.
    """
    found = recording.graphs.get(GRAPHS)
    if found is None:
        run.recorder.gap(run.tier, NEEDS["candidate"], "the process recorded no graphs", broke=True)
        return
    arm = describe_process(process, recording, run)
    run.recorder.record(
        CapturedPointersEvidence(
            tier=run.tier,
            recorded_at=utc_now(),
            hardware=run.recorder.hardware,
            command=process.command,
            seed=SEED,
            arm=Arm.CANDIDATE,
            process=arm.model_copy(
                update={"ledger_problems": (), "ledger_notes": (*arm.ledger_notes, *arm.ledger_problems)}
            ),
            graphs=found.graphs,
            losses=found.losses,
            planted_loss_seen=found.planted_loss_seen,
        )
    )
