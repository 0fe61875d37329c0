"""Runs of ranks that are processes without a GPU: what a process that dies or hangs costs, and what it does not."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from examples.peers import run as subject
from examples.peers.plan import make_jobs
from examples.peers.record import RunRecord
from examples.peers.run import run, run_jobs
from examples.peers.supervise import Group
from examples.peers.verdict import Question
from harness.model.words import Outcome
from tests.examples.peers.good import ITERATIONS, PLACE, facts_of

NEEDED = {"torch": "2", "nvidia-cutlass-dsl-libs-base": "4"}
SCRIPT = Path(__file__).with_name("fake_rank.py")


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch):
    monkeypatch.setattr(subject, "GRACE_S", 0.3)
    monkeypatch.setattr(subject, "START_LIMIT_S", 60.0)


def fake_command(tmp_path, fault="-", where="-"):
    """Starts ranks that answer as if all went well; the last one misbehaves."""

    def command(job, parts, process, _meeting):
        folder = tmp_path / f"answers-{job.name}-{process}"
        folder.mkdir(exist_ok=True)
        for part in parts:
            question = Question(part=part, num_processes=2, num_ranks=job.num_ranks)
            known = facts_of(question, process) if process in question.answering else ()
            content = [facts.model_dump(mode="json") for facts in known]
            (folder / f"{part}-{process}.json").write_text(json.dumps(content))
        wrong = (fault, where) if process == 1 else ("-", "-")
        pids = tmp_path / f"pids-{job.name}"
        pids.mkdir(exist_ok=True)
        options = [str(folder), str(pids), "{lines}", str(process), *wrong, *parts]
        return [sys.executable, "-S", str(SCRIPT), *options]

    return command


def run_faulty(tmp_path, fault="-", where="-", *, first, job_s=60.0, limit_s=120.0):
    """Records by part of two processes, the last of which misbehaves in one part, and the seconds taken."""
    jobs = [replace(j, limit_s=job_s) for j in make_jobs(2) if (j.parts[0], j.num_ranks) == (first, 2)]
    start, command = time.monotonic(), fake_command(tmp_path, fault, where)
    found = [part for parts in run_jobs(jobs, command, tmp_path / "logs", start + limit_s) for part in parts]
    return {part.part: part for part in found}, time.monotonic() - start


def outcomes(parts):
    return {name: str(part.outcome) for name, part in parts.items()}


EXCHANGES = dict.fromkeys(("payloads", "iterations", "delays", "absence"), "pass")


@pytest.mark.parametrize("part", ["killed", "stalled"])
def test_a_process_is_really_lost_and_the_other_one_notices(tmp_path, part):
    parts, _ = run_faulty(tmp_path, first=part)
    assert outcomes(parts) == {part: "pass"}, parts[part].reasons


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("die", "it died of SIGABRT"),
        ("raise", "ValueError: of this rank"),
        ("hang", "it did not answer in time and was ended"),
    ],
)
def test_a_part_in_which_a_process_breaks_fails_alone_and_the_later_ones_run_anew(tmp_path, fault, why):
    parts, seconds = run_faulty(
        tmp_path, fault, "iterations", first="payloads", job_s=5.0 if fault == "hang" else 60.0
    )
    assert outcomes(parts) == {**EXCHANGES, "iterations": "fail"}
    assert why in parts["iterations"].reasons[0] and seconds < 60


def test_processes_that_do_not_start_leave_their_parts_not_run_with_the_reason(tmp_path):
    parts, _ = run_faulty(tmp_path, "raise", "start", first="payloads")
    assert outcomes(parts) == dict.fromkeys(EXCHANGES, "not_run")
    assert parts["delays"].not_run == "process 1 did not start: ValueError: of this rank"


def test_processes_that_did_not_start_are_started_once_more(tmp_path):
    """As where all of them come up at once and there is no memory for a moment."""
    parts, _ = run_faulty(tmp_path, "stumble", "start", first="payloads")
    assert outcomes(parts) == EXCHANGES


def test_a_job_that_could_not_come_to_its_end_does_not_begin(tmp_path):
    """It would be cut off, and a part that is cut off fails."""
    parts, _ = run_faulty(tmp_path, first="payloads", job_s=20.0, limit_s=8.0)
    assert {part.not_run for part in parts.values()} == {"the run's time was over"}


def test_what_the_time_is_over_for_is_not_run_and_no_process_is_left(tmp_path):
    parts, seconds = run_faulty(tmp_path, "hang", "delays", first="payloads", job_s=8.0, limit_s=5.0)
    assert outcomes(parts) == {**EXCHANGES, "delays": "fail", "absence": "not_run"}
    assert seconds < 20


def test_a_process_that_breaks_before_it_is_lost_fails_the_part(tmp_path):
    parts, _ = run_faulty(tmp_path, "die", "killed", first="killed")
    assert parts["killed"].outcome is Outcome.FAIL
    assert "before anything was done to a process" in parts["killed"].reasons[0]


def test_a_run_that_is_left_leaves_no_process(tmp_path, monkeypatch):
    groups = []
    monkeypatch.setattr(subject, "Group", lambda *given: groups.append(Group(*given)) or groups[-1])
    jobs = [job for job in make_jobs(2) if job.num_ranks == 2]
    found = run_jobs(jobs, fake_command(tmp_path), tmp_path / "logs", time.monotonic() + 300)
    next(found)
    found.close()
    ends = [process.poll() for group in groups for process in group._processes]
    assert len(ends) == 2 * len(jobs) and None not in ends


@pytest.mark.parametrize("one_gpu", [False, True])
def test_a_whole_run_is_recorded_and_processes_that_share_a_gpu_have_no_times(tmp_path, monkeypatch, one_gpu):
    monkeypatch.setattr(
        subject,
        "collect_place",
        lambda: PLACE.model_copy(update={"gpus": PLACE.gpus[one_gpu:], "versions": NEEDED}),
    )
    monkeypatch.setattr(subject, "rank_command", lambda _number, *, one_gpu: fake_command(tmp_path))  # noqa: ARG005
    record = run(
        2,
        num_iterations=ITERATIONS,
        limit_s=300,
        folder=tmp_path / "logs",
        out=tmp_path / "r",
        one_gpu=one_gpu,
    )
    assert RunRecord.model_validate_json((tmp_path / "r").read_bytes()) == record
    assert record.sources == {"a file": "its digest"}
    others = {str(part.outcome) for part in record.parts if part.part != "times"}
    times = [str(part.outcome) for part in record.parts if part.part == "times"]
    assert (others, times, record.fit is None) == ({"pass"}, ["not_run" if one_gpu else "pass"], one_gpu)
