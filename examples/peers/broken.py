"""The run again with one rule of the exchange broken at a time, on real peers: what nobody notices, nobody tests."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from examples.peers.place import collect_place, why_not
from examples.peers.plan import GPUS, Job, Part
from examples.peers.record import ROOT, PartRecord, Place
from examples.peers.run import Command, rank_command, run_jobs
from harness.model.record import Record
from harness.model.words import Outcome

_COPIED = ("examples/peers", "specialized_path", "harness", "tests/specialized_path/kernels/exchange")
_MAILBOX = "specialized_path/kernels/exchange/mailbox.py"
_LIMIT_S = 30.0
Edit = tuple[str, str, str]
"""A file, what stands in it once, and what shall stand there."""
_FEW_LOOKS: Edit = ("examples/peers/exchange.py", "POLLS = 1 << 21", "POLLS = 1 << 17")
"""Exchanges that fail do so sooner; the control shows that the others still come through."""
_NOT_EMPTIED: Edit = (_MAILBOX, "    else:\n        empty_fragment(address)\n", "")
_ONE_COPY: tuple[Edit, ...] = (
    ("examples/peers/exchange.py", "COPIES = 2", "COPIES = 1"),
    ("examples/peers/parts.py", "copies = copy_schedule(len(cases))", "copies = (0,) * len(cases)"),
    ("examples/peers/parts.py", "_run(exchange, case, 1, found)", "_run(exchange, case, 0, found)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A rule that is broken, and the part that is asked about it."""

    name: str
    part: Part
    edits: tuple[Edit, ...]
    num_iterations: int
    is_question: bool = False
    """Whether either answer is one: what the machine happens to do decides."""

    def is_answered_by(self, outcome: Outcome) -> bool:
        """Whether the control passed, or the fault was noticed."""
        return self.is_question or outcome is (Outcome.FAIL if self.edits else Outcome.PASS)


FAULTS = (
    Fault(name="none: exchanges", part="iterations", edits=(), num_iterations=1400),
    Fault(name="none: rows", part="rows", edits=(), num_iterations=2800),
    Fault(name="one copy, a late process", part="delays", edits=_ONE_COPY, num_iterations=28),
    Fault(name="one copy", part="iterations", edits=_ONE_COPY, num_iterations=280),
    Fault(name="nothing is emptied", part="iterations", edits=(_NOT_EMPTIED,), num_iterations=1400),
    Fault(name="nothing is emptied: rows", part="rows", edits=(_NOT_EMPTIED,), num_iterations=2800),
    Fault(
        name="-0 is published as it is",
        part="payloads",
        edits=(
            (
                "specialized_path/kernels/exchange/kernel.py",
                "tuple(mailbox.without_negative_zero(word) for word in words)",
                "tuple(words)",
            ),
        ),
        num_iterations=28,
    ),
    Fault(
        name="-0 is published as it is: rows",
        part="rows",
        edits=(
            (
                "specialized_path/kernels/exchange/rows.py",
                "tuple(_without_negative_zero(word) for word in device.load_words(source))",
                "device.load_words(source)",
            ),
        ),
        num_iterations=280,
    ),
    Fault(
        name="only the first word is waited for",
        part="iterations",
        edits=(
            (
                _MAILBOX,
                "while (a == empty or b == empty or c == empty or d == empty) and polls > 0:",
                "while a == empty and polls > 0:",
            ),
            (_MAILBOX, "    if a == empty or b == empty or c == empty or d == empty:", "    if a == empty:"),
        ),
        num_iterations=28_000,
        is_question=True,
    ),
    Fault(
        name="no all-reduce between the unfused kernels",
        part="times",
        edits=(("examples/peers/timing.py", "        dist.all_reduce(partial, group=group)\n", ""),),
        num_iterations=28,
    ),
)


class FaultRecord(Record):
    """What the run said of one fault."""

    fault: str
    found: PartRecord


class BrokenRun(Record):
    """All faults, in their order as far as it came."""

    schema_version: Literal[1] = 1
    began: str
    place: Place
    faults: tuple[FaultRecord, ...]


def copy_broken(fault: Fault, folder: Path, root: Path = ROOT) -> None:
    """Writes what a process imports to `folder`, with the fault; raises ValueError where an edit does not fit."""
    for name in _COPIED:
        shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in (*fault.edits, _FEW_LOOKS):
        text = (folder / file).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{fault.name}: {file} has {text.count(old)} times {old!r}, expected once")
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")


def run_broken(num_gpus: int, folder: Path, out: Path, limit_s: float) -> BrokenRun:
    """Starts all, and runs one after the other; `out` holds what has come at any time."""
    began, deadline = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic() + limit_s
    # A job is known by its limit: that of two faults of one part is not quite the same.
    jobs = {
        Job(
            num_processes=num_gpus, num_ranks=num_gpus, parts=(fault.part,), limit_s=_LIMIT_S + index / 1e3
        ): fault
        for index, fault in enumerate(FAULTS)
    }
    for index, fault in enumerate(FAULTS):
        copy_broken(fault, folder / str(index))
    place = collect_place()
    run = BrokenRun(began=began, place=place, faults=())
    command = broken_command(jobs, folder)
    with closing(run_jobs([*jobs], command, folder / "logs", deadline)) as parts:
        for fault, (found,) in zip(FAULTS, parts, strict=True):
            run = run.model_copy(update={"faults": (*run.faults, FaultRecord(fault=fault.name, found=found))})
            out.write_text(run.model_dump_json(indent=1) + "\n", encoding="utf-8")
            print(f"{found.outcome}: {fault.name} ({fault.part})", *found.reasons[:2], sep="\n  ")
    return run


def broken_command(jobs: dict[Job, Fault], folder: Path) -> Command:
    """Starts processes that import a copy and nothing of this tree."""

    def command(job: Job, parts: Sequence[Part], process: int, meeting: Path) -> list[str]:
        fault = jobs[job]
        root = (folder / str(FAULTS.index(fault))).resolve()
        words = rank_command(fault.num_iterations)(job, parts, process, meeting)
        path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
        return ["env", "-C", str(root), f"PYTHONPATH={path}", *words]

    return command


def main() -> int:
    """0 when the controls passed and every fault was noticed, 1 when one was not, 3 where there are too few GPUs."""
    parser = argparse.ArgumentParser(prog="python -m examples.peers.broken", description=__doc__)
    parser.add_argument("--ranks", type=int, choices=GPUS, required=True)
    parser.add_argument("--out", type=Path, default=Path("broken.json"))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for everything")
    options = parser.parse_args()
    if (missing := why_not(collect_place(), options.ranks)) is not None:
        print(f"not run: {missing}", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as scratch:
        run = run_broken(options.ranks, Path(scratch), options.out, options.limit)
    answered = [
        fault.is_answered_by(one.found.outcome) for fault, one in zip(FAULTS, run.faults, strict=True)
    ]
    return 0 if all(answered) else 1


if __name__ == "__main__":
    sys.exit(main())
