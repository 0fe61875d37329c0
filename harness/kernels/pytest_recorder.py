"""A pytest plugin that records each test's outcome and the kernel variants that it launched.

Loaded with `-p harness.kernels.pytest_recorder`; the environment says where to write (`FASTTRACK_KERNEL_TESTS`) and
which function counts launches (`FASTTRACK_KERNEL_LAUNCHES`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest

from harness.kernels.worker import resolve

OUT, LAUNCHES = "FASTTRACK_KERNEL_TESTS", "FASTTRACK_KERNEL_LAUNCHES"
_REPORTS = pytest.StashKey[dict[str, pytest.TestReport]]()
_PHASES = ("setup", "call", "teardown")


def pytest_configure() -> None:
    """Leaves a sign that pytest has begun."""
    Path(os.environ[OUT]).touch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Counts the launches of one test, set-up and tear-down included, and writes its line."""
    counts = _counter()
    before = dict(counts())
    item.stash[_REPORTS] = {}
    result = yield
    launched = {name: n - before.get(name, 0) for name, n in counts().items() if n > before.get(name, 0)}
    _write(item, launched)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keeps the report of each phase."""
    report = yield
    item.stash.setdefault(_REPORTS, {})[report.when] = report
    return report


def _counter() -> Callable[[], Mapping[str, int]]:
    name = os.environ.get(LAUNCHES, "")
    return resolve(name) if name else dict


def _write(item: pytest.Item, launched: Mapping[str, int]) -> None:
    reports = [item.stash[_REPORTS][phase] for phase in _PHASES if phase in item.stash[_REPORTS]]
    outcome, reason = _outcome(reports)
    line = {
        "test": item.nodeid,
        "outcome": outcome,
        "seconds": round(sum(report.duration for report in reports), 4),
        "launched": dict(launched),
        "reason": reason,
    }
    with Path(os.environ[OUT]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _outcome(reports: list[pytest.TestReport]) -> tuple[str, str]:
    """The worst of a test's phases, and why."""
    for report in reports:
        if report.failed:
            text = report.longreprtext.strip().splitlines()
            return ("failed" if report.when == "call" else "error"), (text[-1] if text else "")[:300]
    for report in reports:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            return "not_run", reason[:300]
    return ("passed", "") if any(report.when == "call" for report in reports) else ("error", "it did not run")
