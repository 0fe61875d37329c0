"""Line coverage inside a worker: started before the subject is imported, switched between suites, saved on demand."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import coverage

START_CONTEXT = "start"
DATA_FILE_PREFIX = "coverage."


class WorkerCoverage:
    """Records the lines of the given files that run in this process, under the name of the current suite."""

    def __init__(self, files: tuple[Path, ...], ledger_dir: Path) -> None:
        self._coverage = coverage.Coverage(
            data_file=str(ledger_dir / f"{DATA_FILE_PREFIX}{os.getpid()}"),
            include=[str(f) for f in files],
            config_file=False,
            messages=False,
        )
        self._coverage.start()
        self._coverage.switch_context(START_CONTEXT)
        self._is_running = True

    def switch(self, suite: str) -> None:
        """Lines that run from now on belong to `suite`; records again if it was stopped."""
        if not self._is_running:
            self._coverage.start()
            self._is_running = True
        self._coverage.switch_context(suite)

    def stop(self) -> bool:
        """Stops recording; whether this thread is free of trace functions afterwards."""
        if self._is_running:
            self._coverage.stop()
            self._is_running = False
        return sys.gettrace() is None

    def save(self) -> None:
        """Writes what was recorded so far to the data file."""
        self._coverage.save()
