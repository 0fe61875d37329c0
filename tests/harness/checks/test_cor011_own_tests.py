"""Outcomes of COR011."""

from __future__ import annotations

import pytest

from harness.checks.correctness.cor011_own_tests import OwnTests
from harness.model.change import ChangedFile
from harness.model.check import CheckContext
from harness.model.evidence import AnyEvidence, ChangedFilesEvidence, GapEvidence, OwnTestsEvidence
from harness.model.finding import Finding
from harness.model.judgement import worst
from harness.model.manifest import Manifest
from harness.model.own_tests import (
    Control,
    ControlOutcome,
    Falsified,
    Gave,
    OwnOutcome,
    OwnTest,
    OwnTestFile,
    SubjectCall,
)
from harness.model.words import Outcome, Tier
from tests.harness.checks.evidence_builder import HEAD, MANIFEST, context_of

DECLARED = Manifest.model_validate(
    MANIFEST.model_dump() | {"paths": MANIFEST.paths.model_dump() | {"tests": ["tests/**"]}}
)
A, B = "tests/test_a.py", "tests/test_b.py"


def control(outcome: ControlOutcome, falsified: Falsified = Falsified.TENSORS) -> Control:
    return Control(falsified=falsified, outcome=outcome, reason="why")


def one(
    *controls: Control,
    name: str = f"{A}::test_it",
    outcome: OwnOutcome = OwnOutcome.PASSED,
    function: str = "subject:f",
    gave: Gave = Gave.TENSORS,
    calls: bool = True,
    starts_processes: bool = False,
) -> OwnTest:
    called = (SubjectCall(function=function, gave=(gave,)),) if calls else ()
    return OwnTest(
        test=name,
        outcome=outcome,
        reason="a reason",
        calls=called,
        controls=controls,
        starts_processes=starts_processes,
    )


GOOD = one(control(ControlOutcome.NOTICED))
BLIND = one(control(ControlOutcome.PASSED))
STRANGER = one(calls=False)


def other(test: OwnTest, name: str, function: str = "subject:f") -> OwnTest:
    calls = tuple(c.model_copy(update={"function": function}) for c in test.calls)
    return test.model_copy(update={"test": name, "calls": calls})


def changed(*paths: str) -> ChangedFilesEvidence:
    files = tuple(
        ChangedFile(
            path=path,
            status="added",
            old_mode="000000",
            new_mode="100644",
            added_lines=1,
            deleted_lines=0,
            is_binary=False,
        )
        for path in paths
    )
    return ChangedFilesEvidence(tier=Tier.STATIC, recorded_at="now", files=files, num_not_judged=0)


def record(*tests: OwnTest, num_outside: int = 0, **problems: OwnTestFile) -> OwnTestsEvidence:
    paths = sorted({test.test.partition("::")[0] for test in tests})
    files = (*(OwnTestFile(path=path) for path in paths), *problems.values())
    return OwnTestsEvidence(
        tier=Tier.CPU,
        recorded_at="now",
        commit=HEAD,
        files=files,
        tests=tests,
        modules=("subject",),
        num_outside=num_outside,
    )


def findings_of(*records: AnyEvidence) -> list[Finding]:
    base = context_of(records)
    context = CheckContext(change=base.change, manifest=DECLARED, policy=base.policy, evidence=base.evidence)
    return list(OwnTests().run(context))


def outcome_of(*tests: OwnTest, num_outside: int = 0) -> Outcome:
    found = record(*tests, num_outside=num_outside)
    return worst([f.outcome for f in findings_of(changed(*(f.path for f in found.files)), found)])


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        (GOOD, Outcome.PASS),
        (
            one(control(ControlOutcome.PASSED), control(ControlOutcome.NOTICED, Falsified.VALUES)),
            Outcome.PASS,
        ),
        (BLIND, Outcome.FAIL),
        (STRANGER, Outcome.FAIL),
        (one(outcome=OwnOutcome.ALWAYS_SKIPPED, calls=False), Outcome.FAIL),
        (one(outcome=OwnOutcome.EXPECTED_FAILURE), Outcome.FAIL),
        (one(outcome=OwnOutcome.FAILED), Outcome.FAIL),
        (one(outcome=OwnOutcome.CRASHED), Outcome.FAIL),
        (one(outcome=OwnOutcome.NOT_RUN, calls=False), Outcome.NOT_RUN),
        (one(outcome=OwnOutcome.NOT_DONE, calls=False), Outcome.NOT_RUN),
        (one(control(ControlOutcome.NOTICED, Falsified.ERRORS), gave=Gave.ERRORS), Outcome.INCONCLUSIVE),
        (one(control(ControlOutcome.PASSED, Falsified.ERRORS), gave=Gave.ERRORS), Outcome.FAIL),
        (one(control(ControlOutcome.BROKE)), Outcome.INCONCLUSIVE),
        (one(control(ControlOutcome.NOT_DONE)), Outcome.INCONCLUSIVE),
        (one(control(ControlOutcome.PASSED, Falsified.VALUES), gave=Gave.NOTHING), Outcome.INCONCLUSIVE),
        (one(gave=Gave.OTHER), Outcome.INCONCLUSIVE),
        (one(calls=False, starts_processes=True), Outcome.INCONCLUSIVE),
    ],
)
def test_one_test_alone_decides(test: OwnTest, outcome: Outcome) -> None:
    assert outcome_of(test) is outcome


