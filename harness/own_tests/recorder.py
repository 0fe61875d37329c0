"""A pytest plugin that writes one line for each test: how it ended, and what it called of the subject."""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from .boundary import Boundary, Scope

_NO_GPU = (
    "Torch not compiled with CUDA enabled",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
    "no CUDA-capable device",
)
"""How PyTorch and the CUDA runtime say that there is no GPU."""
_MAX_REASON = 300
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_REPORTS = pytest.StashKey[dict[str, tuple[pytest.TestReport, BaseException | None]]]()


class Recorder:
    """Writes lines as they come, so that a crash loses one test alone.

    Args:
        out: The file.
        top: The checkout's top folder.
        boundary: Where tests enter the subject.
        only: Node ids of the tests to be run; None: all.
    """

    def __init__(self, out: Path, top: Path, boundary: Boundary, only: frozenset[str] | None) -> None:
        self._file = out.open("a", encoding="utf-8")
        self._top = top
        self._boundary = boundary
        self._only = only
        self._by_fixture: dict[int, Scope] = {}
        self._is_running = False
        self._started_process = False
        sys.addaudithook(self._audit)

    def write(self, event: str, **fields: Any) -> None:
        """One line."""
        self._file.write(json.dumps({"event": event, **fields}) + "\n")
        self._file.flush()

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_running:
            return
        if event in ("os.fork", "os.forkpty", "os.posix_spawn"):
            self._started_process = True
        elif event == "subprocess.Popen":
            program = str(args[0] or (args[1] or [""])[0])
            if program.startswith((sys.prefix, sys.base_prefix)) or Path(program).name.startswith("python"):
                self._started_process = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Says of a file that could not be collected why."""
        if report.outcome == "passed" or not report.nodeid.partition("::")[0].endswith(".py"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else _last_line(report.longreprtext)
        self.write(
            "uncollected", test=report.nodeid, is_skipped=report.skipped, reason=_short(reason),
            is_missing_here=not report.skipped and self._is_missing_module(report.longreprtext),
        )  # fmt: skip

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves the tests that are wanted."""
        if self._only is not None:
            dropped = [item for item in items if item.nodeid not in self._only]
            items[:] = [item for item in items if item.nodeid in self._only]
            config.hook.pytest_deselected(items=dropped)
            _shorten_hypothesis()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Names all tests, before the first one may crash."""
        for item in session.items:
            self.write("test", test=item.nodeid)
        self.write("collected", num_outside=self._boundary.num_outside)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        """Keeps what a fixture calls of the subject for every test that uses it."""
        with self._boundary.scope(f"{fixturedef.baseid}:{fixturedef.argname}") as scope:
            self._by_fixture[id(fixturedef)] = scope
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Runs one test, set-up and tear-down included, and writes its line."""
        self.write("begin", test=item.nodeid)
        item.stash[_REPORTS] = {}
        self._boundary.escaped.clear()
        self._started_process, self._is_running = False, True
        try:
            with self._boundary.scope(item.nodeid) as scope:
                result = yield
        finally:
            self._is_running = False
        outcome, reason = self._outcome(item)
        self.write(
            "end",
            test=item.nodeid,
            outcome=outcome,
            reason=_short(reason),
            noticed=self._noticed(item),
            starts_processes=self._started_process,
            calls={name: sorted(kinds) for name, kinds in sorted(self._calls(item, scope).items())},
        )
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keeps each phase's report with its error."""
        report = yield
        error = call.excinfo.value if call.excinfo is not None else None
        item.stash.setdefault(_REPORTS, {})[report.when] = (report, error)
        return report

    def _calls(self, item: pytest.Item, own: Scope) -> dict[str, set[str]]:
        """The test's own calls and those of its fixtures."""
        info = getattr(item, "_fixtureinfo", None)
        definitions = [d for found in (info.name2fixturedefs.values() if info else ()) for d in found]
        scopes = [own, *(self._by_fixture[id(d)] for d in definitions if id(d) in self._by_fixture)]
        calls: dict[str, set[str]] = {}
        for scope in scopes:
            for name, kinds in scope.calls.items():
                calls.setdefault(name, set()).update(kinds)
        return calls

    def _outcome(self, item: pytest.Item) -> tuple[str, str]:
        """How the test ended, by the worst of its phases, and why."""
        reports = list(item.stash[_REPORTS].values())
        for report, error in reports:
            if report.failed:
                text = "".join(traceback.format_exception_only(error)) if error else report.longreprtext
                if any(words in text for words in _NO_GPU) or self._is_missing_module(text, error):
                    return "not_run", _last_line(text)
                return "failed", f"{'' if report.when == 'call' else f'{report.when}: '}{_first_line(text)}"
        for report, _ in reports:
            if report.skipped:
                reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
                if hasattr(report, "wasxfail"):
                    return "expected_failure", report.wasxfail
                return ("always_skipped" if _is_always_skipped(item) else "not_run"), reason
        return ("passed", "") if len(reports) == 3 else ("failed", "it did not run")

    def _noticed(self, item: pytest.Item) -> bool:
        """Whether an assertion of the test failed, and not one inside the subject."""
        errors = [
            error for report, error in item.stash[_REPORTS].values() if report.failed and error is not None
        ]
        escaped = self._boundary.escaped
        return any(_is_assertion(error) and all(error is not other for other in escaped) for error in errors)

    def _is_missing_module(self, text: str, error: BaseException | None = None) -> bool:
        """Whether a package is missing on this machine that the checkout does not hold either."""
        name = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if name is None:
            name = _last_line(text).partition("ModuleNotFoundError: No module named ")[2].strip("'\" ")
        root = name.partition(".")[0]
        return bool(root) and not any((self._top / f"{root}{suffix}").exists() for suffix in ("", ".py"))


def _is_assertion(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_assertion(part) for part in error.exceptions)
    if isinstance(error, pytest.fail.Exception):
        return "pytest-timeout" not in str(error)
    return isinstance(error, AssertionError)


def _is_always_skipped(item: pytest.Item) -> bool:
    """Whether the test's own file marks it `skip`; one that is skipped for a reason is marked `skipif`, or later."""
    owners = [getattr(item, name, None) for name in ("obj", "cls", "module")]
    marks = [mark for owner in owners for mark in _marks(getattr(owner, "pytestmark", []))]
    call = getattr(item, "callspec", None)
    return any(mark.name == "skip" for mark in (*marks, *getattr(call, "marks", ())))


def _marks(found: Any) -> list[Any]:
    return [getattr(mark, "mark", mark) for mark in (found if isinstance(found, list) else [found])]


def _shorten_hypothesis() -> None:
    """Lets a property stop at its first counterexample, instead of looking for a small one."""
    hypothesis = sys.modules.get("hypothesis")
    if hypothesis is None:
        return
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("control", hypothesis.settings(phases=phases, database=None))
    hypothesis.settings.load_profile("control")


def _short(reason: str) -> str:
    """The reason's beginning, without addresses, which differ from run to run."""
    return _ADDRESS.sub("0x...", reason)[:_MAX_REASON]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _last_line(text: str) -> str:
    lines = [line.strip().removeprefix("E  ").strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
