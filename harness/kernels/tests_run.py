"""`fasttrack kernels test`: the subject's tests of its kernels, test by test, with the variants that each launched."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.kernels.pytest_recorder import LAUNCHES, OUT
from harness.kernels.records import KernelTest, KernelTestRun
from harness.kernels.subject import KernelSubject
from harness.kernels.timing import utc_now
from harness.model.errors import ConfigurationError

_STDERR = 2
"""File descriptor: pytest's own words are progress, the record is the result."""


def run_tests(subject: KernelSubject, pytest_args: Sequence[str], match: str) -> KernelTestRun:
    """Runs pytest on the manifest's tests; a run that was killed keeps what it had recorded.

    Raises:
        ConfigurationError: pytest did not come to any test, because its arguments or its interpreter are wrong.
    """
    if not subject.section.tests:
        raise ConfigurationError("no-kernels", f"{subject.manifest}: [kernels] names no tests.")
    inventory = [variant.name for variant in subject.inventory(match, subject.section.launches or "")]
    folder = subject.manifest.resolve().parent
    words = ["-m", "pytest", "-p", "harness.kernels.pytest_recorder", *subject.section.tests, *pytest_args]
    with tempfile.TemporaryDirectory(prefix="fasttrack-kernels-") as name:
        out = Path(name) / "tests.jsonl"
        environment = {**subject.environment, OUT: str(out), LAUNCHES: subject.section.launches or ""}
        environment["PYTHONPATH"] = os.pathsep.join([*map(str, subject.roots), environment["PYTHONPATH"]])
        status = subprocess.run(
            [str(subject.python), *words], cwd=folder, env=environment, stdout=_STDERR, check=False
        ).returncode
        has_begun = out.is_file()
        lines = out.read_text(encoding="utf-8").splitlines() if has_begun else []
    if not lines and (status == pytest.ExitCode.USAGE_ERROR or not has_begun):
        message = f"pytest ended with status {status} before it came to a test."
        raise ConfigurationError("pytest", message, "Its own words are above.")
    tests = tuple(KernelTest(**json.loads(line)) for line in lines)
    launched = {name for test in tests if test.outcome == "passed" for name in test.launched}
    return KernelTestRun(
        recorded_at=utc_now(),
        command=("python", *words),
        exit_status=status,
        match=match,
        tests=tests,
        never_launched=tuple(name for name in inventory if name not in launched),
    )
