"""`fasttrack kernels test`: the subject's tests of its kernels, test by test, with the variants that each launched."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.kernels.pytest_recorder import LAUNCHES, OUT
from harness.kernels.records import KernelTest, KernelTestRun
from harness.kernels.subject import KernelSubject
from harness.kernels.timing import utc_now
from harness.model.errors import ConfigurationError

_STDERR = 2
"""File descriptor: pytest's own words are progress, the record is the result."""


def run_tests(subject: KernelSubject, pytest_args: Sequence[str]) -> KernelTestRun:
    """Runs pytest on the manifest's tests; a run that was killed keeps what it had recorded."""
    if not subject.section.tests:
        raise ConfigurationError("no-kernels", f"{subject.manifest}: [kernels] names no tests.")
    inventory = [variant.name for variant in subject.inventory()]
    folder = subject.manifest.resolve().parent
    words = ["-m", "pytest", "-p", "harness.kernels.pytest_recorder", *subject.section.tests, *pytest_args]
    with tempfile.TemporaryDirectory(prefix="fasttrack-kernels-") as name:
        out = Path(name) / "tests.jsonl"
        environment = {**subject.environment, OUT: str(out), LAUNCHES: subject.section.launches or ""}
        environment["PYTHONPATH"] = os.pathsep.join([*map(str, subject.roots), environment["PYTHONPATH"]])
        status = subprocess.run(
            [str(subject.python), *words], cwd=folder, env=environment, stdout=_STDERR, check=False
        ).returncode
        lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    tests = tuple(KernelTest(**json.loads(line)) for line in lines)
    launched = {name for test in tests if test.outcome == "passed" for name in test.launched}
    return KernelTestRun(
        recorded_at=utc_now(),
        command=("python", *words),
        exit_status=status,
        tests=tests,
        never_launched=tuple(name for name in inventory if name not in launched),
    )
