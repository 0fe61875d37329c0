"""`fasttrack kernels test`: the subject's tests of its kernels, test by test, with the variants that each launched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.audit.pool import available_cores
from harness.kernels import memcheck
from harness.kernels.pytest_recorder import LAUNCHES, OUT, SHARE
from harness.kernels.subject import KernelSubject
from harness.kernels.timing import utc_now
from harness.model.errors import ConfigurationError
from harness.model.kernel_tests import KernelTest, KernelTestRun, Machine, MemoryCheck

_STDERR = 2
"""File descriptor: pytest's own words are progress, the record is the result."""
_STOP_SECONDS = 20
"""From an interrupt to the end of the tests' processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What one pytest process left behind."""

    status: int
    has_begun: bool
    lines: list[dict[str, Any]]
    memcheck_log: str


def run_tests(
    subject: KernelSubject,
    pytest_args: Sequence[str],
    match: str,
    *,
    jobs: int = 1,
    with_memcheck: bool = False,
) -> KernelTestRun:
    """Runs pytest on the manifest's tests; a run that was killed or interrupted keeps what it had recorded.

    Args:
        subject: whose tests.
        pytest_args: further arguments of pytest.
        match: the variants that the tests are held against, as a glob.
        jobs: pytest processes at a time, each with a share of the tests.
        with_memcheck: run them under compute-sanitizer's memcheck.

    Raises:
        ConfigurationError: pytest did not come to any test, because its arguments or its interpreter are wrong.
        MachineGapError: memory is to be checked, and compute-sanitizer sees nothing here.
    """
    if not subject.section.tests:
        raise ConfigurationError("no-kernels", f"{subject.manifest}: [kernels] names no tests.")
    inventory = [variant.name for variant in subject.inventory(match, subject.section.launches or "")]
    words = ["-m", "pytest", "-p", "harness.kernels.pytest_recorder", *subject.section.tests, *pytest_args]
    recorded_at, started = utc_now(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fasttrack-kernels-") as name:
        folder, environment = Path(name), _environment(subject)
        checked: MemoryCheck | None = None
        planted = memcheck.prove_memcheck(subject.python, environment, folder) if with_memcheck else 0
        shares, stopped_by = _run_shares(subject, words, environment, folder, jobs, with_memcheck)
        if with_memcheck:
            logs = [share.memcheck_log for share in shares]
            checked = memcheck.parse_memcheck(logs, planted, memcheck.memcheck_version(environment))
    status = _worst([share.status for share in shares])
    tests, machine, sources = _results([line for share in shares for line in share.lines])
    began = status != pytest.ExitCode.USAGE_ERROR and shares[0].has_begun
    if not (tests or stopped_by or began):
        message = f"pytest ended with status {status} before it came to a test."
        raise ConfigurationError("pytest", message, "Its own words are above.")
    launched = {name for test in tests if test.outcome == "passed" for name in test.launched}
    return KernelTestRun(
        recorded_at=recorded_at,
        seconds=round(time.monotonic() - started, 1),
        command=("python", *words),
        exit_status=status,
        stopped_by=stopped_by,
        machine=machine,
        sources=sources,
        memcheck=checked,
        match=match,
        tests=tests,
        never_launched=tuple(name for name in inventory if name not in launched),
    )


def _results(
    lines: Sequence[dict[str, Any]],
) -> tuple[tuple[KernelTest, ...], Machine | None, dict[str, str]]:
    """The tests, the GPU that a process saw, and the sources of all."""
    tests = tuple(KernelTest(**line["case"]) for line in lines if "case" in line)
    machines = [Machine(**line["machine"]) for line in lines if "machine" in line]
    sources = {file: digest for line in lines for file, digest in line.get("sources", {}).items()}
    return tests, machines[0] if machines else None, dict(sorted(sources.items()))


def _environment(subject: KernelSubject) -> dict[str, str]:
    paths = [*map(str, subject.roots), subject.environment["PYTHONPATH"]]
    launches = subject.section.launches or ""
    return {**subject.environment, LAUNCHES: launches, "PYTHONPATH": os.pathsep.join(paths)}


def _run_shares(
    subject: KernelSubject,
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    jobs: int,
    with_memcheck: bool,
) -> tuple[list[_Share], str]:
    """Runs all shares at once and waits for them; also what ended them early."""
    cwd = subject.manifest.resolve().parent
    # Each would otherwise take a thread for every core, and all wait for each other.
    threads = {"OMP_NUM_THREADS": str(max(1, available_cores() // jobs))}
    outs = [folder / f"tests-{share}.jsonl" for share in range(jobs)]
    logs = [folder / f"memcheck-{share}.log" for share in range(jobs)]
    stopped_by = ""
    with ExitStack() as stack:
        running = []
        for share, (out, log) in enumerate(zip(outs, logs, strict=True)):
            command = [str(subject.python), *words]
            seen = {**threads, **environment, OUT: str(out), SHARE: f"{share}/{jobs}"}
            if with_memcheck:
                command, seen = memcheck.wrapped(command, log), {**seen, **memcheck.ENVIRONMENT}
            process = stack.enter_context(subprocess.Popen(command, cwd=cwd, env=seen, stdout=_STDERR))
            # Without effect on a process that has ended.
            stack.callback(process.kill)
            running.append(process)
        try:
            for process in running:
                process.wait()
        except KeyboardInterrupt:
            stopped_by = "an interrupt"
            _stop(running)
    statuses = [process.returncode for process in running]
    return [_share(*found) for found in zip(statuses, outs, logs, strict=True)], stopped_by


def _stop(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Lets pytest write what it has; kills what does not end."""
    for process in running:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + _STOP_SECONDS
    for process in running:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _share(status: int, out: Path, log: Path) -> _Share:
    text = out.read_text(encoding="utf-8") if out.is_file() else ""
    return _Share(
        status=status,
        has_begun=out.is_file(),
        lines=[json.loads(line) for line in text.splitlines()],
        memcheck_log=memcheck.read_log(log),
    )


def _worst(statuses: Sequence[int]) -> int:
    """One that says that something went wrong, else 0; 5, no tests, only where no process had any."""
    wrong = [status for status in statuses if status not in (0, 5)]
    return wrong[0] if wrong else min(statuses)
