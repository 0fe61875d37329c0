"""What counts as detected, escaped, clean and a false alarm, and what the selftest ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.app.cpu_tier import NOT_IN_PROFILE
from harness.app.selftest.catalogue import Case
from harness.app.selftest.judging import answer, judge_reasons, not_run_at, result_of
from harness.app.selftest.report import exit_code_of, rate
from harness.app.selftest.table import render_table
from harness.model.change import Change
from harness.model.finding import Finding
from harness.model.judgement import CheckSummary, Judgement
from harness.model.selftest import (
    NOT_ASKED,
    CaseResult,
    CaseVerdict,
    FaultDescription,
    SelftestReport,
    Stage,
    count_detected,
    count_twins,
)
from harness.model.words import ExitCode, Outcome, Principle, Tier, Verdict


def case(
    *,
    is_twin: bool = False,
    expected: tuple[str, ...] = ("ISO001",),
    subject: str = "",
    escapes: str = "",
    stage: Stage = Stage.STATIC,
) -> Case:
    fault = FaultDescription(
        title="a fault",
        kind="a kind",
        principle=Principle.ISOLATION,
        tier=Tier.STATIC,
        stage=stage,
        expected=expected,
        subject=subject,
        twin="nothing",
        escapes=escapes,
    )
    return Case(id="a-fault", fault=fault, is_twin=is_twin, edit=Path("fault.patch"))


def judgement(message: str = "m", **outcomes: Outcome) -> Judgement:
    findings = tuple(
        Finding(
            check=check,
            principle=Principle.ISOLATION,
            tier=Tier.STATIC,
            subject="here",
            outcome=outcome,
            message=message,
            advice="a",
            evidence=("an-id",),
        )
        for check, outcome in outcomes.items()
    )
    summaries = tuple(
        CheckSummary(
            check=f.check,
            title="t",
            principle="isolation",
            tier=Tier.STATIC,
            required=True,
            outcome=f.outcome,
            num_findings=1,
        )
        for f in findings
    )
    return Judgement(
        verdict=Verdict.UNDECIDED,
        reason="r",
        change=Change(base="a" * 40, merge_base="a" * 40, head="b" * 40, head_subject="s"),
        manifest_sha256="",
        policy_sha256="",
        policy_version="",
        harness_version="",
        checks=summaries,
        findings=findings,
    )


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome.FAIL, CaseVerdict.DETECTED),
        (Outcome.PASS, CaseVerdict.ESCAPED),
        (Outcome.INCONCLUSIVE, CaseVerdict.ESCAPED),
        (Outcome.NOT_RUN, CaseVerdict.ESCAPED),
        (Outcome.ERROR, CaseVerdict.ERROR),
    ],
)
def test_a_fault_is_detected_only_when_its_check_fails(outcome: Outcome, verdict: CaseVerdict) -> None:
    assert result_of(case(), judgement(ISO001=outcome), 1.0).verdict is verdict


def test_a_fault_that_another_check_rejects_has_escaped_its_own() -> None:
    result = result_of(case(), judgement(ISO001=Outcome.PASS, ISO004=Outcome.FAIL), 1.0)
    assert (result.verdict, result.fired) == (CaseVerdict.ESCAPED, ("ISO004",))


def test_every_expected_check_must_fail() -> None:
    found = judgement(ISO001=Outcome.FAIL, ISO004=Outcome.PASS)
    assert result_of(case(expected=("ISO001", "ISO004")), found, 1.0).verdict is CaseVerdict.ESCAPED


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        (Outcome.ERROR, CaseVerdict.ERROR),
        (Outcome.FAIL, CaseVerdict.ERROR),
        (Outcome.PASS, CaseVerdict.ESCAPED),
        (Outcome.INCONCLUSIVE, CaseVerdict.ESCAPED),
    ],
)
def test_a_fault_has_escaped_as_soon_as_one_expected_check_said_so_whatever_broke_beside_it(
    other: Outcome, verdict: CaseVerdict
) -> None:
    fault = case(expected=("ISO001", "ISO004"))
    found = result_of(fault, judgement("no engine", ISO001=Outcome.ERROR, ISO004=other), 1.0)
    assert (found.verdict, "no engine" in found.reason) == (verdict, verdict is CaseVerdict.ERROR)


@pytest.mark.parametrize("is_twin", [False, True])
@pytest.mark.parametrize(
    ("cause", "is_error"), [(Outcome.ERROR, True), (Outcome.FAIL, False), (Outcome.NOT_RUN, False)]
)
def test_a_check_that_was_not_run_since_one_that_it_requires_broke_is_broken_too(
    cause: Outcome, is_error: bool, is_twin: bool
) -> None:
    one = case(expected=("SCO005",), is_twin=is_twin)
    found = result_of(one, judgement("it stopped", COR005=cause, SCO005=Outcome.NOT_RUN), 1.0)
    assert (found.verdict is CaseVerdict.ERROR) is is_error


def test_of_a_check_that_broke_the_reason_is_what_broke() -> None:
    found = judgement("too few draws", ISO001=Outcome.INCONCLUSIVE)
    broke = found.findings[0].model_copy(update={"outcome": Outcome.ERROR, "message": "no engine"})
    summary = found.checks[0].model_copy(update={"outcome": Outcome.ERROR})
    both = found.model_copy(update={"findings": (*found.findings, broke), "checks": (summary,)})
    assert result_of(case(), both, 1.0).reason == "ISO001 error: no engine"


def test_what_broke_elsewhere_is_no_excuse_for_a_check_that_was_not_run() -> None:
    found = judgement(COR005=Outcome.ERROR, SCO006=Outcome.NOT_RUN)
    assert result_of(case(expected=("SCO006",)), found, 1.0).verdict is CaseVerdict.ESCAPED


def test_a_known_escape_whose_evidence_broke_is_an_error_and_does_not_say_why_it_escapes() -> None:
    found = result_of(case(escapes="issue 8"), judgement("no engine", ISO001=Outcome.ERROR), 1.0)
    assert (found.verdict, found.reason) == (CaseVerdict.ERROR, "ISO001 error: no engine")
    assert exit_code_of(report(found)) is ExitCode.HARNESS


@pytest.mark.parametrize(
    ("outcome", "verdict"), [(Outcome.ERROR, CaseVerdict.ERROR), (Outcome.PASS, CaseVerdict.ESCAPED)]
)
def test_of_a_named_subject_that_does_not_fail_it_is_told_whether_its_evidence_broke(
    outcome: Outcome, verdict: CaseVerdict
) -> None:
    found = judgement(ISO001=Outcome.FAIL)
    there = found.findings[0].model_copy(update={"subject": "there", "outcome": outcome})
    both = found.model_copy(update={"findings": (*found.findings, there)})
    assert result_of(case(subject="there"), both, 1.0).verdict is verdict


@pytest.mark.parametrize(
    ("subject", "verdict"), [("here", CaseVerdict.DETECTED), ("there", CaseVerdict.ESCAPED)]
)
def test_a_named_subject_must_be_the_one_that_fails(subject: str, verdict: CaseVerdict) -> None:
    assert result_of(case(subject=subject), judgement(ISO001=Outcome.FAIL), 1.0).verdict is verdict


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ({"ISO001": Outcome.PASS}, CaseVerdict.CLEAN),
        ({"ISO001": Outcome.NOT_APPLICABLE}, CaseVerdict.CLEAN),
        ({"ISO001": Outcome.INCONCLUSIVE}, CaseVerdict.UNDECIDED),
        ({"ISO001": Outcome.NOT_RUN}, CaseVerdict.UNDECIDED),
        ({"ISO001": Outcome.ERROR}, CaseVerdict.ERROR),
        ({"ISO001": Outcome.ERROR, "ISO004": Outcome.FAIL}, CaseVerdict.FALSE_ALARM),
        ({"ISO001": Outcome.PASS, "ISO004": Outcome.ERROR}, CaseVerdict.CLEAN),
        ({}, CaseVerdict.UNDECIDED),
        ({"ISO001": Outcome.PASS, "ISO004": Outcome.FAIL}, CaseVerdict.FALSE_ALARM),
    ],
)
def test_a_twin_is_clean_when_nothing_fails_and_its_check_decides(
    outcomes: dict[str, Outcome], verdict: CaseVerdict
) -> None:
    assert result_of(case(is_twin=True), judgement(**outcomes), 1.0).verdict is verdict


@pytest.mark.parametrize(
    ("outcome", "message", "verdict"),
    [
        (Outcome.PASS, "m", CaseVerdict.CLEAN),
        (Outcome.FAIL, "m", CaseVerdict.FALSE_ALARM),
        (Outcome.INCONCLUSIVE, "m", CaseVerdict.UNDECIDED),
        (Outcome.INCONCLUSIVE, NOT_IN_PROFILE, CaseVerdict.UNDECIDED),
        (Outcome.ERROR, NOT_IN_PROFILE, CaseVerdict.ERROR),
        (Outcome.NOT_RUN, "the engine did not start", CaseVerdict.UNDECIDED),
        (Outcome.NOT_RUN, f"probe: {NOT_IN_PROFILE}", CaseVerdict.CLEAN),
    ],
)
def test_under_the_quick_profile_every_required_check_must_decide_but_what_the_profile_leaves_out(
    outcome: Outcome, message: str, verdict: CaseVerdict
) -> None:
    quick = case(is_twin=True, expected=(), stage=Stage.MADE)
    assert result_of(quick, judgement(message, ISO001=outcome), 1.0).verdict is verdict


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [(Outcome.NOT_RUN, CaseVerdict.CLEAN), (Outcome.INCONCLUSIVE, CaseVerdict.UNDECIDED)],
)
def test_under_the_quick_profile_what_was_not_run_before_the_change_counts_only_while_it_is_not_run(
    outcome: Outcome, verdict: CaseVerdict
) -> None:
    quick = case(is_twin=True, expected=(), stage=Stage.MADE)
    before = not_run_at(judgement(ISO001=Outcome.NOT_RUN), Tier.STATIC)
    assert result_of(quick, judgement(ISO001=outcome), 1.0, not_run_before=before).verdict is verdict


def test_a_clean_change_under_the_quick_profile_says_what_was_not_asked_and_another_twin_nothing() -> None:
    quick = case(is_twin=True, expected=(), stage=Stage.MADE)
    found = judgement(NOT_IN_PROFILE, ISO001=Outcome.NOT_RUN, ISO002=Outcome.NOT_RUN, ISO004=Outcome.PASS)
    assert result_of(quick, found, 1.0).reason == "not asked: ISO001, ISO002"
    assert result_of(case(is_twin=True), judgement(ISO001=Outcome.PASS), 1.0).reason == ""


def test_an_escaped_fault_says_what_each_missed_check_said() -> None:
    fault = case(expected=("ISO001", "ISO004"))
    assert result_of(fault, judgement(ISO001=Outcome.PASS), 1.0).reason == "ISO001 pass, ISO004"


def test_every_verdict_carries_its_time() -> None:
    found = judgement(ISO001=Outcome.PASS)
    results = [result_of(one, found, 1.26) for one in (FAULT, TWIN)]
    results += [judge_reasons(one, ("a",), 1.26) for one in (FAULT, TWIN)]
    assert [result.seconds for result in results] == [1.3] * 4


def test_an_undecided_twin_says_what_its_check_said() -> None:
    found = result_of(case(is_twin=True), judgement("too few", ISO001=Outcome.INCONCLUSIVE), 1.0)
    assert found.reason == "ISO001 inconclusive: too few"
    assert "Undecided by ISO001: 2\n" in render_table(report(found, found))


@pytest.mark.parametrize(
    ("reasons", "is_twin", "verdict"),
    [
        (("ISO001",), False, CaseVerdict.DETECTED),
        ((), False, CaseVerdict.ESCAPED),
        (("another",), False, CaseVerdict.ESCAPED),
        ((), True, CaseVerdict.CLEAN),
        (("another",), True, CaseVerdict.FALSE_ALARM),
    ],
)
def test_a_bundle_is_judged_by_what_the_gate_refuses_it_for(
    reasons: tuple[str, ...], is_twin: bool, verdict: CaseVerdict
) -> None:
    found = judge_reasons(case(is_twin=is_twin), reasons, 1.0)
    assert (found.verdict, found.fired) == (verdict, reasons)


def test_what_was_open_before_a_bundle_was_touched_is_no_alarm() -> None:
    result = judge_reasons(case(is_twin=True), ("COR005",), 1.0, open_before=frozenset({"COR005"}))
    assert (result.verdict, result.fired) == (CaseVerdict.CLEAN, ())


def test_a_forger_who_closes_an_open_check_has_escaped() -> None:
    fault = case(expected=("COR005",))
    assert judge_reasons(fault, (), 1.0, open_before=frozenset({"COR005"})).verdict is CaseVerdict.ESCAPED


def test_a_fault_that_no_check_could_find_escapes_whatever_fails() -> None:
    fault = case(expected=(), escapes="issue 10")
    assert result_of(fault, judgement(ISO001=Outcome.FAIL), 1.0).verdict is CaseVerdict.ESCAPED
    assert judge_reasons(fault, ("ISO001",), 1.0).verdict is CaseVerdict.ESCAPED


def report(*cases: CaseResult, tier: Tier = Tier.STATIC, only: tuple[str, ...] = ()) -> SelftestReport:
    return SelftestReport(
        recorded_at="2026-01-01T00:00:00Z",
        hardware="a CPU",
        harness_version="0",
        commit="c" * 40,
        tier=tier,
        profile="quick",
        only=only,
        cases=cases,
        detection=rate(*count_detected(cases)),
        false_alarm=rate(*count_twins(cases, CaseVerdict.FALSE_ALARM)),
        undecided=rate(*count_twins(cases, CaseVerdict.UNDECIDED)),
    )


FAULT, TWIN = case(), case(is_twin=True)


def test_what_was_not_run_counts_for_no_rate() -> None:
    found = report(answer(FAULT, CaseVerdict.NOT_RUN), answer(TWIN, CaseVerdict.NOT_RUN))
    assert (found.detection.n, found.false_alarm.n) == (0, 0)


def test_a_broken_case_counts_as_not_detected() -> None:
    assert count_detected([answer(FAULT, CaseVerdict.ERROR)]) == (0, 1)


@pytest.mark.parametrize(
    ("fault", "twin", "code"),
    [
        (CaseVerdict.DETECTED, CaseVerdict.CLEAN, ExitCode.ADMIT),
        (CaseVerdict.ESCAPED, CaseVerdict.CLEAN, ExitCode.REJECT),
        (CaseVerdict.DETECTED, CaseVerdict.FALSE_ALARM, ExitCode.REJECT),
        (CaseVerdict.DETECTED, CaseVerdict.ERROR, ExitCode.HARNESS),
        (CaseVerdict.NOT_RUN, CaseVerdict.NOT_RUN, ExitCode.UNDECIDED),
        (CaseVerdict.DETECTED, CaseVerdict.NOT_RUN, ExitCode.UNDECIDED),
        (CaseVerdict.DETECTED, CaseVerdict.UNDECIDED, ExitCode.UNDECIDED),
        (CaseVerdict.ESCAPED, CaseVerdict.UNDECIDED, ExitCode.REJECT),
    ],
)
def test_an_escape_or_a_false_alarm_ends_it_with_one(
    fault: CaseVerdict, twin: CaseVerdict, code: ExitCode
) -> None:
    assert exit_code_of(report(answer(FAULT, fault), answer(TWIN, twin))) is code


def test_what_the_call_left_out_decides_nothing_unless_it_was_asked_for_by_name_or_nothing_was_run() -> None:
    left_out = answer(TWIN, CaseVerdict.NOT_RUN, reason=f"tier gpu was {NOT_ASKED} (--tier cpu)")
    found = answer(FAULT, CaseVerdict.DETECTED)
    codes = [exit_code_of(r) for r in (report(found, left_out), report(found, left_out, only=("a-fault",)))]
    assert codes == [ExitCode.ADMIT, ExitCode.UNDECIDED]
    assert [exit_code_of(r) for r in (report(), report(left_out))] == [ExitCode.UNDECIDED] * 2


def test_a_known_escape_says_what_its_check_said_too() -> None:
    fault = case(escapes="issue 8")
    found = result_of(fault, judgement(ISO001=Outcome.INCONCLUSIVE), 1.0)
    assert found.reason == "ISO001 inconclusive; issue 8"


@pytest.mark.parametrize(
    ("verdict", "change", "is_told"),
    [
        (CaseVerdict.DETECTED, Verdict.UNDECIDED, True),
        (CaseVerdict.DETECTED, Verdict.ADMIT, True),
        (CaseVerdict.DETECTED, Verdict.REJECT, False),
        (CaseVerdict.DETECTED, None, False),
        (CaseVerdict.ESCAPED, Verdict.ADMIT, False),
    ],
)
def test_a_fault_that_is_found_by_what_the_policy_does_not_require_is_named(
    verdict: CaseVerdict, change: Verdict | None, is_told: bool
) -> None:
    found = answer(FAULT, verdict).model_copy(update={"change": change})
    assert ("requires no check that failed: a-fault\n" in render_table(report(found))) is is_told


def test_a_known_escape_is_counted_and_said_but_no_surprise() -> None:
    found = report(answer(case(escapes="issue 8"), CaseVerdict.ESCAPED), answer(TWIN, CaseVerdict.CLEAN))
    assert (found.detection.hits, found.detection.n, exit_code_of(found)) == (0, 1, ExitCode.ADMIT)
    assert "issue 8" in render_table(found)


def test_the_table_says_date_hardware_and_both_rates_with_their_intervals() -> None:
    text = render_table(report(answer(FAULT, CaseVerdict.DETECTED), answer(TWIN, CaseVerdict.CLEAN)))
    assert all(
        part in text
        for part in (
            "2026-01-01",
            "a CPU",
            "Detected: 1 of 1 (",
            "to 100%",
            "alarms: 0 of 1 (0% to",
            "undecided: 0",
        )
    )


def test_the_table_says_when_the_tree_was_not_the_commits() -> None:
    changed = report().model_copy(update={"commit": "c" * 40 + "+"})
    assert ["with changes" in render_table(found) for found in (report(), changed)] == [False, True]
