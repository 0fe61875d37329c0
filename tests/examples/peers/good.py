"""Answers of a run in which nothing went wrong."""

from hashlib import sha256
from pathlib import Path

from examples.peers.facts import AbsenceFacts, Answer, ExchangeFacts, LossFacts, TimingFacts
from examples.peers.plan import ARMS, BATCHES, FORMS, LOSSES, PLACES, cases, make_jobs
from examples.peers.record import Place, RunRecord, find_fit, make_part
from examples.peers.verdict import Question

ITERATIONS = 1000
PLACE = Place(gpus=("NVIDIA H200",) * 2, driver="580", topology="NV18", versions={"torch": "2"})
_SOURCE = Path(__file__).parents[3] / "specialized_path/kernels/exchange/mailbox.py"
SOURCES = {"specialized_path/kernels/exchange/mailbox.py": sha256(_SOURCE.read_bytes()).hexdigest()}


def facts_of(question, process):
    """What a process answers, case by case."""
    own = question.ranks_of(process)
    found = []
    late = [p for _ in FORMS for p in range(question.num_processes) for _ in PLACES]
    for index, case in enumerate(cases(question.part, question.num_processes, question.num_ranks)):
        if question.part == "absence":
            absent = int(case.split()[2])
            found.append(
                AbsenceFacts(
                    case=case,
                    absent_rank=absent,
                    error_words=(1 + absent,) * len(own),
                    rows_are_nan=True,
                    seconds=0.1,
                    wrong_elements_after=0,
                    full_words_after=0,
                )
            )
        elif question.part == "times":
            found.append(
                TimingFacts(
                    case=case,
                    batch=BATCHES[index],
                    samples_us={
                        arm: (10.0 + shift, 11.0 + shift, 12.0 + shift) for shift, arm in enumerate(ARMS)
                    },
                    full_words=0,
                    error_words=(0,) * len(own),
                    wrong_elements=0,
                    baseline_error=0.001,
                )
            )
        elif question.part in LOSSES:
            named = question.ranks_of(question.lost_process)[0]
            found.append(
                LossFacts(
                    case=case,
                    exchanges=400,
                    error_words=(1 + named,) * len(own),
                    rows_are_nan=True,
                    stopped_s=2.0,
                    message=f"rank {named} did not come",
                )
            )
        else:
            count = ITERATIONS if question.part == "iterations" else 1
            found.append(
                ExchangeFacts(
                    case=case,
                    asked=count,
                    ran=count,
                    wrong_elements=0,
                    digest="a",
                    full_words=0,
                    error_words=(0,) * len(own),
                    seconds=0.1,
                    late_process=late[index] if question.part == "delays" else None,
                    elapsed_ms=8.0 if question.part == "delays" else None,
                )
            )
    return tuple(found)


def answers_to(question):
    return [
        Answer(process=p, facts=facts_of(question, p) if p in question.answering else (), trouble=None)
        for p in range(question.num_processes)
    ]


def questions(num_gpus=2):
    return [
        Question(part=part, num_processes=job.num_processes, num_ranks=job.num_ranks)
        for job in make_jobs(num_gpus)
        for part in job.parts
    ]


def question_of(part, num_gpus=2):
    return next(question for question in questions(num_gpus) if question.part == part)


def record(num_gpus=2):
    parts = [make_part(question, answers_to(question)) for question in questions(num_gpus)]
    return RunRecord(
        began="2026-11-30T00:00:00+00:00",
        seconds=1.0,
        num_gpus=num_gpus,
        one_gpu=False,
        num_iterations=ITERATIONS,
        place=PLACE,
        sources=SOURCES,
        parts=tuple(parts),
        fit=find_fit(parts),
    )
