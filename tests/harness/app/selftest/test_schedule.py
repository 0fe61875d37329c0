"""Tasks are begun as soon as what they need is there, engines beside other work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.app.selftest.catalogue import CATALOGUE, Case, load_catalogue
from harness.app.selftest.schedule import Shared, Task, next_task, plan_tasks
from harness.model.selftest import Stage

CASES = load_catalogue(Path(__file__).resolve().parents[4] / CATALOGUE)
PLAN = plan_tasks([[case] for case in CASES])


def one(stage: Stage) -> Case:
    return next(case for case in CASES if case.fault.stage is stage)


def run_plan(jobs: int) -> list[tuple[Task, list[Task]]]:
    """What is begun, and beside what, if whatever began first ends first."""
    waiting, running, made = list(PLAN), list[Task](), set[Shared]()
    begun: list[tuple[Task, list[Task]]] = []
    while waiting or running:
        while len(running) < jobs and (task := next_task(waiting, running, made, jobs)):
            begun.append((task, list(running)))
            waiting.remove(task)
            running.append(task)
        done = running.pop(0)
        made |= {done.makes} if done.makes else set()
    return begun


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_every_case_is_judged_once_whatever_is_made_before(jobs: int) -> None:
    judged = [case.name for task, _ in run_plan(jobs) if task.makes is None for case in task.cases]
    assert sorted(judged) == sorted(case.name for case in CASES)


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_no_case_is_begun_before_what_it_needs_is_done(jobs: int) -> None:
    begun = [task for task, _ in run_plan(jobs)]
    places = {task.makes: place for place, task in enumerate(begun) if task.makes}
    beside = {task.cases: running for task, running in run_plan(jobs)}
    for place, task in enumerate(begun):
        if task.needs:
            assert places[task.needs] < place
            assert task.needs not in {other.makes for other in beside[task.cases]}


def test_a_case_waits_for_a_shared_run_that_runs() -> None:
    probe, making = Task(cases=(one(Stage.PROBE),)), Task(cases=(one(Stage.PROBE),), makes=Shared.CLEAN)
    assert next_task([probe], [making], set(), 2) is None
    assert next_task([probe], [], {Shared.CLEAN}, 2) is probe


def test_a_twin_that_is_timed_is_measured_with_the_honest_change_and_its_fault_is_not() -> None:
    timed = {case.is_twin: case for case in CASES if case.fault.stage is Stage.TIMING}
    plan = plan_tasks([[timed[True]], [timed[False]]])
    needs = {(task.makes, task.cases[0].is_twin): (task.needs, task.has_engines) for task in plan}
    assert needs == {
        (Shared.MEASURED, True): (None, True),
        (None, True): (Shared.MEASURED, False),
        (None, False): (None, True),
    }
    on_another_tree = replace(timed[True], base=timed[True].edit)
    assert [task.needs for task in plan_tasks([[on_another_tree]])] == [None]


def test_cases_of_the_gpu_tier_run_side_by_side_and_those_with_most_processes_are_begun_first() -> None:
    cases = [case for case in CASES if case.fault.stage is Stage.GPU]
    waiting = plan_tasks([[case] for case in cases])
    running = list[Task]()
    while task := next_task(waiting, running, set(), len(cases)):
        waiting.remove(task)
        running.append(task)
    shares = [task.num_shares for task in running]
    assert len(running) == len(cases) and shares == sorted(shares, reverse=True)
    assert all(task.cases[0].is_twin for task in running[: len(cases) // 2])
    assert not any(task.cases[0].is_twin for task in running[len(cases) // 2 :])


def test_what_is_timed_has_other_work_beside_it_and_features_come_before_the_other_engines() -> None:
    begun = [task for task, _ in run_plan(2) if task.has_engines]
    timed = [task.stage is Stage.TIMING or task.makes is Shared.MEASURED for task in begun]
    assert timed == sorted(timed, reverse=True) and sum(timed) == 2
    asked = [
        any(c.fault.features for c in task.cases)
        for task in begun
        if task.stage is Stage.ARM and not task.makes
    ]
    assert asked == sorted(asked, reverse=True) and any(asked)


def test_a_shared_run_is_begun_before_cases_of_its_kind() -> None:
    for has_engines in (True, False):
        kinds = [
            task.makes is None
            for task in PLAN
            if task.has_engines is has_engines and task.stage is not Stage.TIMING
        ]
        assert kinds == sorted(kinds)


def test_of_two_jobs_one_has_engines_while_there_is_much_other_work() -> None:
    begun = run_plan(2)
    others = [place for place, (task, _) in enumerate(begun) if not task.has_engines]
    both = [
        place
        for place, (task, beside) in enumerate(begun)
        if task.has_engines and any(o.has_engines for o in beside)
    ]
    waits = {Shared.HONEST, Shared.MEASURED}
    assert all(place > others[-9] or begun[place][1][0].makes in waits for place in both)


@pytest.mark.parametrize("jobs", [2, 3])
def test_short_tasks_are_left_to_fill_what_the_last_engines_leave(jobs: int) -> None:
    tasks = [task.has_engines for task, _ in run_plan(jobs) if task.stage is not Stage.GPU]
    assert tasks[-8 * (jobs - 1) :] == [False] * 8 * (jobs - 1)


def test_one_job_does_first_what_needs_no_engine() -> None:
    stages = [task.stage for task, _ in run_plan(1) if not task.has_engines or task.stage is Stage.ARM]
    assert stages.index(Stage.ARM) > max(i for i, stage in enumerate(stages) if stage is Stage.STATIC)


def test_nothing_is_made_that_no_case_needs() -> None:
    assert [task.makes for task in plan_tasks([[one(Stage.STATIC)]])] == [None]
    made = [task.makes for task in plan_tasks([[one(Stage.ARM)], [one(Stage.STATIC)]])]
    assert sorted(filter(None, made)) == [Shared.CLEAN]
