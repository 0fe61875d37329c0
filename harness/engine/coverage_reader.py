"""Reads the line coverage that workers saved, measured against the files as they are."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import coverage
from coverage.exceptions import CoverageException

from harness.engine.trace_settings import covered_files
from harness.engine.worker_coverage import DATA_FILE_PREFIX, START_CONTEXT
from harness.model.errors import EvidenceError
from harness.model.evidence import CoverageFile

EXCLUDED = (r"^\s*if (typing\.)?TYPE_CHECKING:", r"^\s*\.\.\.\s*$")
"""Lines that no run executes. A `pragma: no cover` excludes nothing: the change must not choose what counts."""


def read_coverage(ledger_dir: Path, import_path: Path, globs: Iterable[str]) -> tuple[CoverageFile, ...]:
    """Every file that the globs name below `import_path`, also those that no worker imported.

    Raises EvidenceError when no worker saved coverage or a data file is unreadable.
    """
    data_files = sorted(p for p in ledger_dir.glob(f"{DATA_FILE_PREFIX}*") if p.is_file())
    if not data_files:
        raise EvidenceError("coverage-missing", "No worker saved line coverage.")
    data = coverage.CoverageData(no_disk=True)
    try:
        for path in data_files:
            part = coverage.CoverageData(basename=str(path))
            part.read()
            data.update(part)
        files = covered_files(import_path.resolve(), globs)
        return tuple(_read_file(path, import_path.resolve(), data) for path in files)
    except CoverageException as error:
        raise EvidenceError("coverage-unreadable", f"Line coverage cannot be read: {error}") from error


def _read_file(path: Path, import_path: Path, data: coverage.CoverageData) -> CoverageFile:
    executable = set(_executable_lines(path))
    by_suite: dict[str, set[int]] = {}
    for line, contexts in data.contexts_by_lineno(str(path)).items():
        for context in contexts:
            by_suite.setdefault(context or START_CONTEXT, set()).add(line)
    return CoverageFile(
        path=path.relative_to(import_path).as_posix(),
        executable_lines=tuple(sorted(executable)),
        executed_lines={s: tuple(sorted(by_suite[s] & executable)) for s in sorted(by_suite)},
    )


_PARSING = threading.Lock()
"""CPython 3.11 keeps one recursion counter for all threads that build syntax trees (python/cpython#106905)."""


def _executable_lines(path: Path) -> list[int]:
    analyser = coverage.Coverage(data_file=None, config_file=False, messages=False)
    analyser.clear_exclude()
    for pattern in EXCLUDED:
        analyser.exclude(pattern)
    with _PARSING:
        return list(analyser.analysis2(str(path))[1])
