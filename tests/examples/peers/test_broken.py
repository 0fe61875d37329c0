"""The faults that a run among peers must notice: they fit the source, and the recorded run noticed them."""

from pathlib import Path

import pytest

from examples.peers import broken as subject
from examples.peers.broken import FAULTS, BrokenRun, Fault, broken_command, copy_broken, run_broken
from examples.peers.plan import Job
from examples.peers.record import ROOT
from harness.model.words import Outcome
from tests.examples.peers.good import PLACE
from tests.examples.peers.test_run import fake_command

RECORD = Path(subject.__file__).with_name("broken-h200-x2-2026-11-30.json")
EDITS = [pytest.param(edit, id=f"{fault.name}: {edit[1][:20]}") for fault in FAULTS for edit in fault.edits]


@pytest.mark.parametrize("edit", EDITS)
def test_a_fault_changes_one_place_of_the_present_source(edit):
    file, old, new = edit
    assert (ROOT / file).read_text(encoding="utf-8").count(old) == 1 and old != new


@pytest.fixture
def tree(tmp_path):
    """A tree of the folders that are copied, with a file to break and the one that every copy changes."""
    for folder in subject._COPIED:
        (tmp_path / "tree" / folder).mkdir(parents=True)
    (tmp_path / "tree/examples/peers/exchange.py").write_text("POLLS = 1 << 21\nRULE = 1\n")
    return tmp_path / "tree"


def fault(old):
    edits = (("examples/peers/exchange.py", old, "RULE = 0\n"),)
    return Fault(name="a fault", part="payloads", edits=edits, num_iterations=28)


def test_a_copy_has_the_fault_and_the_tree_has_not(tree, tmp_path):
    copy_broken(fault("RULE = 1\n"), tmp_path / "copy", tree)
    kept, broken = (t / "examples/peers/exchange.py" for t in (tree, tmp_path / "copy"))
    assert (kept.read_text(), broken.read_text()) == (
        "POLLS = 1 << 21\nRULE = 1\n",
        "POLLS = 1 << 17\nRULE = 0\n",
    )


@pytest.mark.parametrize("old", ["RULE = 2\n", "1"])
def test_an_edit_that_does_not_fit_is_refused(tree, tmp_path, old):
    with pytest.raises(ValueError, match="expected once"):
        copy_broken(fault(old), tmp_path / "copy", tree)


def test_processes_import_the_copy_first(tmp_path):
    job = Job(num_processes=2, num_ranks=2, parts=("iterations",), limit_s=1.0)
    words = broken_command({job: FAULTS[3]}, tmp_path)(job, job.parts, 0, tmp_path / "meeting")
    copy = str((tmp_path / "3").resolve())
    assert words[:3] == ["env", "-C", copy] and words[3].split(":")[0] == f"PYTHONPATH={copy}"


def test_what_every_fault_gave_is_recorded_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "FAULTS", FAULTS[1:4])
    monkeypatch.setattr(subject, "copy_broken", lambda _fault, folder: folder.mkdir())
    monkeypatch.setattr(subject, "collect_place", lambda: PLACE)
    monkeypatch.setattr(subject, "rank_command", lambda _number: fake_command(tmp_path))
    made = run_broken(2, tmp_path, tmp_path / "out.json", 300.0)
    assert BrokenRun.model_validate_json((tmp_path / "out.json").read_bytes()) == made
    found = [(one.fault, one.found.part, str(one.found.outcome)) for one in made.faults]
    assert found == [(fault.name, fault.part, "pass") for fault in FAULTS[1:4]]


@pytest.mark.parametrize(
    ("index", "outcome", "is_answer"),
    [(0, Outcome.PASS, True), (0, Outcome.FAIL, False), (3, Outcome.FAIL, True), (3, Outcome.PASS, False)],
    ids=["control passes", "control fails", "fault is noticed", "fault is not noticed"],
)
def test_a_control_must_pass_and_a_fault_must_not(index, outcome, is_answer):
    assert FAULTS[index].is_answered_by(outcome) == is_answer


def test_a_fault_that_could_not_be_asked_about_is_not_noticed():
    assert not any(one.is_answered_by(Outcome.NOT_RUN) for one in FAULTS if not one.is_question)


def test_the_recorded_run_noticed_every_fault_that_it_decides():
    recorded = BrokenRun.model_validate_json(RECORD.read_bytes()).faults
    assert [one.fault for one in recorded] == [fault.name for fault in FAULTS]
    assert all(fault.is_answered_by(one.found.outcome) for fault, one in zip(FAULTS, recorded, strict=True))
