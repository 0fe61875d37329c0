"""Collects the cpu tier: resident arms of a real engine, put through the suites and the timed cells.

Evidence goes to the recorder the moment it is made. What the recorder already holds is not collected again. A part
that cannot be collected leaves a `GapEvidence` that says why, and the rest goes on where it can.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from eval_suites.suite import Suite, run_suite
from harness.app.arm_session import ArmPlan, ArmSession, open_session
from harness.app.decode_timing import collect_timing
from harness.app.evaluations import collect_eval_sets
from harness.app.lm_eval_tasks import collect_tasks
from harness.app.negative_control import collect_control
from harness.app.own_tests import collect_own_tests
from harness.app.own_tests_process import OwnTestsRun
from harness.app.probes import ProbeRun, collect_probes
from harness.app.recorder import Recorder, utc_now
from harness.app.suite_plan import CpuSizes, EvalRows, SuiteBuilder, load_eval_rows
from harness.engine.arm_spec import PASSED_ON
from harness.model.change import Change
from harness.model.errors import EngineError
from harness.model.evidence import (
    DefaultOffEvidence,
    EvidenceSet,
    HandoverEvidence,
    ProbeEvidence,
    SuiteEvidence,
)
from harness.model.manifest import Manifest
from harness.model.words import Arm, Tier

BUILD_TIMEOUT_S = 300
CHECKPOINT = "nano"
"""The folder of the miniature model, below the run's."""
NOT_IN_PROFILE = "not in this profile (ask for --profile full)"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuRun:
    """What the collection needs to know."""

    manifest: Manifest
    recorder: Recorder
    import_path: Path
    """Folder with the head commit's files below the import roots."""
    base_path: Path
    """The same of the merge base; empty where it has none."""
    change: Change
    workdir: Path
    data_root: Path
    """The folder that the manifest's paths of data sets are relative to."""
    tasks_root: Path
    """The folder with the lm-eval tasks of the merge base."""
    slice_weights: bytes | None = None
    """The head commit's file that draws the slice's weights; None where the manifest names none, or it is missing."""
    slice_config: bytes | None = None
    """The head commit's `config.json` of the manifest's slice; None where it declares none, or has no such file."""
    own_tests: OwnTestsRun | None = None
    """The change's own tests; None where they are not to be run."""
    arms: tuple[Arm, ...] = tuple(Arm)
    sizes: CpuSizes = field(default_factory=CpuSizes)
    open_session: Callable[[ArmPlan], ArmSession] = open_session
    collect_probes: Callable[[ProbeRun], None] = collect_probes
    build_model: Callable[[CpuRun], Path] = field(default_factory=lambda: build_checkpoint)
    """Writes the miniature model below `workdir` and gives its folder."""
    while_timed: Callable[[], AbstractContextManager[None]] = nullcontext
    """What is held while decode is timed."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set once the run is ending: nothing further is begun, and what breaks from then on is no finding."""


