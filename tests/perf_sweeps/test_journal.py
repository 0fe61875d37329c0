"""Laws of the record on disk: durable, recorded once, resumable, and it shows when a byte was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model.errors import ConfigurationError, EvidenceError
from perf_sweeps.block import SweepPlan
from perf_sweeps.journal import RECORDS, Journal, RecordIndex, read_records
from tests.perf_sweeps.sweeps import decode_cells, plan_of, simulate

PLAN = plan_of(decode_cells(1, 2), num_blocks=2)
BLOCKS = simulate(PLAN)


def journal(folder: Path, *, resume: bool = False, plan: SweepPlan = PLAN) -> Journal:
    return Journal(folder / "sweep", plan, resume=resume)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a journal of the first three blocks."""
    with_three = journal(tmp_path)
    for block in BLOCKS[:3]:
        with_three.add(block)
    with_three.close()
    return tmp_path


def test_a_resumed_sweep_is_asked_only_what_is_missing(folder: Path) -> None:
    assert [t.key for t in journal(folder, resume=True).open_tasks()] == [(BLOCKS[3].cell, BLOCKS[3].index)]


def test_a_line_that_a_kill_left_unfinished_is_measured_again(folder: Path) -> None:
    path = folder / "sweep" / RECORDS
    path.write_bytes(path.read_bytes()[:-20])
    again = journal(folder, resume=True)
    again.add(BLOCKS[2])
    assert list(again.records()) == BLOCKS[:3]


def test_a_block_is_never_recorded_twice(folder: Path) -> None:
    with pytest.raises(EvidenceError, match="recorded already"):
        journal(folder, resume=True).add(BLOCKS[0])


@pytest.mark.parametrize("reader", [read_records, lambda f: RecordIndex(f).of(BLOCKS[0].cell)])
def test_a_changed_number_is_noticed(folder: Path, reader: object) -> None:
    path = folder / "sweep" / RECORDS
    path.write_bytes(path.read_bytes().replace(b'"num_asked":1', b'"num_asked":2', 1))
    with pytest.raises(EvidenceError, match="line 1: it was changed"):
        list(reader(folder / "sweep"))  # type: ignore[operator]


@pytest.mark.parametrize("line", [b"\xff\n", b"{}\n", b"[1]\n", b'{"record": {"cell": 1}, "sha256": ""}\n'])
def test_a_line_that_is_no_record_is_named(folder: Path, line: bytes) -> None:
    path = folder / "sweep" / RECORDS
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(EvidenceError, match="line 4"):
        list(read_records(folder / "sweep"))


def test_the_index_gives_each_cells_records_and_no_others(folder: Path) -> None:
    index = RecordIndex(folder / "sweep")
    assert [list(index.of(cell.name)) for cell in PLAN.cells] == [BLOCKS[:2], BLOCKS[2:3]]


def test_a_folder_with_a_sweep_is_taken_up_only_when_asked(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds a sweep"):
        journal(folder)


def test_another_plan_is_not_mixed_into_a_sweep(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="another plan"):
        journal(folder, resume=True, plan=plan_of(decode_cells(1, 2), num_blocks=3))


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "mine.txt").write_text("x")
    with pytest.raises(ConfigurationError, match="other files"):
        journal(tmp_path)
