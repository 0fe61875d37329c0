"""A task that cannot be run is a gap that says why, and no reason for the run to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.app import lm_eval_tasks
from harness.app.lm_eval_tasks import collect_tasks
from harness.app.recorder import Progress, Recorder
from harness.model.errors import ConfigurationError, EngineError, FasttrackError
from harness.model.evals import LmEvalTask
from harness.model.evidence import GapEvidence
from harness.model.words import Arm
from tests.harness.app.test_endings import DeafSession, Sink

TASKS = (LmEvalTask(task="one"), LmEvalTask(task="two"))


def gaps_of(recorder: Recorder) -> dict[str, tuple[str, bool]]:
    return {g.what: (g.reason, g.broke) for g in recorder.evidence.of(GapEvidence)}


def collect(recorder: Recorder, *, is_installed: bool = True) -> None:
    session = DeafSession.__new__(DeafSession)
    collect_tasks(
        TASKS,
        recorder,
        {Arm.BASELINE: session},
        root=Path(),
        concurrency=1,
        is_installed=lambda: is_installed,
    )


def test_without_lm_eval_every_task_is_a_gap_with_what_to_install() -> None:
    recorder = Recorder(sink=Sink(), progress=Progress(quiet=True))
    collect(recorder, is_installed=False)
    assert gaps_of(recorder).keys() == {"suite lm_eval_one", "suite lm_eval_two"}
    assert all("fasttrack[lm-eval]" in reason and not broke for reason, broke in gaps_of(recorder).values())


@pytest.mark.parametrize(
    ("error", "broke"), [(EngineError("x", "gone"), True), (ConfigurationError("x", "no such task"), False)]
)
def test_a_task_that_fails_on_an_arm_is_a_gap_and_the_next_one_runs(
    error: FasttrackError, broke: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(lm_eval_tasks, "collect_task", fail)
    recorder = Recorder(sink=Sink(), progress=Progress(quiet=True))
    collect(recorder)
    assert gaps_of(recorder) == {
        f"suite lm_eval_{name} on baseline": (error.message, broke) for name in ("one", "two")
    }
