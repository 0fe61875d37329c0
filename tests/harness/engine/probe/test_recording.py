"""Laws of reading a recording back: whole lines count, anything else is an error of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.engine.probe.recording import RECORDS, read_recording
from harness.model.errors import EvidenceError
from tests.harness.engine.probe.made_recording import NONCE, MadeStep, state_word, write_recording


def test_a_recording_without_records_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="no records"):
        read_recording(tmp_path, NONCE)


def test_steps_come_back_with_their_rows(tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "r", [MadeStep(computed=3), MadeStep(computed=4)])
    assert [s.row.requests[0].num_computed_tokens for s in recording.steps] == [3, 4]
    assert recording.is_whole


def test_changes_come_back_step_by_step(tmp_path: Path) -> None:
    step = MadeStep(computed=1, writes={state_word(0): 2.0}, engine_writes={0: 1.0, 1: 1.0})
    recording = write_recording(tmp_path / "r", [step, MadeStep(computed=2)])
    sizes = [(before[0][0].size, by_call[0][0].size) for before, by_call in recording.changes_of("plain")]
    assert sizes == [(2, 1), (0, 0)]


def test_a_recording_that_was_cut_off_is_read_as_far_as_it_came_and_is_not_whole(tmp_path: Path) -> None:
    write_recording(tmp_path / "r", [MadeStep(computed=1), MadeStep(computed=2)])
    path = tmp_path / "r" / RECORDS
    whole = path.read_text()
    path.write_text(whole[: whole.rindex('{"kind": "step"') + 40])
    recording = read_recording(tmp_path / "r", NONCE)
    assert (len(recording.steps), recording.is_whole) == (1, False)


@pytest.mark.parametrize("line", ["{}", '{"kind": "step"}', "[]", "nonsense", '{"kind": "result", "x": 1}'])
def test_records_that_no_probe_writes_are_one_error(line: str, tmp_path: Path) -> None:
    write_recording(tmp_path / "r", [MadeStep(computed=1)])
    path = tmp_path / "r" / RECORDS
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(EvidenceError, match="not what a probe writes"):
        read_recording(tmp_path / "r", NONCE)