def collect_cpu_tier(run: CpuRun) -> None:
    """Collects all that the cpu tier can show about the change.

    Interrupted or failing half-way, it stops every server, keeps what was recorded and records the gaps; a
    `KeyboardInterrupt` is raised again afterwards. Data sets are read before anything is started: a
    `ConfigurationError` says what is wrong with them.
    """
    rows = load_eval_rows(run.manifest, run.data_root)
    if run.own_tests is not None and Arm.CANDIDATE in run.arms:
        limit_s = run.sizes.own_tests_s
        collect_own_tests(replace(run.own_tests, clean_s=limit_s, controls_s=limit_s))
    try:
        model_dir = run.build_model(run)
    except EngineError as error:
        run.recorder.broken(Tier.CPU, "tier cpu", error)
        return
    sessions: dict[Arm, ArmSession] = {}
    pool = ThreadPoolExecutor(max_workers=len(run.arms))
    try:
        if Arm.CANDIDATE in run.arms:
            if has_probes(run.recorder.evidence):
                run.recorder.progress.say("the scripted runs are in evidence")
            elif run.sizes.with_probes:
                run.collect_probes(probe_run(run, model_dir))
            else:
                for what in ("probe", "default off of base", "default off of head"):
                    run.recorder.gap(Tier.CPU, what, NOT_IN_PROFILE, broke=False)
        start_arms(run, model_dir, sessions, pool)
        collect_suites(run, sessions, pool, rows)
        collect_tasks(
            run.manifest.evals.lm_eval,
            run.recorder,
            sessions,
            root=run.tasks_root,
            concurrency=min(4, run.manifest.scope.max_batch),
        )
        if run.sizes.timing_pairs:
            with run.while_timed():
                collect_timing(
                    run.manifest,
                    run.recorder,
                    sessions,
                    tier=Tier.CPU,
                    num_pairs=run.sizes.timing_pairs,
                    num_tokens=lambda _: run.sizes.timing_tokens,
                )
        else:
            run.recorder.gap(Tier.CPU, "timing", NOT_IN_PROFILE, broke=False)
    except EngineError as error:
        run.recorder.broken(Tier.CPU, "the rest of the run", error)
    except KeyboardInterrupt:
        run.recorder.gap(Tier.CPU, "the rest of the run", "interrupted by the user", broke=False)
        raise
    finally:
        run.stopping.set()
        if sys.exc_info()[0] is not None:
            for session in sessions.values():
                session.kill()
        # No thread may begin, or record, anything after this function has returned.
        pool.shutdown(wait=True, cancel_futures=True)
        for session in sessions.values():
            session.close(run.recorder)


def has_probes(evidence: EvidenceSet) -> bool:
    """Whether the scripted runs have left all that they leave."""
    sides = {record.side for record in evidence.of(DefaultOffEvidence, tier=Tier.CPU)}
    found = (evidence.of(ProbeEvidence, tier=Tier.CPU), evidence.of(HandoverEvidence, tier=Tier.CPU))
    return all(found) and sides == {"base", "head"}


def probe_run(run: CpuRun, model_dir: Path) -> ProbeRun:
    """What the scripted runs need to know."""
    return ProbeRun(
        manifest=run.manifest,
        recorder=run.recorder,
        change=run.change,
        head_path=run.import_path,
        base_path=run.base_path,
        model_dir=model_dir,
        workdir=run.workdir / "probes",
    )


def build_checkpoint(run: CpuRun, *, before: Path | None = None) -> Path:
    """Writes the miniature model with the subject's own builder and returns its folder.

    The builder finds what is in `before` ahead of the subject's files. Raises `EngineError` with the builder's last
    lines when it fails.
    """
    out = run.workdir / CHECKPOINT
    run.recorder.progress.say("building the miniature model")
    arguments = [a.replace("{out}", str(out)) for a in run.manifest.nano_model.build]
    environment = subject_environment(run.import_path) | {"HOME": str(run.workdir)}
    if before is not None:
        environment["PYTHONPATH"] = os.pathsep.join((str(before), environment["PYTHONPATH"]))
    builder = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=run.workdir,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        _, log = builder.communicate(timeout=BUILD_TIMEOUT_S)
        failure = f"exit {builder.returncode}" if builder.returncode else ""
    except subprocess.TimeoutExpired:
        log, failure = "", f"not done within {BUILD_TIMEOUT_S} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(builder.pid, signal.SIGKILL)
        builder.wait()
    if failure:
        raise EngineError(
            "nano-build-failed",
            f"the miniature model could not be built ({failure})",
            "see [models.nano] build in the manifest",
            log_tail="\n".join(log.splitlines()[-20:]),
        )
    return out


def subject_environment(import_path: Path) -> dict[str, str]:
    """What a program of the subject gets to see: its own files first, and none of the harness's secrets."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed | {"PYTHONPATH": str(import_path), "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"}


def start_arms(
    run: CpuRun, model_dir: Path, sessions: dict[Arm, ArmSession], pool: ThreadPoolExecutor
) -> None:
    """Starts the arms side by side; one that fails leaves a gap and its log's last lines."""

    def start(arm: Arm) -> None:
        plan = ArmPlan(
            arm=arm,
            manifest=run.manifest,
            model_dir=model_dir,
            import_path=run.import_path,
            workdir=run.workdir / arm.value,
            with_coverage=arm is Arm.CANDIDATE,
        )
        run.recorder.progress.say(f"{arm}: starting the engine")
        session = run.open_session(plan)
        sessions[arm] = session
        if run.stopping.is_set():
            return
        try:
            session.start()
        except EngineError as error:
            if run.stopping.is_set():
                return
            run.recorder.broken(Tier.CPU, f"arm {arm}", error)
        else:
            run.recorder.progress.say(f"{arm}: ready after {session.ready_s:.0f} s")

    list(pool.map(start, run.arms))


