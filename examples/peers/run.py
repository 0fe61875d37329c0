"""A whole run: all processes start at once, the jobs take turns, and the record is written after each."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from examples.peers.facts import Answer, Facts, LossFacts
from examples.peers.place import collect_place, why_not
from examples.peers.plan import LOSSES, START_LIMIT_S, Job, Part, cases, make_jobs
from examples.peers.record import ROOT, PartRecord, RunRecord, find_fit, make_part
from examples.peers.supervise import Group
from examples.peers.verdict import LOSS_LIMIT_S, Question

Command = Callable[[Job, Sequence[Part], int, Path], Sequence[str]]
"""What starts a process of a job, for these of its parts; the path is of a file that its processes may meet by."""
GRACE_S = 20.0
"""For the others to give up after a process has failed."""
_LEAST_SHARE = 0.5
"""Of a job's limit, what must be left of the run for it to begin: one that is cut off would count as failed."""
_CASE_S = 15.0
"""Longest time of one case of `iterations`."""
_FACTS: TypeAdapter[Facts] = TypeAdapter(Facts)
_ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""No library may make a multicast object: nothing here needs one, and some hosts do not bear them. All processes are of
one host, which may have no network."""


def run(
    num_gpus: int, *, num_iterations: int, limit_s: float, folder: Path, out: Path, one_gpu: bool = False
) -> RunRecord:
    """Runs everything that can run here within the limit; `out` holds the record as far as it has come at any time."""
    began, start = datetime.now(UTC), time.monotonic()
    place, jobs = collect_place(), make_jobs(num_gpus)
    done: list[PartRecord] = []

    def keep(parts: Sequence[PartRecord]) -> RunRecord:
        done.extend(parts)
        planned = [_question(job, part) for job in jobs for part in job.parts]
        later = [make_part(question, (), "the run did not come to it") for question in planned[len(done) :]]
        record = RunRecord(
            began=began.isoformat(timespec="seconds"),
            seconds=time.monotonic() - start,
            num_gpus=num_gpus,
            one_gpu=one_gpu,
            num_iterations=num_iterations,
            place=place,
            sources=_read_sources(folder, began),
            parts=(*done, *later),
            fit=find_fit([*done, *later]),
        )
        unfinished = out.with_name(out.name + ".part")
        unfinished.write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")
        unfinished.replace(out)
        return record

    missing = why_not(place, 1 if one_gpu else num_gpus)
    if missing is not None:
        return keep([part for job in jobs for part in _not_run(job, job.parts, missing)])
    record = keep([])
    able = [job for job in jobs if not (one_gpu and "times" in job.parts)]
    command = rank_command(num_iterations, one_gpu=one_gpu)
    with closing(run_jobs(able, command, folder, start + limit_s)) as found:
        for job in jobs:
            record = keep(
                next(found) if job in able else _not_run(job, job.parts, "all processes share one GPU")
            )
    return record


def _read_sources(folder: Path, began: datetime) -> dict[str, str]:
    """What the processes of this run had imported when they were ready."""
    found: dict[str, str] = {}
    for path in folder.glob("job-*/process-*.jsonl"):
        if path.stat().st_mtime >= began.timestamp():
            lines = path.read_text(encoding="utf-8").split("\n")[:-1]
            ready = [line for line in map(json.loads, lines) if line["event"] == "ready"]
            found |= {file: digest for line in ready for file, digest in line.get("sources", {}).items()}
    return dict(sorted(found.items()))


def rank_command(num_iterations: int, *, one_gpu: bool = False) -> Command:
    """Starts the real processes."""

    def command(job: Job, parts: Sequence[Part], process: int, meeting: Path) -> list[str]:
        numbers = {
            "process": process,
            "gpu": 0 if one_gpu else process,
            "num-processes": job.num_processes,
            "num-ranks": job.num_ranks,
            "num-iterations": num_iterations,
            "case-s": _CASE_S,
            "meeting": meeting,
        }
        options = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
        return [
            sys.executable,
            "-m",
            "examples.peers.rank",
            *options,
            "--lines",
            "{lines}",
            "--parts",
            *parts,
        ]

    return command


def run_jobs(
    jobs: Sequence[Job], command: Command, folder: Path, deadline: float
) -> Generator[list[PartRecord], None, None]:
    """Each job's parts when it is over; all processes are ended when this is left, however it is."""
    groups = [_start(job, job.parts, command, folder / f"job-{index}") for index, job in enumerate(jobs)]
    started_by = min(deadline, time.monotonic() + START_LIMIT_S)
    try:
        for index, job in enumerate(jobs):
            found = _run_parts(job, job.parts, groups[index], started_by, deadline)
            if found[0].not_run:
                # Processes that come up all at once may find no memory for a moment.
                groups[index] = _start(job, job.parts, command, folder / f"job-{index}-again")
                again_by = min(deadline, time.monotonic() + START_LIMIT_S)
                found = _run_parts(job, job.parts, groups[index], again_by, deadline)
            while len(found) < len(job.parts):
                # What comes after a part that broke gets processes of its own.
                rest = job.parts[len(found) :]
                groups[index] = _start(job, rest, command, folder / f"job-{index}-from-{len(found)}")
                again_by = min(deadline, time.monotonic() + START_LIMIT_S)
                found += _run_parts(job, rest, groups[index], again_by, deadline)
            yield found
    finally:
        for group in groups:
            group.end()


