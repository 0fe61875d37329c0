"""Puts the arms through the manifest's lm-eval tasks, one arm after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from harness.app.arm_session import ArmSession
from harness.app.recorder import Recorder, utc_now
from harness.model.errors import ConfigurationError, EngineError
from harness.model.evals import LmEvalTask
from harness.model.evidence import SuiteEvidence, TaskScoresEvidence
from harness.model.words import Arm, Tier

MISSING = 'lm-eval is not installed (pip install "fasttrack[lm-eval]")'


def collect_tasks(
    tasks: tuple[LmEvalTask, ...],
    recorder: Recorder,
    sessions: Mapping[Arm, ArmSession],
    *,
    root: Path,
    concurrency: int,
    is_installed: Callable[[], bool] = lambda: find_spec("lm_eval") is not None,
) -> None:
    """Records answers and scores of each task on each running arm.

    lm-eval keeps global state, so that arms take turns. A task that cannot be run, does not exist, or asks for what no
    arm can be asked, leaves a gap.
    """
    if tasks and not is_installed():
        for task in tasks:
            recorder.gap(Tier.CPU, f"suite lm_eval_{task.task}", MISSING, broke=False)
        return
    for task in tasks:
        for arm, session in sessions.items():
            suite = f"lm_eval_{task.task}"
            if session.alive and recorder.evidence.suite(suite, arm, Tier.CPU) is None:
                try:
                    collect_task(task, recorder, arm, session, root=root, concurrency=concurrency)
                except EngineError as error:
                    recorder.broken(Tier.CPU, f"suite {suite} on {arm}", error)
                except ConfigurationError as error:
                    recorder.gap(Tier.CPU, f"suite {suite} on {arm}", error.message, broke=False)


def collect_task(
    task: LmEvalTask, recorder: Recorder, arm: Arm, session: ArmSession, *, root: Path, concurrency: int
) -> None:
    """Records one arm's answers to a task, and lm-eval's scores of them; raises `EngineError`."""
    from eval_suites.lm_eval_task import run_task, suite_of

    suite = suite_of(task)
    recorder.progress.say(f"{arm}: {suite}")
    session.begin_suite(suite)
    result = run_task(
        task,
        session.completer,
        root=root,
        tokenize=session.tokenize,
        concurrency=concurrency,
        chat=task.chat,
    )
    recorder.record(
        TaskScoresEvidence(
            tier=Tier.CPU,
            recorded_at=utc_now(),
            hardware=recorder.hardware,
            command=session.command,
            suite=suite,
            arm=arm,
            library=result.library,
            config_sha256=result.config_sha256,
            scores=result.scores,
        )
    )
    recorder.record(
        SuiteEvidence(
            tier=Tier.CPU,
            recorded_at=utc_now(),
            hardware=recorder.hardware,
            command=session.command,
            suite=suite,
            arm=arm,
            items=result.items,
        )
    )
