"""A pytest plugin that records each test's outcome and the kernel variants that it launched.

Loaded with `-p harness.kernels.pytest_recorder`; the environment says where to write (`FASTTRACK_KERNEL_TESTS`),
which function counts launches (`FASTTRACK_KERNEL_LAUNCHES`) and which share of the tests is this process's
(`FASTTRACK_KERNEL_SHARE`, "0/1" for all).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest

from harness.kernels.sources import imported_sources
from harness.kernels.timing import gpu_gap, measure_machine
from harness.kernels.worker import resolve

OUT, LAUNCHES, SHARE = "FASTTRACK_KERNEL_TESTS", "FASTTRACK_KERNEL_LAUNCHES", "FASTTRACK_KERNEL_SHARE"
_REPORTS = pytest.StashKey[dict[str, pytest.TestReport]]()
_PHASES = ("setup", "call", "teardown")
_DEALS = 8
"""Hands that a process is dealt: few, since neighbouring tests share compiled kernels, and enough to even out."""


def pytest_configure() -> None:
    """Leaves a sign that pytest has begun."""
    Path(os.environ[OUT]).touch()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves this process its share: hands of neighbours by name, dealt in turn, whatever order they are run in."""
    mine, processes = (int(part) for part in os.environ.get(SHARE, "0/1").split("/"))
    hand = max(1, len(items) // (processes * _DEALS))
    order = sorted(item.nodeid for item in items)
    names = {name for place, name in enumerate(order) if place // hand % processes == mine}
    others = [item for item in items if item.nodeid not in names]
    items[:] = [item for item in items if item.nodeid in names]
    if others:
        config.hook.pytest_deselected(items=others)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes what the tests ran on and what they ran."""
    _write_line({"sources": imported_sources(session.config.invocation_params.dir)})
    if "torch" in sys.modules and not gpu_gap():
        _write_line({"machine": measure_machine()})


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
    _write_line({"case": line})


def _write_line(line: Mapping[str, object]) -> None:
    """One write: processes that a test plugin starts may share the file."""
    with Path(os.environ[OUT]).open("ab", buffering=0) as file:
        file.write((json.dumps(line) + "\n").encode())


def _outcome(reports: list[pytest.TestReport]) -> tuple[str, str]:
    """The worst of a test's phases, and why."""
    for report in reports:
        if report.failed:
            return ("failed" if report.when == "call" else "error"), _why(report.longreprtext)[:300]
    for report in reports:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            return "not_run", reason[:300]
    return ("passed", "") if any(report.when == "call" for report in reports) else ("error", "it did not run")


def _why(text: str) -> str:
    """The first line that pytest marks as the error's own, or the last of all where it marks none."""
    lines = text.strip().splitlines() or [""]
    return next((line[1:].strip() for line in lines if line.startswith("E ")), lines[-1])
