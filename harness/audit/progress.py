"""Progress of long work on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_LINE_EVERY_S = 10.0
"""Between two lines where stderr is not a terminal."""


class ProgressBar:
    """Counts finished pieces of `total`; says nothing when `quiet`."""

    def __init__(self, what: str, total: int, *, quiet: bool = False) -> None:
        self._what, self._total, self._done = what, total, 0
        self._quiet = quiet
        self._start = self._last_line = time.monotonic()
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[last]}", markup=False),
        )
        self._bar = Progress(*columns, console=console) if console.is_terminal and not quiet else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=self._total, last="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, last: str) -> None:
        """One more is finished; `last` names it."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, advance=1, last=_one_line(last))
            return
        now = time.monotonic()
        if not self._quiet and (self._done == self._total or now - self._last_line >= _LINE_EVERY_S):
            self._last_line = now
            text = f"[{now - self._start:5.0f} s] {self._what} {self._done}/{self._total}: {_one_line(last)}"
            print(text, file=sys.stderr, flush=True)


def _one_line(text: str) -> str:
    """Names come from the audited files: nothing in them may move the cursor."""
    return "".join(c if c.isprintable() else "?" for c in text)[:100]
