"""However a run ends, nothing goes on behind it and what it leaves says what is missing."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bundles import layout
from harness.app import cpu_tier, probes
from harness.app.arm_session import ArmPlan
from harness.app.cpu_tier import NOT_IN_PROFILE, CpuRun, collect_cpu_tier
from harness.app.probes import ProbeRun
from harness.app.recorder import Progress, Recorder
from harness.app.resuming import RUN_FOLDER, mark_run
from harness.app.validate import remove_abandoned_folders
from harness.checks.isolation.iso007_base_and_head import BaseAndHead
from harness.config import load_manifest
from harness.engine.probe.process import ProbeProcess
from harness.model.change import Change
from harness.model.completion import Completer
from harness.model.errors import EngineError
from harness.model.evidence import AnyEvidence, GapEvidence
from harness.model.manifest import Manifest
from harness.model.probe import ProbePlan
from harness.model.words import Arm, Outcome
from tests.harness.app import resumable
from tests.harness.app.conftest import ROOT
from tests.harness.checks.evidence_builder import context_of

CHANGE = Change(base="a" * 40, merge_base="a" * 40, head="b" * 40, head_subject="made")


class Sink:
    """Keeps nothing; records are looked up in the recorder."""

    def add(self, record: AnyEvidence) -> str:
        return record.id


def manifest_with_builder(*build: str) -> Manifest:
    manifest = load_manifest((ROOT / "fasttrack.toml").read_text())
    nano = manifest.models.nano.model_copy(update={"build": build})
    return manifest.model_copy(update={"models": manifest.models.model_copy(update={"nano": nano})})


class SlowSession:
    """A session that starts until it is killed; when the candidate's begins, the user presses Ctrl-C."""

    ready_s: float | None = None
    command: tuple[str, ...] = ()
    alive = False

    def __init__(self, plan: ArmPlan) -> None:
        self.arm = plan.arm
        self.killed = threading.Event()
        self.is_closed = False

    @property
    def completer(self) -> Completer:
        raise EngineError("engine-not-started", "not running")

    def start(self) -> None:
        if self.arm is Arm.CANDIDATE:
            _thread.interrupt_main()
        assert self.killed.wait(30), "nobody ended it"
        time.sleep(0.2)
        raise EngineError("engine-ended", "killed while it started")

    def tokenize(self, text: str) -> tuple[int, ...]:
        raise EngineError("engine-not-started", text)

    def begin_suite(self, name: str) -> None: ...

    def end_coverage(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def kill(self) -> None:
        self.killed.set()

    def close(self, recorder: Recorder) -> None:
        self.is_closed = True


class DeafSession(SlowSession):
    """A session that starts, and whose engine is gone by the time it is asked something."""

    ready_s = 0.0
    alive = True

    def start(self) -> None: ...


def collection(
    tmp_path: Path, manifest: Manifest, kind: type[SlowSession] = SlowSession
) -> tuple[CpuRun, list[SlowSession]]:
    sessions: list[SlowSession] = []

    def open_slow(plan: ArmPlan) -> SlowSession:
        sessions.append(kind(plan))
        return sessions[-1]

    recorder = Recorder(sink=Sink(), progress=Progress(quiet=True))
    run = CpuRun(
        manifest=manifest,
        recorder=recorder,
        change=CHANGE,
        import_path=tmp_path,
        base_path=tmp_path,
        workdir=tmp_path,
        data_root=tmp_path,
        tasks_root=tmp_path,
        open_session=open_slow,
        collect_probes=lambda _: None,
    )
    return run, sessions


def test_an_interrupt_while_engines_start_ends_all_of_them_before_the_run_returns(tmp_path: Path) -> None:
    run, sessions = collection(tmp_path, manifest_with_builder("-c", "pass"))
    with pytest.raises(KeyboardInterrupt):
        collect_cpu_tier(run)
    kept = len(run.recorder.records)
    time.sleep(0.5)
    assert all(s.killed.is_set() and s.is_closed for s in sessions)
    assert len(run.recorder.records) == kept
    assert [r.reason for r in run.recorder.evidence.of(GapEvidence)] == ["interrupted by the user"]


WAITS = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).with_name("pid").write_text(str(os.getpid()))
time.sleep(600)
"""


def test_an_interrupt_during_the_scripted_runs_ends_all_of_them_and_begins_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, sessions = collection(tmp_path, manifest_with_builder("-c", "pass"))
    make = probes.new_process

    def waiting(probe_run: ProbeRun, name: str, plan: ProbePlan) -> ProbeProcess:
        return ProbeProcess(make(probe_run, name, plan).spec, plan, program=(sys.executable, "-c", WAITS))

    monkeypatch.setattr(probes, "new_process", waiting)
    pids = [tmp_path / "probes" / name / "pid" for name in ("candidate", "twin", "base")]

    def interrupt() -> None:
        while not all(pid.exists() and pid.read_text() for pid in pids):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        collect_cpu_tier(replace(run, collect_probes=probes.collect_probes))
    assert sessions == []
    assert not any(Path("/proc", pid.read_text()).exists() for pid in pids)
    assert [r.reason for r in run.recorder.evidence.of(GapEvidence)] == ["interrupted by the user"]


def test_each_scripted_run_that_fails_is_a_gap_of_its_own_with_its_first_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = collection(tmp_path, manifest_with_builder("-c", "pass"))
    make = probes.new_process

    def failing(probe_run: ProbeRun, name: str, plan: ProbePlan) -> ProbeProcess:
        spec = make(probe_run, name, plan).spec
        return ProbeProcess(
            spec, plan, program=(sys.executable, "-c", f"raise ValueError('no {name} today')")
        )

    monkeypatch.setattr(probes, "new_process", failing)
    probes.collect_probes(cpu_tier.probe_run(run, tmp_path))
    gaps = {gap.what: gap for gap in run.recorder.evidence.of(GapEvidence)}
    assert set(gaps) == {"probe of candidate", "probe of twin", "default off of base"}
    assert "ValueError: no twin today" in gaps["probe of twin"].reason
    assert all(gap.broke for gap in gaps.values())


def test_an_engine_that_is_gone_between_two_suites_is_a_gap_and_not_a_crash(tmp_path: Path) -> None:
    run, sessions = collection(tmp_path, manifest_with_builder("-c", "pass"), DeafSession)
    collect_cpu_tier(run)
    (gap,) = run.recorder.evidence.of(GapEvidence)
    assert gap.broke and gap.what == "the rest of the run"
    assert all(s.is_closed for s in sessions)


def test_without_scripted_runs_the_engines_of_both_commits_are_said_to_be_left_out_by_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    records = resumable.collect(tmp_path / "bundle")
    (finding,) = BaseAndHead().run(context_of(records))
    assert finding.outcome is Outcome.NOT_RUN and NOT_IN_PROFILE in finding.message


def test_a_builder_that_fails_is_a_gap_with_its_last_words(tmp_path: Path) -> None:
    run, sessions = collection(tmp_path, manifest_with_builder("-c", "raise SystemExit('no weights today')"))
    collect_cpu_tier(run)
    (gap,) = run.recorder.evidence.of(GapEvidence)
    assert gap.broke and "no weights today" in gap.details[-1] and sessions == []


def test_a_builder_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_tier, "BUILD_TIMEOUT_S", 1)
    code = "import subprocess; subprocess.run(['sleep', '98.7654321'])"
    run, _ = collection(tmp_path, manifest_with_builder("-c", code))
    collect_cpu_tier(run)
    (gap,) = run.recorder.evidence.of(GapEvidence)
    assert gap.broke and "within 1 s" in gap.reason
    assert subprocess.run(["pgrep", "-f", "sleep 98.7654321"], check=False).returncode == 1


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a run whose process is gone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    folder = tmp_path / f"{RUN_FOLDER}{dead.pid}-x"
    folder.mkdir()
    return folder


def test_the_next_run_removes_the_working_folder_of_one_that_was_killed(tmp_path: Path, killed: Path) -> None:
    alive = tmp_path / f"{RUN_FOLDER}1-x"
    alive.mkdir()
    remove_abandoned_folders(tmp_path / "out")
    assert alive.exists() and not killed.exists()


@pytest.mark.parametrize(
    ("name", "is_sealed", "stays"), [("other", False, True), ("other", True, False), ("out", False, False)]
)
def test_a_killed_run_of_another_bundle_can_still_be_resumed_after_the_next_run(
    name: str, is_sealed: bool, stays: bool, tmp_path: Path, killed: Path
) -> None:
    bundle = tmp_path / name
    bundle.mkdir()
    (bundle / layout.CHANGE).write_text("{}")
    if is_sealed:
        (bundle / layout.SHA256SUMS).write_text("")
    mark_run(killed, bundle)
    remove_abandoned_folders(tmp_path / "out")
    assert killed.exists() == stays
