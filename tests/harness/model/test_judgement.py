"""Laws of the verdict: what rejects, what leaves undecided, what admits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.model.finding import Finding
from harness.model.judgement import CheckSummary, decide_verdict, worst
from harness.model.words import Outcome, Principle, Tier, Verdict


def summary(outcome: Outcome, *, required: bool = True, check: str = "ISO001") -> CheckSummary:
    return CheckSummary(
        check=check,
        title="t",
        principle=Principle.ISOLATION,
        tier=Tier.STATIC,
        required=required,
        outcome=outcome,
        num_findings=1,
    )


OUTCOMES = st.lists(st.sampled_from(list(Outcome)), max_size=8)


@given(OUTCOMES)
def test_one_required_failure_rejects_whatever_else_passed(outcomes: list[Outcome]) -> None:
    verdict, _ = decide_verdict([summary(o) for o in [*outcomes, Outcome.FAIL]])
    assert verdict is Verdict.REJECT


@given(OUTCOMES)
def test_admit_needs_every_required_check_to_let_through(outcomes: list[Outcome]) -> None:
    verdict, _ = decide_verdict([summary(o) for o in outcomes])
    assert (verdict is Verdict.ADMIT) == (bool(outcomes) and all(o.lets_through for o in outcomes))


@given(st.sampled_from([Outcome.NOT_RUN, Outcome.ERROR, Outcome.INCONCLUSIVE]))
def test_a_required_check_without_an_answer_leaves_the_change_undecided_and_is_named(
    outcome: Outcome,
) -> None:
    verdict, reason = decide_verdict([summary(Outcome.PASS), summary(outcome, check="PERF002")])
    assert verdict is Verdict.UNDECIDED
    assert "PERF002" in reason


def test_a_rejection_names_every_check_that_failed_and_no_other() -> None:
    found = [
        summary(Outcome.FAIL, check="ISO001"),
        summary(Outcome.PASS, check="ISO002"),
        summary(Outcome.FAIL, check="ISO003"),
    ]
    assert "ISO001, ISO003" in decide_verdict(found)[1] and "ISO002" not in decide_verdict(found)[1]


def test_open_checks_are_named_by_what_they_are() -> None:
    found = [
        summary(Outcome.NOT_RUN, check="ISO001"),
        summary(Outcome.INCONCLUSIVE, check="ISO002"),
        summary(Outcome.PASS, check="ISO003"),
    ]
    reason = decide_verdict(found)[1]
    assert reason.startswith("Of 3 required checks, ") and reason.count("; ") == 1
    assert reason.index("ISO002") < reason.index("ISO001") and "ISO003" not in reason


def test_a_policy_that_requires_nothing_admits_nothing() -> None:
    assert decide_verdict([summary(Outcome.PASS, required=False)])[0] is Verdict.UNDECIDED


def test_a_failure_that_is_not_required_does_not_reject() -> None:
    assert decide_verdict([summary(Outcome.PASS), summary(Outcome.FAIL, required=False)])[0] is Verdict.ADMIT


def test_no_finding_at_all_is_an_error() -> None:
    assert worst([]) is Outcome.ERROR


@given(st.lists(st.sampled_from(list(Outcome)), min_size=1))
def test_a_single_failure_outweighs_any_number_of_passes(outcomes: list[Outcome]) -> None:
    assert worst([*outcomes, Outcome.FAIL]) is Outcome.FAIL


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.FAIL])
def test_a_decided_finding_without_evidence_does_not_parse(outcome: Outcome) -> None:
    with pytest.raises(ValidationError, match="without evidence"):
        Finding(
            check="X", principle=Principle.SCOPE, tier=Tier.CPU, subject="s", outcome=outcome, message="m"
        )
