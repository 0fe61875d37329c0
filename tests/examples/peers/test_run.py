"""Runs of ranks that are processes without a GPU: what a process that dies or hangs costs, and what it does not."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from examples.peers import run as subject
from examples.peers.plan import make_jobs
from examples.peers.run import run_jobs
from examples.peers.verdict import Question
from harness.model.words import Outcome
from tests.examples.peers.good import facts_of

SCRIPT = Path(__file__).with_name("fake_rank.py")


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch):
    monkeypatch.setattr(subject, "GRACE_S", 0.3)
    monkeypatch.setattr(subject, "START_LIMIT_S", 20.0)


def run_faulty(tmp_path, fault="-", where="-", *, first, job_s=20.0, limit_s=60.0):
    """Records by part of two processes, the last of which misbehaves in one part, and the seconds taken."""
    jobs = [replace(j, limit_s=job_s) for j in make_jobs(2) if (j.parts[0], j.num_ranks) == (first, 2)]
    for job in jobs:
        for part in job.parts:
            question = Question(part=part, num_processes=2, num_ranks=2)
            for process in question.answering:
                content = [facts.model_dump(mode="json") for facts in facts_of(question, process)]
                (tmp_path / f"{part}-{process}.json").write_text(json.dumps(content))
    for part in ("killed", "stalled"):
        (tmp_path / f"{part}-1.json").write_text("[]")

    def command(_job, parts, process, _meeting):
        wrong = (fault, where) if process == 1 else ("-", "-")
        return [sys.executable, "-S", str(SCRIPT), str(tmp_path), "{lines}", str(process), *wrong, *parts]

    start = time.monotonic()
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
    parts, seconds = run_faulty(tmp_path, fault, "iterations", first="payloads", job_s=3.0)
    assert outcomes(parts) == {**EXCHANGES, "iterations": "fail"}
    assert why in parts["iterations"].reasons[0] and seconds < 30


def test_processes_that_do_not_start_leave_their_parts_not_run_with_the_reason(tmp_path):
    parts, _ = run_faulty(tmp_path, "raise", "start", first="payloads")
    assert outcomes(parts) == dict.fromkeys(EXCHANGES, "not_run")
    assert parts["delays"].not_run == "process 1 did not start: ValueError: of this rank"


def test_what_the_time_is_over_for_is_not_run_and_no_process_is_left(tmp_path):
    parts, seconds = run_faulty(tmp_path, "hang", "delays", first="payloads", limit_s=3.0)
    assert outcomes(parts) == {**EXCHANGES, "delays": "fail", "absence": "not_run"}
    assert seconds < 8


def test_a_process_that_breaks_before_it_is_lost_fails_the_part(tmp_path):
    parts, _ = run_faulty(tmp_path, "die", "killed", first="killed", job_s=3.0)
    assert parts["killed"].outcome is Outcome.FAIL
    assert "process 0 did not answer" in parts["killed"].reasons[0]
