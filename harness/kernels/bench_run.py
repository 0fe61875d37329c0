"""`fasttrack kernels bench` and `tune`: the subject's cells and tuning tasks, timed by the judge's loop."""

from __future__ import annotations

from typing import Any

from harness.kernels.records import BenchRun, CellRecord, Machine, TuneRun, TuningChoice
from harness.kernels.subject import KernelRunError, KernelSubject
from harness.kernels.timing import utc_now
from harness.model.errors import ConfigurationError


def run_bench(subject: KernelSubject, match: str, rounds: int) -> BenchRun:
    """Times the cells whose names match the glob, interleaved with their baselines.

    Raises:
        ConfigurationError: no cell matches.
        KernelRunError: the subject's process ended badly before its first cell; what it had timed is kept otherwise.
    """
    cells: list[CellRecord] = []
    facts: dict[str, Any] = {}

    def take(line: dict[str, Any]) -> None:
        if "cell" in line:
            cells.append(CellRecord(**line["cell"]))
        else:
            facts.update(line)

    launches = subject.section.launches or ""
    options = ["--match", match, "--rounds", str(rounds), "--launches", launches]
    stopped_by = ""
    try:
        subject.work("bench", "benchmarks", take, options)
    except KernelRunError as error:
        if not cells:
            raise
        stopped_by = str(error)
    if not cells:
        raise ConfigurationError("no-cells", f"No benchmark cell matches {match!r}.")
    return BenchRun(
        recorded_at=utc_now(),
        machine=Machine(**facts["machine"]),
        copy_bytes_per_second=facts["copy_bytes_per_second"],
        cells=tuple(cells),
        stopped_by=stopped_by,
    )


def run_tune(subject: KernelSubject, match: str, rounds: int) -> TuneRun:
    """Times every choice of the tasks that match, and lets the subject save the fastest of each."""
    choices: list[TuningChoice] = []
    facts: dict[str, Any] = {}

    def take(line: dict[str, Any]) -> None:
        if "choice" in line:
            choices.append(TuningChoice(**line["choice"]))
        else:
            facts.update(line)

    subject.work("tune", "tuning", take, ["--match", match, "--rounds", str(rounds)])
    if not choices:
        raise ConfigurationError(
            "no-tasks", f"No tuning task matches {match!r}, or none of their choices runs."
        )
    return TuneRun(
        recorded_at=utc_now(),
        machine=Machine(**facts["machine"]),
        choices=tuple(choices),
        saved=facts["saved"],
    )
