"""Collects the scripted runs: candidate, twin, and the base commit, each in a process of its own."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.app.probe_plans import SEED, has_model, plan_probes
from harness.app.recorder import Recorder, utc_now
from harness.engine.arm_spec import CPU_ENV, ArmSpec
from harness.engine.bystander import write_bystander
from harness.engine.coverage_reader import read_coverage
from harness.engine.probe.cache_layout import format_of, parse_layout
from harness.engine.probe.lockstep import compare_engines
from harness.engine.probe.process import ProbeProcess
from harness.engine.probe.recording import Recording
from harness.engine.probe.step_writes import sort_writes
from harness.model.change import Change
from harness.model.errors import EngineError, EvidenceError
from harness.model.evidence import (
    ArmEvidence,
    CoverageEvidence,
    DefaultOffEvidence,
    HandoverEvidence,
    ProbeEvidence,
)
from harness.model.ledger import CodeTargets
from harness.model.manifest import Manifest
from harness.model.probe import ProbePlan, ProbeStep, WeightsSource
from harness.model.words import Arm, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRun:
    """What the collection needs to know."""

    manifest: Manifest
    recorder: Recorder
    head_path: Path
    """The head commit's files below the import roots."""
    base_path: Path
    """The merge base's; an empty folder where it has none."""
    change: Change
    model_dir: Path
    workdir: Path
    tier: Tier = Tier.CPU
    weights: WeightsSource | None = None
    """What draws the weights of the slice."""
    processes: list[ProbeProcess] = field(default_factory=list)
    """Those that were begun, so that an ending run can kill them."""

    def kill(self) -> None:
        """Ends every process that was begun."""
        for process in self.processes:
            process.kill()


def collect_probes(run: ProbeRun) -> None:
    """Runs the three processes side by side and records what they show; what fails leaves a gap."""
    write_bystander(run.workdir / "bystander")
    plans = plan_probes(
        run.manifest,
        model_dir=run.model_dir,
        bystander_dir=run.workdir / "bystander",
        base_has_model=has_model(run.manifest, run.base_path),
    )
    record_runs(run, run_processes(run, plans))


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A process that came to its end, and what it recorded."""

    process: ProbeProcess
    recording: Recording


def run_processes(run: ProbeRun, plans: Mapping[str, ProbePlan]) -> dict[str, FinishedRun]:
    """Runs processes side by side, by name; one that fails leaves a gap and is left out."""
    run.recorder.progress.say(f"scripted runs: {', '.join(plans)}")
    processes = {name: new_process(run, name, plan) for name, plan in plans.items()}
    run.processes.extend(processes.values())
    with ThreadPoolExecutor(len(processes)) as pool:
        try:
            done = dict(zip(processes, pool.map(lambda p: _run_one(run, p), processes.values()), strict=True))
        except BaseException:
            run.kill()
            raise
    return {
        name: FinishedRun(process=processes[name], recording=recording)
        for name, recording in done.items()
        if recording is not None
    }


def record_runs(run: ProbeRun, done: Mapping[str, FinishedRun]) -> None:
    """Records what the finished ones of "candidate", "twin" and "base" show."""
    candidate, twin, base = (done.get(name) for name in ("candidate", "twin", "base"))
    if candidate is not None:
        with _gap_where_unread(run, "probe of candidate"):
            record_candidate(run, candidate.recording, candidate.process)
    if candidate is not None and twin is not None:
        with _gap_where_unread(run, "probe of twin"):
            record_handover(run, candidate.recording, twin.recording, twin.process)
    if twin is not None:
        record_snapshots(run, "head", twin.recording)
    if base is not None:
        record_snapshots(run, "base", base.recording)


@contextmanager
def _gap_where_unread(run: ProbeRun, what: str) -> Iterator[None]:
    """Records a gap with its reason where a recording holds a cache that the harness does not understand."""
    try:
        yield
    except ValueError as error:
        run.recorder.gap(run.tier, what, str(error), broke=False)


def _run_one(run: ProbeRun, process: ProbeProcess) -> Recording | None:
    name = process.spec.ledger_dir.name
    try:
        recording = process.run()
    except (EngineError, EvidenceError) as error:
        if not process.is_killed:
            what = "default off of base" if name == "base" else f"probe of {name}"
            log = error.log_tail.splitlines() if isinstance(error, EngineError) else ()
            run.recorder.gap(Tier.CPU, what, error.message, broke=True, details=log)
        return None
    run.recorder.progress.say(f"scripted run of {name}: {len(recording.steps)} steps")
    return recording


def new_process(run: ProbeRun, name: str, plan: ProbePlan) -> ProbeProcess:
    """The process of that name, not started yet: "candidate", "twin" or "base"."""
    manifest, is_candidate = run.manifest, name == "candidate"
    spec = ArmSpec(
        arm=Arm.CANDIDATE if is_candidate else Arm.BASELINE,
        model_dir=run.model_dir,
        import_path=run.base_path if name == "base" else run.head_path,
        import_roots=manifest.paths.import_roots,
        dispatch=manifest.dispatch,
        ledger_dir=run.workdir / name,
        nonce=secrets.token_hex(8),
        max_model_len=(manifest.gpu_model if run.tier is Tier.GPU else manifest.nano_model).max_model_len,
        additional_config={manifest.switch.key: manifest.switch.on} if is_candidate else {},
        coverage_globs=manifest.coverage.cpu if is_candidate and run.tier is Tier.CPU else (),
        cache_dir=cache_of(run, name),
        starts_warm=run.tier is Tier.CPU,
        env=ENGINE_ENV[run.tier],
    )
    return ProbeProcess(spec, plan, timeout_s=_TIMEOUT_S[run.tier])


def cache_of(run: ProbeRun, name: str) -> Path:
    """Where a process keeps what it compiles.

    On a GPU each has its own: one that finds the model compiled by another loads other modules, sets other variables,
    and so looks like another engine.
    """
    return run.workdir / name / "cache" if run.tier is Tier.GPU else run.workdir.parent / "cache"


_TIMEOUT_S = {Tier.CPU: 420.0, Tier.GPU: 1800.0}
"""Of one process; on a GPU compilation and capture come on top (68 s on an H200 for the smallest model)."""
ENGINE_ENV = {Tier.CPU: CPU_ENV, Tier.GPU: CPU_ENV | {"TORCHDYNAMO_DISABLE": "0"}}
"""Of the harness's own processes: on a GPU graphs are captured of compiled code; the CPU's engines are eager."""


def describe_process(process: ProbeProcess, recording: Recording, run: ProbeRun) -> ArmEvidence:
    """How a process ran, as an arm's record."""
    ledger, spec = recording.ledger, process.spec
    return ArmEvidence(
        tier=run.tier,
        recorded_at=utc_now(),
        hardware=run.recorder.hardware,
        command=process.command,
        arm=spec.arm,
        additional_config=dict(spec.additional_config),
        started=bool(recording.engines),
        ready_s=recording.engines[0].ready_s if recording.engines else None,
        failure="" if recording.is_whole else "the scripted run did not come to its end",
        proof=ledger.proof,
        ledger_problems=ledger.problems,
        ledger_notes=ledger.notes,
        imported=ledger.imported,
        modules=ledger.modules,
    )