def _start(job: Job, parts: Sequence[Part], command: Command, folder: Path) -> Group:
    # A file of an earlier run would bring dead processes together.
    meeting = folder / f"meeting-{time.monotonic_ns()}"
    commands = [command(job, parts, process, meeting) for process in range(job.num_processes)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return Group(commands, folder, {**_ENVIRONMENT, "PYTHONPATH": path})


def _run_parts(
    job: Job, parts: Sequence[Part], group: Group, started_by: float, deadline: float
) -> list[PartRecord]:
    """The parts up to the first that broke, that one included; all of them where the processes did not start."""
    processes = range(job.num_processes)
    late = [process for process in processes if group.wait(process, "ready", started_by) is None]
    if late or deadline - time.monotonic() < _LEAST_SHARE * job.limit_s:
        said = group.end()
        why = "; ".join(f"process {process} did not start: {said[process]}" for process in late)
        return _not_run(job, parts, why or "the run's time was over")
    group.begin()
    limit = min(deadline, time.monotonic() + job.limit_s)
    lost: int | None = None
    signalled: float | None = None
    if parts[0] in LOSSES and all(group.wait(process, "running", limit) for process in processes):
        lost = processes[-1]
        signalled = group.send(lost, signal.Signals[LOSSES[parts[0]]])
        limit = min(limit, signalled + LOSS_LIMIT_S)
    group.wait_all(limit, but=lost, grace_s=GRACE_S)
    said = group.end()
    found = []
    for part in parts:
        answers = [_answer(job, part, group, process, said[process], signalled) for process in processes]
        found.append(make_part(_question(job, part), answers))
        if any(answer.trouble for answer in answers if answer.process != lost):
            break
    return found


def _answer(
    job: Job, part: Part, group: Group, process: int, trouble: str | None, signalled: float | None
) -> Answer:
    """What a process wrote of a part; its trouble is of the part that lacks cases."""
    wanted = cases(part, job.num_processes, job.num_ranks)
    facts: list[Facts] = []
    for line in group.lines(process):
        if line["event"] == "facts" and line["part"] == part:
            facts.append(_FACTS.validate_python(line["facts"]))
        if line["event"] == "lost" and signalled is None:
            trouble = f"before anything was done to a process: {line['facts']['message']}"
        elif line["event"] == "lost":
            facts.append(LossFacts(case=wanted[0], stopped_s=line["at"] - signalled, **line["facts"]))
    is_whole = len(facts) == len(wanted)
    return Answer(
        process=process, facts=tuple(facts), trouble=None if is_whole else trouble or "it ended early"
    )


def _not_run(job: Job, parts: Sequence[Part], why: str) -> list[PartRecord]:
    return [make_part(_question(job, part), (), why) for part in parts]


def _question(job: Job, part: Part) -> Question:
    return Question(part=part, num_processes=job.num_processes, num_ranks=job.num_ranks)
