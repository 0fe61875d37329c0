"""One run of a change's own tests in a process of its own, and the lines that it wrote."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from harness.app.recorder import Recorder
from harness.engine.arm_spec import PASSED_ON
from harness.engine.log_tail import read_log_tail
from harness.engine.supervised import Supervised
from harness.model.errors import EvidenceError
from harness.model.own_tests import Falsified, Gave, OwnOutcome
from harness.model.record import Record

PROGRAM = Path(__file__).resolve().parents[1] / "own_tests" / "session.py"
NO_PYTEST, DEAD, USAGE = 90, 91, 4
"""Exit statuses of the program; the last is pytest's own."""
_EXITS = {
    NO_PYTEST: "pytest is not installed; it runs a change's own tests",
    DEAD: "the watch did not see its own sample",
}
MISSING, BROKEN = "own-tests-missing", "own-tests-broken"
"""Slugs of errors: of what this machine or the time lacked, and of what went wrong with us."""


class NamedLine(Record):
    """A test that was collected, or that begins."""

    event: Literal["test", "begin"]
    test: str


class EndLine(Record):
    """How a test ended."""

    event: Literal["end"]
    test: str
    outcome: OwnOutcome
    reason: str
    noticed: bool
    starts_processes: bool
    calls: dict[str, tuple[Gave, ...]]


class UncollectedLine(Record):
    """A file in which no test could be collected."""

    event: Literal["uncollected"]
    test: str
    is_skipped: bool
    is_missing_here: bool
    reason: str


class CollectedLine(Record):
    """The end of the collection."""

    event: Literal["collected"]
    num_outside: int


class FinishedLine(Record):
    """The end of the run."""

    event: Literal["finished"]
    status: int
    modules: tuple[str, ...]
    foreign: tuple[str, ...]
    """Modules of the subject that were not imported from the checkout."""


Line = Annotated[
    NamedLine | EndLine | UncollectedLine | CollectedLine | FinishedLine, Field(discriminator="event")
]
_LINE: TypeAdapter[Line] = TypeAdapter(Line)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTestsRun:
    """What the collection needs to know."""

    recorder: Recorder
    commit: str
    tests: tuple[str, ...]
    """The change's test files."""
    subject: tuple[str, ...]
    """The subject's Python files at the head."""
    export: Callable[[Path], object]
    """Writes the head commit's files into a new folder."""
    workdir: Path
    clean_s: float = 300.0
    """Seconds for the tests as they are."""
    controls_s: float = 300.0
    """Seconds for all runs with falsified answers together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTests:
    """What one run of the tests wrote."""

    is_over: bool
    """Whether the process ended by itself."""
    problem: str
    """Why no test was collected; empty when the collection came to its end."""
    tests: tuple[str, ...]
    begun: frozenset[str]
    ended: Mapping[str, EndLine]
    uncollected: tuple[UncollectedLine, ...]
    modules: tuple[str, ...]
    num_outside: int


def run_tests(
    run: OwnTestsRun, name: str, falsified: Falsified | None, only: Sequence[str], limit_s: float
) -> FinishedTests:
    """One run of the test files, or of `only` some of their tests, for at most `limit_s` seconds.

    Raises:
        EvidenceError: pytest or the time was missing, the watch did not work, or what it wrote cannot be read.
    """
    # Modules name their files with links resolved.
    folder = run.workdir.resolve() / name
    checkout, out, log = folder / "checkout", folder / "tests.jsonl", folder / "tests.log"
    folder.mkdir(parents=True)
    run.export(checkout)
    settings = {
        "checkout": str(checkout),
        "subject": run.subject,
        "tests": run.tests,
        "falsified": falsified.value if falsified else "",
        "only": list(only) if falsified else None,
        "out": str(out),
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    temp_dir = Path(tempfile.mkdtemp(prefix="fasttrack-"))
    program = Supervised(temp_dir, log)
    try:
        command = (sys.executable, "-P", str(PROGRAM), str(folder / "settings.json"))
        if not program.launch(command, environment_of(checkout, temp_dir)):
            raise EvidenceError(BROKEN, "The change's tests could not be started.")
        status = program.wait(limit_s)
    finally:
        program.kill()
    names = {
        str(checkout): "{head}",
        str(temp_dir): "{temp}",
        str(PROGRAM.parents[2]): "{harness}",
        sys.prefix: "{python}",
    }
    if status in _EXITS:
        raise EvidenceError(MISSING if status == NO_PYTEST else BROKEN, f"{_EXITS[status]}.")
    lines = read_lines(out, names)
    foreign = [name for line in lines if isinstance(line, FinishedLine) for name in line.foreign]
    if foreign:
        text = f"The tests imported the subject from elsewhere than its checkout: {', '.join(foreign)}."
        raise EvidenceError(BROKEN, text)
    problem = ""
    if not any(isinstance(line, CollectedLine) for line in lines):
        problem = why_not_collected(status, limit_s, read_log_tail(log, 20, names))
    return finished_tests(lines, is_over=status is not None, problem=problem)


def environment_of(checkout: Path, temp_dir: Path) -> dict[str, str]:
    """What the tests get to see: the change's files first, and none of the harness's secrets."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return passed | {
        "HOME": str(temp_dir),
        "TMPDIR": str(temp_dir),
        "XDG_CACHE_HOME": str(temp_dir / "cache"),
        "PYTHONPATH": str(checkout),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # Compiled code would not pass the watch.
        "TORCHDYNAMO_DISABLE": "1",
    }


def why_not_collected(status: int | None, limit_s: float, log: Sequence[str]) -> str:
    """What the change's files did to the collection.

    Raises:
        EvidenceError: it was not they.
    """
    if status is None:
        raise EvidenceError(MISSING, f"The tests were not collected within {limit_s:.0f} s.", "\n".join(log))
    if status == USAGE:
        raise EvidenceError(MISSING, "pytest cannot run here as the change configures it.", "\n".join(log))
    return f"pytest ended before it had collected the tests (exit status {status})"


def read_lines(out: Path, names: Mapping[str, str]) -> list[Line]:
    """What the process wrote, with this machine's folders under other names; a last line may be cut short.

    Raises:
        EvidenceError: a line is none of the watch's.
    """
    text = out.read_text(encoding="utf-8", errors="replace") if out.is_file() else ""
    for real, shown in names.items():
        text = text.replace(json.dumps(real)[1:-1], shown)
    try:
        return [_LINE.validate_json(line) for line in text.split("\n")[:-1]]
    except ValidationError as error:
        raise EvidenceError(BROKEN, f"The record of the tests cannot be read: {error}.") from error


def finished_tests(lines: Sequence[Line], *, is_over: bool, problem: str) -> FinishedTests:
    """The lines by what they say."""
    named = [line for line in lines if isinstance(line, NamedLine)]
    return FinishedTests(
        is_over=is_over,
        problem=problem,
        tests=tuple(line.test for line in named if line.event == "test"),
        begun=frozenset(line.test for line in named if line.event == "begin"),
        ended={line.test: line for line in lines if isinstance(line, EndLine)},
        uncollected=tuple(line for line in lines if isinstance(line, UncollectedLine)),
        modules=tuple(name for line in lines if isinstance(line, FinishedLine) for name in line.modules),
        num_outside=sum(line.num_outside for line in lines if isinstance(line, CollectedLine)),
    )
