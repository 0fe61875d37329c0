"""`fasttrack kernels bench` and `tune`: the subject's cells and tuning tasks, timed by the judge's loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.kernels.records import (
    BenchRun,
    CellRecord,
    TuneRun,
    TuningChoice,
)
from harness.kernels.subject import KernelRunError, KernelSubject
from harness.kernels.timing import utc_now
from harness.model.kernel_tests import (
    Machine,
)


def run_bench(subject: KernelSubject, match: str, rounds: int) -> BenchRun:
    """Times the cells whose names match the glob, interleaved with their baselines.

    Raises:
        ConfigurationError: no cell matches.
        MachineGapError: there is no GPU.
        KernelRunError: the subject's process ended badly before its first cell; what it had timed is kept otherwise.
    """
    launches = ["--launches", subject.section.launches or ""]
    cells, facts, stopped_by = _work(subject, ("bench", "benchmarks", "cell"), match, rounds, launches)
    return BenchRun(
        recorded_at=utc_now(),
        machine=Machine(**facts["machine"]),
        copy_bytes_per_second=max(facts["copies"].values()),
        copies=facts["copies"],
        sources=facts.get("sources", {}),
        cells=tuple(CellRecord(**cell) for cell in cells),
        stopped_by=stopped_by,
    )


def run_tune(subject: KernelSubject, match: str, rounds: int) -> TuneRun:
    """Times every choice of the tasks that match, and lets the subject save the fastest of each.

    Raises:
        As `run_bench`, of tasks.
    """
    choices, facts, stopped_by = _work(subject, ("tune", "tuning", "choice"), match, rounds)
    return TuneRun(
        recorded_at=utc_now(),
        machine=Machine(**facts["machine"]),
        choices=tuple(TuningChoice(**choice) for choice in choices),
        saved=facts.get("saved", ""),
        sources=facts.get("sources", {}),
        stopped_by=stopped_by,
    )


def _work(
    subject: KernelSubject, what: tuple[str, str, str], match: str, rounds: int, options: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """Results of one action, facts of the run, and what ended it early; `what` is action, manifest key, result."""
    action, key, result = what
    results: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}

    def take(line: dict[str, Any]) -> None:
        if result in line:
            results.append(line[result])
        else:
            facts.update(line)

    try:
        subject.work(action, key, take, ["--match", match, "--rounds", str(rounds), *options])
    except KernelRunError as error:
        if not results:
            raise
        return results, facts, str(error)
    return results, facts, ""
