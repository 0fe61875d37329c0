"""What a probe process wrote, read back: its steps with their ledger rows, and its cache, replayed change by change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.engine.ledger_reader import LedgerReading, read_ledger
from harness.model.errors import EvidenceError
from harness.model.ledger import LedgerRow
from harness.model.probe import (
    CapturedGraph,
    EngineSnapshot,
    OwnershipLoss,
    ProbedEngine,
    Refusal,
    ScenarioResult,
    Write,
)
from harness.model.record import Record

RECORDS = "probe.records"
Words = NDArray[np.int32]
Changes = tuple[tuple[Words, Words], ...]
"""By storage: indices of words and their new values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one step was given and did, besides its changes of the cache. Pages by layer."""

    writable: Mapping[str, list[int]]
    starts: Mapping[str, list[list[int]]]
    history: Mapping[str, list[int]]
    owners: Mapping[int, tuple[str, int]]
    buffers: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One call of the engine's step function that computed something."""

    engine: str
    scenario: str
    position: int
    row: LedgerRow
    names: Mapping[str, str]
    tokens: Mapping[str, tuple[int, ...]]
    likeliest: Mapping[str, tuple[int, ...]]
    """What the model would have sampled: other tokens where these are given."""
    gaps: Mapping[str, tuple[float, ...]]
    observed: Observed | None
    writes: tuple[Write, ...]
    """Pages of the cache that changed over the step, by owner; empty where they were not watched."""


class RecordedGraphs(Record):
    """What was seen of an engine's captured graphs."""

    graphs: tuple[CapturedGraph, ...]
    losses: tuple[OwnershipLoss, ...]
    planted_loss_seen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Everything of one probe process."""

    folder: Path
    ledger: LedgerReading
    steps: tuple[RecordedStep, ...]
    layouts: Mapping[str, Mapping[str, Any]]
    results: tuple[ScenarioResult, ...]
    refusals: tuple[Refusal, ...]
    snapshots: Mapping[str, EngineSnapshot]
    engines: tuple[ProbedEngine, ...]
    graphs: Mapping[str, RecordedGraphs]
    """By engine."""
    is_whole: bool
    """Whether the process came to the end of its plan."""

    def steps_of(self, engine: str) -> tuple[RecordedStep, ...]:
        """The steps of one engine, in order."""
        return tuple(step for step in self.steps if step.engine == engine)

    def changes_of(self, engine: str) -> Iterator[tuple[Changes, Changes]]:
        """For each observed step of an engine: the changes before its forward call, and those of the call."""
        num_storages = len(self.layouts[engine]["num_words"])
        path = self.folder / f"changes-{engine}.bin"
        # Not read but mapped: most of it is looked at once, a page at a time.
        words = np.memmap(path, np.int32, mode="r") if path.stat().st_size else np.zeros(0, np.int32)
        at = 0
        for step in self.steps_of(engine):
            if step.observed is not None:
                before, at = load_changes(words, at, num_storages)
                by_call, at = load_changes(words, at, num_storages)
                yield before, by_call


def load_changes(words: Words, at: int, num_storages: int) -> tuple[Changes, int]:
    """The changes that begin at a word of the file, and the word after them."""
    found = []
    for _ in range(num_storages):
        num_runs, count = (int(number) for number in words[at : at + 4].view(np.int64))
        ends = np.cumsum([4, num_runs, num_runs, count]) + at
        begins, lengths, values = (np.asarray(words[a:b]) for a, b in pairwise(ends))
        found.append((_indices_of(begins, lengths), values))
        at = int(ends[-1])
    return tuple(found), at


def _indices_of(begins: Words, lengths: Words) -> Words:
    """Every index of the runs."""
    before = np.cumsum(lengths, dtype=np.int32) - lengths
    indices = np.repeat(begins - before, lengths)
    indices += np.arange(len(indices), dtype=np.int32)
    return indices


def read_recording(folder: Path, nonce: str) -> Recording:
    """The recording in a probe's folder, as far as it came.

    Raises:
        EvidenceError: the process wrote no records, or records that no probe writes.
    """
    ledger = read_ledger(folder, nonce)
    rows = {row.step: row for row in ledger.rows}
    path = folder / RECORDS
    if not path.is_file():
        raise EvidenceError("probe-missing", "The probe process wrote no records.")
    by_kind: dict[str, list[dict[str, Any]]] = {}
    *lines, _unfinished = path.read_text(encoding="utf-8").split("\n")
    try:
        for line in lines:
            record = json.loads(line)
            by_kind.setdefault(record.pop("kind"), []).append(record)
        return Recording(
            folder=folder,
            ledger=ledger,
            steps=tuple(_steps(by_kind.get("step", []), rows)),
            layouts={r["engine"]: r for r in by_kind.get("layout", [])},
            results=tuple(ScenarioResult.model_validate(r) for r in by_kind.get("result", [])),
            refusals=tuple(Refusal.model_validate(r) for r in by_kind.get("refusal", [])),
            snapshots={
                r.pop("engine"): EngineSnapshot.model_validate(r) for r in by_kind.get("snapshot", [])
            },
            engines=tuple(ProbedEngine.model_validate(r) for r in by_kind.get("started", [])),
            graphs={r.pop("engine"): RecordedGraphs.model_validate(r) for r in by_kind.get("graphs", [])},
            is_whole="end" in by_kind,
        )
    except (ValueError, KeyError, TypeError) as error:
        message = f"The probe's records are not what a probe writes: {type(error).__name__}: {error}"
        raise EvidenceError("probe-unreadable", message[:500]) from error


def _steps(records: list[dict[str, Any]], rows: Mapping[int, LedgerRow]) -> Iterator[RecordedStep]:
    for record in records:
        if record["ledger_step"] is None:
            continue
        seen = record["observed"]
        yield RecordedStep(
            engine=record["engine"],
            scenario=record["scenario"],
            position=record["position"],
            row=rows[record["ledger_step"]],
            names=record["names"],
            tokens={name: tuple(tokens) for name, tokens in record["tokens"].items()},
            likeliest={name: tuple(tokens) for name, tokens in record["likeliest"].items()},
            gaps={name: tuple(gaps) for name, gaps in record["gaps"].items()},
            observed=None if seen is None else _observed(seen),
            writes=tuple(_write(write, record["names"]) for write in record.get("writes", ())),
        )


def _write(record: Mapping[str, Any], names: Mapping[str, str]) -> Write:
    owner = str(record["owner"])
    return Write.model_validate({**record, "owner": names.get(owner, owner)})


def _observed(record: Mapping[str, Any]) -> Observed:
    return Observed(
        writable=record["writable"],
        starts=record["starts"],
        history=record["history"],
        owners={int(page): (owner, group) for page, (owner, group) in record["owners"].items()},
        buffers=tuple(record["buffers"]),
    )