def record_candidate(run: ProbeRun, recording: Recording, process: ProbeProcess) -> None:
    """Records the candidate's steps with what the specialised ones wrote, and the lines that ran."""
    recorder = run.recorder
    recorder.record(
        ProbeEvidence(
            tier=Tier.CPU,
            recorded_at=utc_now(),
            hardware=recorder.hardware,
            command=process.command,
            seed=SEED,
            arm=Arm.CANDIDATE,
            process=describe_process(process, recording, run),
            steps=read_steps(recording, run.manifest.dispatch.targets),
            engines=recording.engines,
            results=recording.results,
            refusals=recording.refusals,
        )
    )
    globs = run.manifest.coverage.cpu
    if not globs:
        return
    try:
        files = read_coverage(process.spec.ledger_dir, run.head_path, globs)
    except EvidenceError as error:
        recorder.gap(Tier.CPU, "coverage of the scripted run", error.message, broke=True)
        return
    recorder.record(
        CoverageEvidence(
            tier=Tier.CPU,
            recorded_at=utc_now(),
            hardware=recorder.hardware,
            command=process.command,
            arm=Arm.CANDIDATE,
            files=files,
        )
    )


def read_steps(recording: Recording, targets: CodeTargets) -> tuple[ProbeStep, ...]:
    """Every step, with its writes where specialised code ran."""
    found = []
    changes = {name: recording.changes_of(name) for name in recording.layouts}
    layouts = {name: parse_layout(layout) for name, layout in recording.layouts.items()}
    for step in recording.steps:
        by_call = next(changes[step.engine])[1] if step.observed is not None else ()
        is_specialised = any(step.row.ran.get(t, 0) for t in targets.specialized_code)
        writes = step.writes if is_specialised else ()
        if by_call and is_specialised:
            writes = sort_writes(step, by_call, layouts[step.engine])
        found.append(
            ProbeStep(
                engine=step.engine,
                scenario=step.scenario,
                position=step.position,
                row=step.row,
                names={r.request_id: step.names.get(r.request_id, "") for r in step.row.requests},
                writes=writes,
            )
        )
    return tuple(found)


def record_handover(run: ProbeRun, candidate: Recording, twin: Recording, process: ProbeProcess) -> None:
    """Records how far each of the candidate's steps is from the twin's."""
    engines = [name for name in candidate.layouts if name in twin.layouts]
    run.recorder.record(
        HandoverEvidence(
            tier=run.tier,
            recorded_at=utc_now(),
            hardware=run.recorder.hardware,
            command=process.command,
            seed=SEED,
            arm=Arm.CANDIDATE,
            twin=describe_process(process, twin, run),
            formats={name: format_of(twin.layouts[name]) for name in engines},
            steps=tuple(step for name in engines for step in compare_engines(candidate, twin, name)),
            twin_engines=twin.engines,
        )
    )


def record_snapshots(run: ProbeRun, side: str, recording: Recording) -> None:
    """Records what a commit's processes look like with the switch unset."""
    is_base = side == "base"
    folder = run.base_path if is_base else run.head_path
    run.recorder.record(
        DefaultOffEvidence(
            tier=run.tier,
            recorded_at=utc_now(),
            hardware=run.recorder.hardware,
            side="base" if is_base else "head",
            commit=run.change.merge_base if is_base else run.change.head,
            has_model=has_model(run.manifest, folder),
            imported=recording.ledger.imported,
            files=_digests_of(folder),
            snapshots=tuple(recording.snapshots.values()),
        )
    )


def _digests_of(folder: Path) -> dict[str, str]:
    """The sha256 of every Python file below a folder, by relative path."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.py"))}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
