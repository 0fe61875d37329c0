"""The record of a run among peers: whole, and of no other outcome than its answers give."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from examples.peers import record as subject
from examples.peers.__main__ import main
from examples.peers.place import parse_gpus, why_not, without_colours
from examples.peers.plan import ARMS
from examples.peers.record import ROOT, RunRecord, render_summary
from examples.peers.times import fit_times
from harness.model.words import Outcome
from tests.examples.peers.good import PLACE, answers_to, question_of, record

SCHEMA = Path(subject.__file__).with_name("record.schema.json")


def test_the_schema_is_the_one_that_is_checked_in():
    assert json.loads(SCHEMA.read_text()) == RunRecord.model_json_schema()


@pytest.mark.parametrize("num_gpus", [2, 8])
def test_a_record_comes_back_as_it_was_written(num_gpus):
    made = record(num_gpus)
    assert RunRecord.model_validate_json(made.model_dump_json()) == made


def damaged(change):
    """Whether a record parses after a change of its JSON."""
    content = json.loads(record().model_dump_json())
    change(content)
    try:
        RunRecord.model_validate_json(json.dumps(content))
    except ValidationError as error:
        return str(error)
    return None


def set_wrong_bit(content):
    content["parts"][1]["answers"][0]["facts"][0]["wrong_elements"] = 1


def drop_iteration_count(content):
    del content["parts"][1]["answers"][0]["facts"][0]["ran"]


def drop_a_part(content):
    del content["parts"][3]


def drop_an_answer(content):
    del content["parts"][0]["answers"][1]


def claim_a_faster_form(content):
    content["fit"]["two_shot_from_batch"] = 1


def ask_for_fewer(content):
    content["num_iterations"] = 10


def add_answers_to_a_part_not_run(content):
    content["parts"][0].update(not_run="no", outcome="not_run", reasons=["no"])


def say_that_there_was_one_gpu(content):
    content["one_gpu"] = True


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (set_wrong_bit, "does not follow from the answers"),
        (drop_iteration_count, "Field required"),
        (drop_a_part, "not the planned ones"),
        (drop_an_answer, "does not follow from the answers"),
        (claim_a_faster_form, "does not follow from the times"),
        (ask_for_fewer, "asked for"),
        (say_that_there_was_one_gpu, "share a GPU"),
        (add_answers_to_a_part_not_run, "has answers"),
    ],
)
def test_a_record_that_says_more_than_its_answers_does_not_parse(change, why):
    assert why in (damaged(change) or "")


def test_a_record_that_was_not_damaged_parses():
    assert damaged(lambda content: content) is None


def test_a_part_that_was_not_run_keeps_a_run_from_passing():
    content = json.loads(record().model_dump_json())
    content["parts"][0].update(not_run="why", answers=[], outcome="not_run", reasons=["why"])
    assert RunRecord.model_validate_json(json.dumps(content)).outcome is Outcome.INCONCLUSIVE


def test_without_gpus_every_part_is_not_run_and_the_record_says_why(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "examples.peers.run.collect_place", lambda: PLACE.model_copy(update={"gpus": (), "topology": None})
    )
    monkeypatch.setattr("sys.argv", ["peers", "--ranks", "4", "--out", str(tmp_path / "r.json")])
    assert main() == 3
    parts = RunRecord.model_validate_json((tmp_path / "r.json").read_bytes()).parts
    assert {part.not_run for part in parts} == {"4 GPUs are needed, and nvidia-smi lists 0"}
    capsys.readouterr()


def record_of_a_failure():
    """The process that should have stopped did not answer."""
    question, made = question_of("killed"), record()
    failed = subject.make_part(question, answers_to(question)[1:])
    parts = tuple(failed if part.part == "killed" else part for part in made.parts)
    return made.model_copy(update={"parts": parts})


@pytest.mark.parametrize(("fault", "code"), [(False, 0), (True, 1)])
def test_a_record_can_be_decided_again(tmp_path, monkeypatch, capsys, fault, code):
    made = record_of_a_failure() if fault else record()
    (tmp_path / "r.json").write_text(made.model_dump_json())
    monkeypatch.setattr("sys.argv", ["peers", "--check", str(tmp_path / "r.json")])
    assert main() == code
    assert "killed" in capsys.readouterr().out


@pytest.mark.parametrize("sources", [{"README.md": "0" * 64}, {"gone.py": "0" * 64}, {}])
def test_a_record_of_other_sources_is_open(tmp_path, monkeypatch, capsys, sources):
    made = record().model_copy(update={"sources": sources})
    (tmp_path / "r.json").write_text(made.model_dump_json())
    monkeypatch.setattr("sys.argv", ["peers", "--check", str(tmp_path / "r.json")])
    assert main() == 3
    said = ", ".join(sources) or "the record names none"
    assert f"not of the sources at hand: {said}" in capsys.readouterr().out


def recorded():
    """The runs that the page quotes."""
    return [
        RunRecord.model_validate_json(path.read_bytes()) for path in sorted(SCHEMA.parent.glob("h200-*.json"))
    ]


def test_every_part_of_the_recorded_runs_passed():
    assert [run.outcome for run in recorded()] == [Outcome.PASS] * 2


def test_the_page_quotes_the_times_of_the_recorded_runs():
    page = (ROOT / "docs/peers.md").read_text(encoding="utf-8")
    again, first = recorded()
    for row, other in zip(first.fit.by_batch, again.fit.by_batch, strict=True):
        medians = " | ".join(f"{row.arms[arm].median:.2f}" for arm in ARMS)
        ratios = " | ".join(f"{of.against_nccl['one-shot']:.2f}" for of in (row, other))
        assert f"| {row.batch} | {medians} | {ratios} |" in page


def test_names_of_gpus_come_without_their_serial_numbers():
    listed = "GPU 0: NVIDIA H200 (UUID: GPU-1a2b)\nGPU 1: NVIDIA H200 (UUID: GPU-3c4d)\n"
    assert parse_gpus(listed) == ("NVIDIA H200", "NVIDIA H200")


def test_a_topology_is_recorded_without_escape_sequences():
    assert without_colours("\x1b[4mGPU0\tGPU1\x1b[0m\n X \tNV18") == "GPU0\tGPU1\n X \tNV18"


def test_a_missing_package_is_named():
    place = PLACE.model_copy(update={"versions": {"torch": "2", "nvidia-cutlass-dsl-libs-base": "missing"}})
    assert why_not(place, 2) == "packages are missing: nvidia-cutlass-dsl-libs-base"


def timed(by_batch):
    """The fit of these medians of one-shot and two-shot by batch; the second process is the slower one."""
    question = question_of("times")
    answers = answers_to(question)
    for process, answer in enumerate(answers):
        facts = [
            row.model_copy(
                update={
                    "samples_us": {
                        "one-shot": (one + process, one + process, one + process + spread),
                        "two-shot": (two + process, two + process, two + process + spread),
                        "nccl": (20.0,) * 3,
                    }
                }
            )
            for row, (one, two, spread) in zip(answer.facts, by_batch, strict=True)
        ]
        answers[process] = answer.model_copy(update={"facts": tuple(facts)})
    return fit_times(answers)


def test_two_shot_is_chosen_from_the_batch_above_which_it_is_always_faster():
    fit = timed([(5, 4, 0), (5, 9, 0), (5, 9, 0), (5, 9, 0), (8, 7, 0), (9, 7, 0), (9, 7, 0)])
    assert fit.two_shot_from_batch == 16


@pytest.mark.parametrize("medians", [(5, 4), (4, 5)])
def test_spreads_that_overlap_decide_nothing(medians):
    fit = timed([(*medians, 9)] * 7)
    assert (fit.by_batch[0].faster_form, fit.two_shot_from_batch) == (None, None)


def test_the_slowest_process_is_what_an_exchange_takes():
    fit = timed([(5, 9, 0)] * 7)
    assert (fit.by_batch[0].arms["one-shot"].median, fit.by_batch[0].against_nccl["one-shot"]) == (6, 0.3)


def test_the_summary_names_what_failed():
    assert "process 0 did not answer for ['process 1 killed']" in render_summary(record_of_a_failure())
