"""Collects what a change's own tests say of the subject: runs them as they are, then with falsified answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.app.own_tests_process import MISSING, FinishedTests, OwnTestsRun, run_tests
from harness.app.reaching import StaticQuestion
from harness.app.recorder import Recorder, utc_now
from harness.model.errors import EvidenceError
from harness.model.evidence import OwnTestsEvidence
from harness.model.own_tests import (
    Control,
    ControlOutcome,
    Falsified,
    Gave,
    OwnOutcome,
    OwnTest,
    OwnTestFile,
    SubjectCall,
    own_test_paths,
    subject_paths,
)
from harness.model.words import Tier

WHAT = "own tests"
"""How gaps name what was not collected."""
_NEEDS = {
    Falsified.TENSORS: {Gave.TENSORS},
    Falsified.VALUES: {Gave.VALUES, Gave.NOTHING},
    Falsified.OBJECTS: {Gave.OBJECTS},
    Falsified.ERRORS: {Gave.ERRORS},
}
"""Which calls a run can falsify, in the order of the runs."""


def own_tests_of(question: StaticQuestion, recorder: Recorder, workdir: Path) -> OwnTestsRun:
    """The change's own test files, and the subject's files that they may call."""
    repository, head, rules = question.repository, question.change.head, question.rules
    return OwnTestsRun(
        recorder=recorder,
        commit=head,
        tests=own_test_paths(question.changed.files, rules),
        subject=subject_paths(repository.paths(head), rules),
        export=partial(repository.export, head, ("**",)),
        workdir=workdir,
    )


def collect_own_tests(run: OwnTestsRun) -> None:
    """Runs the change's tests in processes of their own and records what they show; what fails leaves a gap.

    Each run has a fresh checkout, so that no test finds what another run of it wrote.
    """
    recorder = run.recorder
    if not run.tests or recorder.evidence.of(OwnTestsEvidence):
        return
    recorder.progress.say(f"the change's own tests: {len(run.tests)} files")
    try:
        clean = run_tests(run, "as-they-are", None, (), run.clean_s)
        tests = {name: clean_test(name, clean) for name in clean.tests}
        add_controls(run, tests)
        record = OwnTestsEvidence(
            tier=Tier.CPU,
            recorded_at=utc_now(),
            hardware=recorder.hardware,
            command=("python", "-m", "pytest", *run.tests),
            commit=run.commit,
            files=tuple(file_of(path, clean) for path in run.tests),
            tests=tuple(tests.values()),
            modules=clean.modules,
            num_outside=clean.num_outside,
        )
    except EvidenceError as error:
        log = error.advice.splitlines()
        recorder.gap(Tier.CPU, WHAT, error.message, broke=error.slug != MISSING, details=log)
    except KeyboardInterrupt:
        recorder.gap(Tier.CPU, WHAT, "interrupted by the user", broke=False)
        raise
    else:
        recorder.record(record)


def add_controls(run: OwnTestsRun, tests: dict[str, OwnTest]) -> None:
    """Runs what passed again, one kind of falsified answer after another, until each test has noticed one."""
    deadline = time.monotonic() + run.controls_s
    for falsified, needed in _NEEDS.items():
        wanted = tuple(name for name, test in tests.items() if can_notice(test, falsified, needed))
        if not wanted:
            continue
        run.recorder.progress.say(f"the change's own tests, {falsified} falsified: {len(wanted)} tests")
        found = run_falsified(run, falsified, wanted, deadline - time.monotonic())
        for name in wanted:
            control = control_of(name, falsified, found)
            tests[name] = tests[name].model_copy(update={"controls": (*tests[name].controls, control)})


def run_falsified(
    run: OwnTestsRun, falsified: Falsified, wanted: Sequence[str], left_s: float
) -> FinishedTests | None:
    """One run with falsified answers; None where no time is left, or too little to collect the tests.

    Raises `EvidenceError` as `run_tests` does, but for that: what the tests said as they are stands without it.
    """
    if left_s <= 0:
        return None
    try:
        return run_tests(run, falsified.value, falsified, wanted, left_s)
    except EvidenceError as error:
        if error.slug != MISSING:
            raise
        return None


def can_notice(test: OwnTest, falsified: Falsified, needed: set[Gave]) -> bool:
    """Whether a run could show something of a test.

    Objects are falsified only where a test calls nothing else: elsewhere they are what it puts in.
    """
    if test.outcome is not OwnOutcome.PASSED:
        return False
    if any(control.outcome is ControlOutcome.NOTICED for control in test.controls):
        return False
    gave = {kind for call in test.calls for kind in call.gave}
    if falsified is Falsified.OBJECTS and gave & {Gave.TENSORS, Gave.VALUES}:
        return False
    return bool(gave & needed)


def clean_test(name: str, run: FinishedTests) -> OwnTest:
    """A test as it ended by itself."""
    line = run.ended.get(name)
    if line is None:
        is_crash = run.is_over and name in run.begun
        when = "during" if name in run.begun else "before"
        reason = f"the process ended {when} it" if run.is_over else f"the time was up {when} it"
        outcome = OwnOutcome.CRASHED if is_crash else OwnOutcome.NOT_DONE
        return OwnTest(test=name, outcome=outcome, reason=reason)
    return OwnTest(
        test=name,
        outcome=line.outcome,
        reason=line.reason,
        calls=tuple(SubjectCall(function=name, gave=gave) for name, gave in line.calls.items()),
        starts_processes=line.starts_processes,
    )


def control_of(name: str, falsified: Falsified, run: FinishedTests | None) -> Control:
    """What a test said of falsified answers."""
    line = None if run is None else run.ended.get(name)
    if line is None:
        outcome, reason = ControlOutcome.NOT_DONE, "the process ended, or the time was up"
    elif line.outcome is OwnOutcome.PASSED:
        outcome, reason = ControlOutcome.PASSED, ""
    else:
        outcome = ControlOutcome.NOTICED if line.noticed else ControlOutcome.BROKE
        reason = line.reason
    return Control(falsified=falsified, outcome=outcome, reason=reason)


def file_of(path: str, run: FinishedTests) -> OwnTestFile:
    """A test file, with why it holds no tests."""
    for line in run.uncollected:
        if line.test.partition("::")[0] == path:
            missing = line.is_skipped or line.is_missing_here
            return OwnTestFile(path=path, problem=line.reason, is_missing_here=missing)
    if any(name.partition("::")[0] == path for name in run.tests):
        return OwnTestFile(path=path)
    return OwnTestFile(path=path, problem=run.problem or "no tests were collected")
