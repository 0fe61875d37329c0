"""Laws of the file that a worker's tracer writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.engine.ledger_file import LedgerFile


def records_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()]


def test_a_record_is_there_at_once(tmp_path: Path) -> None:
    LedgerFile(tmp_path, "n").write("row", step=0)
    assert records_in(tmp_path)[1:] == [{"kind": "row", "step": 0}]


def test_records_that_are_held_back_come_at_the_end_in_their_order(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path, "n")
    file.write("row", step=0)
    file.hold_back()
    file.write("row", step=1)
    file.hold_back()
    file.write("error", where="here")
    assert len(records_in(tmp_path)) == 2
    file.write_held()
    file.write("row", step=2)
    assert [r.get("step", r["kind"]) for r in records_in(tmp_path)[1:]] == [0, 1, "error", 2]
