"""Reads what a worker's tracer wrote; whatever keeps it from counting as evidence is named as a problem."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.model.ledger import ImportedFile, LedgerRow, StepRequest, TracerProof


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReading:
    """The ledger of one arm."""

    rows: tuple[LedgerRow, ...]
    proof: TracerProof | None
    imported: tuple[ImportedFile, ...]
    modules: tuple[str, ...]
    problems: tuple[str, ...]
    """Why the ledger is no evidence; with any of them no check may pass on it."""
    notes: tuple[str, ...]
    """What a reader should know, such as a last line that a killed worker left unfinished."""

    @property
    def is_sound(self) -> bool:
        """Whether the rows are whole, ours, and written by a tracer that showed that it is alive."""
        return not self.problems


class RowReader:
    """Reads the rows of one file in order: one that goes on has the requests of the row before, a token further."""

    def __init__(self) -> None:
        self._before: LedgerRow | None = None

    def read(self, record: Mapping[str, Any]) -> LedgerRow:
        """The row that a record of kind "row" is; raises ValidationError, KeyError or TypeError where it is none."""
        fields = {name: value for name, value in record.items() if name != "kind"}
        before = self._before
        if fields.pop("goes_on", False):
            if before is None or before.step + 1 != fields["step"] or before.num_reqs != fields["num_reqs"]:
                raise KeyError("the row that it goes on from")
            fields["requests"] = tuple(_one_further(request) for request in before.requests)
        self._before = LedgerRow.model_validate(fields)
        return self._before


def _one_further(request: StepRequest) -> StepRequest:
    computed = request.num_computed_tokens
    return request.model_copy(update={"num_computed_tokens": None if computed is None else computed + 1})


@dataclass(slots=True)
class _Parts:
    rows: list[LedgerRow] = field(default_factory=list)
    proof: TracerProof | None = None
    imported: dict[tuple[str, str, str], ImportedFile] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    num_workers: int = 0


def read_ledger(ledger_dir: Path, nonce: str) -> LedgerReading:
    """Everything that the tracers of one arm wrote into `ledger_dir` under `nonce`."""
    parts = _Parts()
    for path in sorted(ledger_dir.glob("*.jsonl")):
        _read_file(path, nonce, parts)
    _complain(parts)
    return LedgerReading(
        rows=tuple(parts.rows),
        proof=parts.proof,
        imported=tuple(parts.imported[key] for key in sorted(parts.imported)),
        modules=tuple(sorted(parts.modules)),
        problems=tuple(parts.problems),
        notes=tuple(parts.notes),
    )


def _read_file(path: Path, nonce: str, parts: _Parts) -> None:
    records = list(_records(path, parts))
    if not records or records[0].get("kind") != "header" or records[0].get("nonce") != nonce:
        parts.problems.append(
            f"{path.name}: not written by this run's tracer (its nonce is missing or another)"
        )
        return
    if any(r.get("kind") == "proof" for r in records):
        parts.num_workers += 1
    rows = RowReader()
    for number, record in enumerate(records[1:], start=2):
        try:
            _take(record, nonce, parts, rows)
        except (ValidationError, KeyError, TypeError) as error:
            detail = str(error).replace("\n", " ")[:300]
            parts.problems.append(f"{path.name}, record {number}: not what a tracer writes: {detail}")


def _records(path: Path, parts: _Parts) -> Iterator[Mapping[str, Any]]:
    data = path.read_bytes()
    *lines, rest = data.split(b"\n")
    if rest:
        parts.notes.append(f"{path.name}: the last line is unfinished ({len(rest)} bytes), as after a kill")
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            yield record
        else:
            parts.problems.append(f"{path.name}, line {number}: not a JSON object")


def _take(record: Mapping[str, Any], nonce: str, parts: _Parts, rows: RowReader) -> None:
    fields = dict(record)
    kind = fields.pop("kind")
    if kind == "row":
        parts.rows.append(rows.read(record))
    elif kind == "proof":
        parts.proof = TracerProof.model_validate(fields)
        if parts.proof.nonce != nonce:
            parts.problems.append("a proof carries another run's nonce")
    elif kind == "imported":
        file = ImportedFile.model_validate(fields)
        parts.imported[(file.module, file.path, file.sha256)] = file
    elif kind == "module":
        parts.modules.add(str(fields["name"]))
    elif kind == "error":
        parts.problems.append(f"the tracer failed at {fields['where']}: {fields['message']}")
    else:
        raise TypeError(f"unknown kind {kind!r}")


def _complain(parts: _Parts) -> None:
    if parts.num_workers > 1:
        parts.problems.append(f"{parts.num_workers} workers wrote ledgers, one was expected")
    if parts.proof is None:
        parts.problems.append("no worker's tracer has shown that it is alive")
    elif not parts.proof.marker_seen:
        parts.problems.append("the tracer did not see its own marker, so it may not see anything else")
    elif not any(hook.endswith(".execute_model") for hook in parts.proof.step_hooks):
        parts.problems.append("the tracer found no engine function to see steps at")
    if not parts.rows:
        parts.problems.append("the ledger has no row: no engine step was seen")
    steps = [row.step for row in parts.rows]
    if parts.num_workers <= 1 and sorted(steps) != list(range(len(steps))):
        parts.problems.append("the ledger's steps are not numbered without gap: rows are lost or doubled")
