"""A ledger counts only if it is whole, ours, and written by a tracer that showed that it is alive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.engine.ledger_file import LedgerFile
from harness.engine.ledger_reader import read_ledger


def row(step: int) -> dict[str, Any]:
    request = {
        "request_id": "cmpl-a-0r-0",
        "num_scheduled_tokens": 1,
        "num_prefill_tokens": 0,
        "num_emitted_tokens": 1,
    }
    return {
        "step": step,
        "started_ns": 1,
        "duration_ns": 1,
        "num_reqs": 1,
        "requests": [request],
        "decisions": [],
        "ran": {},
    }


PROOF: dict[str, Any] = {
    "nonce": "n0",
    "marker_seen": True,
    "wrapped": [],
    "missing": {},
    "step_hooks": ["GPUModelRunner.execute_model"],
}


def write(folder: Path, *, nonce: str = "n0", proof: dict[str, Any] | None = PROOF, steps: int = 3) -> Path:
    file = LedgerFile(folder, nonce)
    if proof is not None:
        file.write("proof", **proof)
    for step in range(steps):
        file.write("row", **row(step))
    file.write("imported", module="m", path="m.py", sha256="0")
    file.write("module", name="m")
    return next(folder.glob("*.jsonl"))


def test_a_whole_ledger_is_sound(tmp_path: Path) -> None:
    write(tmp_path)
    reading = read_ledger(tmp_path, "n0")
    assert (len(reading.rows), reading.modules, reading.problems, reading.notes) == (3, ("m",), (), ())


def test_a_line_that_a_killed_worker_left_unfinished_is_noted_and_the_rest_counts(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"kind":"row","st')
    reading = read_ledger(tmp_path, "n0")
    assert (reading.is_sound, len(reading.rows)) == (True, 3) and "unfinished" in reading.notes[0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nonce": "other"}, "not written by this run"),
        ({"proof": None}, "no worker's tracer has shown"),
        ({"proof": PROOF | {"marker_seen": False}}, "did not see its own marker"),
        ({"proof": PROOF | {"nonce": "other"}}, "another run's nonce"),
        ({"proof": PROOF | {"step_hooks": []}}, "no engine function"),
        ({"steps": 0}, "no row"),
    ],
    ids=["wrong nonce", "no proof", "marker unseen", "foreign proof", "no hooks", "zero rows"],
)
def test_a_ledger_that_proves_nothing_is_not_sound(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    write(tmp_path, **options)
    assert any(problem in p for p in read_ledger(tmp_path, "n0").problems)


@pytest.mark.parametrize(
    "line",
    [
        "{not json",
        "[]",
        '{"kind":"row","step":3}',
        '{"kind":"surprise"}',
        '{"step":3}',
        '{"kind":"error","where":"a step","message":"KeyError: x"}',
        json.dumps({"kind": "row", **row(7)}),
        json.dumps({"kind": "row", **row(2)}),
        json.dumps({"kind": "row", **row(3), "extra": 1}),
    ],
    ids=[
        "not json",
        "no object",
        "half a row",
        "unknown",
        "no kind",
        "error",
        "gap",
        "doubled",
        "unknown field",
    ],
)
def test_a_line_that_no_healthy_tracer_writes_makes_the_ledger_unsound(tmp_path: Path, line: str) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text() + line + "\n")
    assert not read_ledger(tmp_path, "n0").is_sound


def test_an_empty_folder_is_not_sound(tmp_path: Path) -> None:
    reading = read_ledger(tmp_path, "n0")
    assert (reading.is_sound, reading.proof) == (False, None)


def test_two_workers_are_not_mixed_up_as_one(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.with_name("1.jsonl").write_text(path.read_text())
    assert any("2 workers" in p for p in read_ledger(tmp_path, "n0").problems)


def test_the_last_proof_of_a_worker_is_the_one_that_counts(tmp_path: Path) -> None:
    path = write(tmp_path)
    later = {"kind": "proof", **PROOF, "wrapped": ["m:f"]}
    path.write_text(path.read_text() + json.dumps(later) + "\n")
    proof = read_ledger(tmp_path, "n0").proof
    assert proof is not None and proof.wrapped == ("m:f",)


def on(step: int, num_reqs: int = 1) -> dict[str, Any]:
    """A row that goes on from the one before."""
    fields = row(step) | {"goes_on": True, "num_reqs": num_reqs}
    del fields["requests"]
    return fields


def started(folder: Path, *rows: dict[str, Any]) -> Any:
    file = LedgerFile(folder, "n0")
    file.write("proof", **PROOF)
    for fields in rows:
        file.write("row", **fields)
    return read_ledger(folder, "n0")


def test_a_row_that_goes_on_has_the_requests_of_the_row_before_one_token_further(tmp_path: Path) -> None:
    first = row(0)
    first["requests"][0]["num_computed_tokens"] = 7
    reading = started(tmp_path, first, on(1), on(2))
    assert reading.problems == ()
    parts = [row.requests[0] for row in reading.rows]
    assert [part.num_computed_tokens for part in parts] == [7, 8, 9]
    assert {(part.request_id, part.num_emitted_tokens) for part in parts} == {("cmpl-a-0r-0", 1)}


@pytest.mark.parametrize(
    "rows",
    [(on(0),), (row(0), on(2)), (row(0), on(1, num_reqs=2))],
    ids=["none before", "a gap", "other batch"],
)
def test_a_row_that_goes_on_from_nothing_is_a_problem(
    tmp_path: Path, rows: tuple[dict[str, Any], ...]
) -> None:
    assert "the row that it goes on from" in " ".join(started(tmp_path, *rows).problems)