def collect_suites(
    run: CpuRun, sessions: Mapping[Arm, ArmSession], pool: ThreadPoolExecutor, rows: EvalRows
) -> None:
    """Puts the arms through all suites; the baseline goes first where others walk its continuations."""
    alive = [arm for arm in run.arms if arm in sessions and sessions[arm].alive]
    if not alive:
        return
    tokenize = sessions[alive[0]].tokenize
    builder = SuiteBuilder(run.manifest, run.sizes, tokenize)
    others = [arm for arm in run.arms if arm is not Arm.BASELINE]
    first_round = (builder.greedy(), builder.full_context(()))
    for suite in first_round:
        run_on(run, sessions, Arm.BASELINE, suite)
    greedy = run.recorder.evidence.suite("greedy", Arm.BASELINE, Tier.CPU)
    full = run.recorder.evidence.suite("full_context", Arm.BASELINE, Tier.CPU)
    if greedy is None or full is None:
        run.recorder.gap(
            Tier.CPU, "suites", "the baseline gave no continuations for the others to walk", broke=True
        )
        return
    forced = builder.teacher_forced(greedy.items)
    walked = builder.full_context([item.token_ids for item in full.items])
    evaluations = collect_eval_sets(run.recorder, builder, sessions[alive[0]].count_prompt, rows)
    shared = [builder.sampling(), builder.structured(), builder.features(greedy.items), *evaluations]
    jobs = {Arm.BASELINE: [forced, *shared]} | {
        arm: [first_round[0], walked, forced, *shared] for arm in others
    }

    def put_through(arm: Arm) -> None:
        for suite in jobs[arm]:
            run_on(run, sessions, arm, suite)
        session = sessions.get(Arm.CANDIDATE)
        if arm is Arm.CANDIDATE and session is not None:
            for control in builder.controls(evaluations):
                if session.alive and not run.stopping.is_set():
                    collect_control(run.recorder, session, control)

    list(pool.map(put_through, [arm for arm in run.arms if arm in jobs]))


def run_on(run: CpuRun, sessions: Mapping[Arm, ArmSession], arm: Arm, suite: Suite) -> None:
    """Runs one suite on one arm, unless its evidence is there already."""
    recorder = run.recorder
    if run.stopping.is_set() or recorder.evidence.suite(suite.name, arm, Tier.CPU) is not None:
        return
    session = sessions.get(arm)
    if session is None or not session.alive:
        recorder.gap(Tier.CPU, f"suite {suite.name} on {arm}", f"arm {arm} is not running", broke=True)
        return
    recorder.progress.say(f"{arm}: {suite.name}, {suite.num_requests} requests")
    try:
        session.begin_suite(suite.name)
        items = run_suite(suite, session.completer, progress_every(recorder, arm, suite.name))
        session.end_suite()
    except EngineError as error:
        if not run.stopping.is_set():
            recorder.broken(Tier.CPU, f"suite {suite.name} on {arm}", error)
        return
    recorder.record(
        SuiteEvidence(
            tier=Tier.CPU,
            recorded_at=utc_now(),
            hardware=recorder.hardware,
            command=session.command,
            seed=suite.seed,
            suite=suite.name,
            arm=arm,
            items=items,
        )
    )


def progress_every(recorder: Recorder, arm: Arm, name: str) -> Callable[[int, int], None]:
    """Says every quarter of a suite how far it is."""
    said = [0]

    def report(done: int, total: int) -> None:
        quarter = 4 * done // total
        if quarter > said[0]:
            said[0] = quarter
            recorder.progress.say(f"{arm}: {name} {done}/{total}")

    return report
