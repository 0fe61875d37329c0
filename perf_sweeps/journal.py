"""The record of a sweep on disk: its plan, and every block and failure the moment it is there."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from harness.model.errors import ConfigurationError, EvidenceError
from harness.model.record import digest_of, render_canonical_json
from perf_sweeps.block import Block, BlockTask, Failure, SweepPlan

PLAN, RECORDS = "plan.json", "records.jsonl"
_RECORD: TypeAdapter[Block | Failure] = TypeAdapter(Annotated[Block | Failure, Field(discriminator="kind")])


class Journal:
    """A folder with `plan.json` and `records.jsonl`; each line holds a record and the sha256 of its canonical JSON.

    What `add` has returned survives a crash. A last line that a kill left unfinished is cut off when the folder is
    taken up again; any other line that is not what it says it is raises `EvidenceError`.
    """

    def __init__(self, folder: Path, plan: SweepPlan, *, resume: bool) -> None:
        """Raises `ConfigurationError` when the folder holds another sweep, or one already and `resume` is off."""
        self.folder, self.plan = folder, plan
        self._path = folder / RECORDS
        self._done: set[tuple[str, int]] = set()
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / PLAN).exists():
            self._take_up(resume)
        else:
            if any(folder.iterdir()):
                raise ConfigurationError(
                    "out-not-empty", f"{folder} holds other files.", "Give another --out."
                )
            (folder / PLAN).write_bytes(render_canonical_json(plan) + b"\n")
        self._file = self._path.open("ab")

    def _take_up(self, resume: bool) -> None:
        if not resume:
            raise ConfigurationError(
                "sweep-exists", f"{self.folder} holds a sweep.", "Give --resume, or another --out."
            )
        if read_plan(self.folder).digest != self.plan.digest:
            raise ConfigurationError(
                "other-sweep",
                f"{self.folder} holds a sweep of another plan: cells, blocks, seed, prompts or commit differ.",
                "Give another --out, or ask for what was asked then.",
            )
        if self._path.exists():
            content = self._path.read_bytes()
            os.truncate(self._path, content.rfind(b"\n") + 1)
        self._done = {(r.cell, r.index) for r in self.records() if isinstance(r, Block)}

    def open_tasks(self) -> tuple[BlockTask, ...]:
        """The plan's blocks that are not recorded yet."""
        return tuple(task for task in self.plan.tasks() if task.key not in self._done)

    def add(self, record: Block | Failure) -> None:
        """Keeps a record durably. Raises `EvidenceError` for a second record of one block."""
        if isinstance(record, Block):
            if (record.cell, record.index) in self._done:
                raise EvidenceError(
                    "measured-twice", f"{record.cell}, block {record.index} is recorded already."
                )
            self._done.add((record.cell, record.index))
        line = {"sha256": digest_of(record), "record": record.model_dump(mode="json")}
        self._file.write(render_canonical_json(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def records(self) -> Iterator[Block | Failure]:
        """All records, in the order in which they were made."""
        return read_records(self.folder)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_plan(folder: Path) -> SweepPlan:
    """The plan of a sweep's folder; raises `EvidenceError`."""
    try:
        return SweepPlan.model_validate_json((folder / PLAN).read_bytes())
    except (OSError, ValidationError) as error:
        raise EvidenceError("sweep-plan", f"{folder / PLAN}: {str(error).splitlines()[0]}") from error


def read_records(folder: Path) -> Iterator[Block | Failure]:
    """The records of a sweep's folder, one at a time; raises `EvidenceError` at a line that was changed."""
    for _, content in _read_lines(folder / RECORDS):
        yield _RECORD.validate_python(content)


class RecordIndex:
    """Where each cell's records lie in a sweep's folder, so that one cell at a time is in memory."""

    def __init__(self, folder: Path) -> None:
        """Reads every record once; raises `EvidenceError` at a line that was changed."""
        self._path = folder / RECORDS
        self._places: dict[str, list[int]] = defaultdict(list)
        self.first_at, self.last_at = "", ""
        """When the first and the last record were made; empty without one."""
        for place, content in _read_lines(self._path):
            self._places[str(content["cell"])].append(place)
            at = str(content.get("recorded_at", ""))
            self.first_at, self.last_at = min(self.first_at or at, at), max(self.last_at, at)

    def of(self, cell: str) -> Iterator[Block | Failure]:
        """One cell's records, in the order in which they were made."""
        if cell not in self._places:
            return
        with self._path.open("rb") as file:
            for place in self._places[cell]:
                file.seek(place)
                yield _RECORD.validate_python(json.loads(file.readline())["record"])


def _read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Place in the file and content of every whole line whose digest is right; any other raises."""
    if not path.exists():
        return
    place = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield place, _checked(line, f"{path}, line {number}")
            place += len(line)


def _checked(line: bytes, where: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
        record, stated = content["record"], content["sha256"]
        cell = record["cell"]
    except (ValueError, KeyError, TypeError) as error:
        raise EvidenceError("sweep-record", f"{where}: not a record.") from error
    if not isinstance(cell, str) or stated != digest_of(record):
        raise EvidenceError("sweep-record", f"{where}: it was changed after it was made.")
    return dict(record)