def test_a_test_without_calls_decides_nothing_where_a_file_calls_the_subject_as_it_is_imported() -> None:
    assert outcome_of(STRANGER, num_outside=1) is Outcome.INCONCLUSIVE


def test_one_blind_test_beside_a_good_one_is_named_and_no_fault() -> None:
    found = record(GOOD, other(BLIND, f"{A}::test_shape", "subject:g"))
    (finding,) = findings_of(changed(A), found)
    assert finding.outcome is Outcome.PASS
    assert f"{A}::test_shape passes with falsified values as well" in finding.details


def test_a_failing_test_beside_a_good_one_fails() -> None:
    assert outcome_of(GOOD, one(outcome=OwnOutcome.FAILED, name=f"{A}::test_no")) is Outcome.FAIL


def test_one_case_of_a_parametrised_test_speaks_for_it() -> None:
    found = record(other(BLIND, f"{A}::test_it[1]"), other(GOOD, f"{A}::test_it[2]"))
    (finding,) = findings_of(changed(A), found)
    assert finding.outcome is Outcome.PASS and "Of 1 tests" in finding.message


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        (other(BLIND, f"{B}::test_shape"), Outcome.PASS),
        (other(BLIND, f"{B}::test_shape", "subject:g"), Outcome.INCONCLUSIVE),
        (other(STRANGER, f"{B}::test_list"), Outcome.NOT_APPLICABLE),
        (one(name=f"{B}::test_gpu", outcome=OwnOutcome.NOT_RUN, calls=False), Outcome.NOT_RUN),
        (one(name=f"{B}::test_s", outcome=OwnOutcome.ALWAYS_SKIPPED, calls=False), Outcome.INCONCLUSIVE),
    ],
)
def test_a_file_beside_one_that_tests_values_is_judged_by_what_it_calls(
    test: OwnTest, outcome: Outcome
) -> None:
    _, finding = findings_of(changed(A, B), record(GOOD, test))
    assert (finding.subject, finding.outcome) == (B, outcome)


def test_blind_tests_are_not_condemned_for_what_a_gpu_would_show() -> None:
    found = record(BLIND, one(name=f"{B}::test_gpu", outcome=OwnOutcome.NOT_RUN, calls=False))
    assert [f.outcome for f in findings_of(changed(A, B), found)] == [Outcome.INCONCLUSIVE, Outcome.NOT_RUN]


@pytest.mark.parametrize(("missing", "outcome"), [(False, Outcome.FAIL), (True, Outcome.NOT_RUN)])
def test_a_file_without_tests_fails_unless_the_machine_lacks_something(
    missing: bool, outcome: Outcome
) -> None:
    file = OwnTestFile(path=A, problem="SyntaxError", is_missing_here=missing)
    (finding,) = findings_of(changed(A), record(file=file))
    assert finding.outcome is outcome


@pytest.mark.parametrize(
    ("paths", "outcome"),
    [
        (("docs/a.md",), Outcome.NOT_APPLICABLE),
        (("tests/helper.py",), Outcome.NOT_APPLICABLE),
        (("subject/plan.py",), Outcome.INCONCLUSIVE),
    ],
)
def test_without_a_test_it_depends_on_whether_the_subject_changed(
    paths: tuple[str, ...], outcome: Outcome
) -> None:
    (finding,) = findings_of(changed(*paths))
    assert finding.outcome is outcome


def test_tests_inside_the_subject_are_tests() -> None:
    inside = "subject/test_plan.py"
    found = record(other(GOOD, f"{inside}::test_it"))
    (finding,) = findings_of(changed(inside), found)
    assert finding.outcome is Outcome.PASS


@pytest.mark.parametrize(
    "found",
    [
        record(GOOD).model_copy(update={"commit": "c" * 40}),
        record(GOOD).model_copy(update={"tier": Tier.GPU}),
        record(other(GOOD, f"{B}::test_it")),
    ],
)
def test_runs_of_another_commit_tier_or_set_of_files_do_not_count(found: OwnTestsEvidence) -> None:
    (finding,) = findings_of(changed(A), found)
    assert finding.outcome is Outcome.NOT_RUN


@pytest.mark.parametrize(("broke", "outcome"), [(True, Outcome.ERROR), (False, Outcome.NOT_RUN)])
def test_why_tests_could_not_be_run_is_said(broke: bool, outcome: Outcome) -> None:
    gap = GapEvidence(
        tier=Tier.CPU, recorded_at="now", what="own tests", broke=broke, reason="pytest is not installed"
    )
    (finding,) = findings_of(changed(A), gap)
    assert finding.outcome is outcome and "pytest is not installed" in finding.message
