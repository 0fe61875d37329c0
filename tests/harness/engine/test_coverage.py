"""Line coverage is told apart by suite, and files that nobody imported count as missed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.engine.coverage_reader import read_coverage
from harness.engine.trace_settings import covered_files
from harness.engine.worker_coverage import WorkerCoverage
from harness.model.errors import EvidenceError
from harness.model.evidence import CoverageFile

GLOBS = ("subject/**/*.py",)


@pytest.fixture
def head(tmp_path: Path) -> Path:
    """A subject with one used file, one that hides lines, and one that nobody imports."""
    package = tmp_path / "head/subject"
    (package / "deep").mkdir(parents=True)
    (package / "used.py").write_text("def one():\n    return 1\n\ndef two():\n    return 2\n")
    (package / "deep/unused.py").write_text("x = 1\ndef never():\n    return x\n")
    (package / "hidden.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import os\n"
        "def secret():  # pragma: no cover\n    return 1\n"
    )
    return tmp_path / "head"


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(head: Path, ledger_dir: Path) -> tuple[bool, bool]:
    """Runs `one` in suite greedy and `two` after stopping; whether trace functions were there before and after."""
    before = sys.gettrace()
    worker = WorkerCoverage(covered_files(head, GLOBS), ledger_dir)
    used = load(head / "subject/used.py")
    worker.switch("greedy")
    used.one()
    was_tracing = sys.gettrace() is not None
    is_free = worker.stop()
    used.two()
    worker.save()
    sys.settrace(before)
    return was_tracing, is_free


def read(head: Path, ledger_dir: Path) -> dict[str, CoverageFile]:
    return {f.path: f for f in read_coverage(ledger_dir, head, GLOBS)}


def test_lines_belong_to_the_suite_that_ran_them(head: Path, tmp_path: Path) -> None:
    record(head, tmp_path)
    used = read(head, tmp_path)["subject/used.py"]
    assert (used.executable_lines, used.executed_lines) == ((1, 2, 4, 5), {"start": (1, 4), "greedy": (2,)})


def test_stopping_leaves_no_trace_function(head: Path, tmp_path: Path) -> None:
    assert record(head, tmp_path) == (True, True)


def test_a_file_that_nobody_imported_is_missed_as_a_whole(head: Path, tmp_path: Path) -> None:
    record(head, tmp_path)
    unused = read(head, tmp_path)["subject/deep/unused.py"]
    assert (unused.executable_lines, unused.executed_lines) == ((1, 2, 3), {})


def test_a_change_cannot_exclude_its_own_lines(head: Path, tmp_path: Path) -> None:
    record(head, tmp_path)
    assert read(head, tmp_path)["subject/hidden.py"].executable_lines == (1, 4, 5)


def test_no_saved_coverage_is_an_error_and_not_an_empty_result(head: Path, tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="No worker saved"):
        read_coverage(tmp_path, head, GLOBS)


def test_a_data_file_that_is_not_one_is_an_error(head: Path, tmp_path: Path) -> None:
    (tmp_path / "coverage.1").write_text("not a database")
    with pytest.raises(EvidenceError, match="cannot be read"):
        read_coverage(tmp_path, head, GLOBS)


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("subject/*.py", {"used.py", "hidden.py"}),
        ("subject/**", {"used.py", "hidden.py", "unused.py"}),
        ("subject/**/*.py", {"used.py", "hidden.py", "unused.py"}),
        ("elsewhere/*.py", set()),
    ],
)
def test_globs_cross_folders_only_by_two_stars(head: Path, glob: str, expected: set[str]) -> None:
    assert {p.name for p in covered_files(head, [glob])} == expected
