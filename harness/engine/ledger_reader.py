"""Reads what a worker's tracer wrote; whatever keeps it from counting as evidence is named as a problem."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.model.ledger import ImportedFile, LedgerRow, StepRequest, TracerProof, find_rank_difference


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
    num_ranks: int
    rows_of: dict[int, list[LedgerRow]] = field(default_factory=dict)
    """By the rank of the worker that wrote them."""
    rank: int = 0
    """Of the worker whose file is being read."""
    proofs: list[TracerProof] = field(default_factory=list)
    """Each worker's latest."""
    imported: dict[tuple[str, str, str], ImportedFile] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_ledger(ledger_dir: Path, nonce: str, num_ranks: int = 1) -> LedgerReading:
    """Everything that the tracers of one arm wrote into `ledger_dir` under `nonce`: rank 0's rows, the others' held
    against them."""
    parts = _Parts(num_ranks=num_ranks)
    for path in sorted(ledger_dir.glob("*.jsonl")):
        _read_file(path, nonce, parts)
    _complain(parts)
    proofs = sorted(parts.proofs, key=lambda proof: proof.rank)
    return LedgerReading(
        rows=tuple(parts.rows_of.get(0, ())),
        proof=proofs[0] if proofs else None,
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
    parts.rank, before, rows = 0, list(parts.proofs), RowReader()
    for number, record in enumerate(records[1:], start=2):
        try:
            _take(record, nonce, parts, rows)
        except (ValidationError, KeyError, TypeError) as error:
            detail = str(error).replace("\n", " ")[:300]
            parts.problems.append(f"{path.name}, record {number}: not what a tracer writes: {detail}")
    parts.proofs = [*before, *parts.proofs[len(before) :][-1:]]


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
        parts.rows_of.setdefault(parts.rank, []).append(rows.read(record))
    elif kind == "proof":
        proof = TracerProof.model_validate(fields)
        parts.proofs.append(proof)
        parts.rank = proof.rank
        if proof.nonce != nonce:
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
    rows, ranks = parts.rows_of.get(0, []), sorted(proof.rank for proof in parts.proofs)
    if len(ranks) > parts.num_ranks:
        expected = "one was" if parts.num_ranks == 1 else f"{parts.num_ranks} were"
        parts.problems.append(f"{len(ranks)} workers wrote ledgers, {expected} expected")
    elif not ranks:
        parts.problems.append("no worker's tracer has shown that it is alive")
    elif ranks != list(range(parts.num_ranks)):
        parts.problems.append(f"of {parts.num_ranks} ranks, {ranks} have shown that their tracers are alive")
    if not all(proof.marker_seen for proof in parts.proofs):
        parts.problems.append("the tracer did not see its own marker, so it may not see anything else")
    elif not all(any(h.endswith(".execute_model") for h in proof.step_hooks) for proof in parts.proofs):
        parts.problems.append("the tracer found no engine function to see steps at")
    if not rows:
        parts.problems.append("the ledger has no row: no engine step was seen")
    if len(ranks) <= parts.num_ranks and sorted(row.step for row in rows) != list(range(len(rows))):
        parts.problems.append("the ledger's steps are not numbered without gap: rows are lost or doubled")
    others = {
        rank: {row.step: row for row in parts.rows_of.get(rank, ())} for rank in range(1, parts.num_ranks)
    }
    if difference := find_rank_difference(rows, others):
        parts.problems.append(f"ranks do not agree: {difference}")
