"""Laws of a probe's process: however it ends, nothing of it goes on, and its last words are kept."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.engine.arm_spec import ArmSpec
from harness.engine.probe.process import ProbeProcess
from harness.model.errors import EngineError, EvidenceError
from harness.model.probe import ProbePlan

PLAN = ProbePlan(engines=(), model_dir="nowhere")
WAITS = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path(sys.argv[1]).with_name("pids").write_text(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""


def made(spec: ArmSpec, program: str, **options: float) -> ProbeProcess:
    return ProbeProcess(spec, PLAN, program=(sys.executable, "-S", "-c", program), **options)


def pids_of(spec: ArmSpec) -> list[int]:
    return [int(pid) for pid in (spec.ledger_dir / "pids").read_text().split()]


def test_a_program_that_fails_is_an_error_with_its_first_exception(spec: ArmSpec) -> None:
    process = made(spec, "raise ValueError('no such plan')")
    with pytest.raises(EngineError, match=r"exit status 1.*ValueError: no such plan"):
        process.run()


def test_a_program_that_writes_nothing_is_no_evidence(spec: ArmSpec) -> None:
    with pytest.raises(EvidenceError, match="no records"):
        made(spec, "pass").run()


def test_a_program_that_takes_too_long_is_ended_with_all_its_children(
    spec: ArmSpec, all_gone: Callable[..., bool]
) -> None:
    with pytest.raises(EngineError, match="not done within 2 s"):
        made(spec, WAITS, timeout_s=2).run()
    assert all_gone(pids_of(spec))


def test_a_program_that_is_killed_from_another_thread_ends_with_all_its_children(
    spec: ArmSpec, all_gone: Callable[..., bool]
) -> None:
    process = made(spec, WAITS)
    threading.Timer(1.5, process.kill).start()
    with pytest.raises(EngineError, match="was stopped"):
        process.run()
    assert all_gone(pids_of(spec))


def test_a_program_that_was_killed_before_it_began_does_not_begin(spec: ArmSpec) -> None:
    process = made(spec, WAITS)
    process.kill()
    with pytest.raises(EngineError, match="could not be started"):
        process.run()
    assert not (spec.ledger_dir / "pids").exists()


def test_no_temporary_folder_is_left(spec: ArmSpec, temp_root: Path) -> None:
    with pytest.raises(EngineError):
        made(spec, "raise SystemExit(3)").run()
    assert list(temp_root.iterdir()) == []
