"""What the judge's answer says of a case."""

from __future__ import annotations

from collections.abc import Sequence

from harness.app.cpu_tier import NOT_IN_PROFILE
from harness.app.selftest.catalogue import Case
from harness.checks.registry import all_checks
from harness.model.judgement import Judgement
from harness.model.selftest import CaseResult, CaseVerdict, Stage
from harness.model.words import Outcome, Tier


def result_of(
    case: Case, judgement: Judgement, seconds: float, *, not_run_before: frozenset[str] = frozenset()
) -> CaseResult:
    """A fault is detected when every expected check fails; a twin is clean when none fails and the expected decide.

    Where the evidence of all that is open broke, nothing was judged: that is an error, neither an escape nor undecided.

    `not_run_before`: static checks that are not run on the tree without the change, which count for no twin of the
    stage `made`.
    """
    failed = {f.check for f in judgement.findings if f.outcome is Outcome.FAIL}
    if case.is_twin:
        return _result_of_twin(case, judgement, seconds, failed, not_run_before)
    return _result_of_fault(case, judgement, seconds, failed)


def _result_of_twin(
    case: Case, judgement: Judgement, seconds: float, failed: set[str], not_run_before: frozenset[str]
) -> CaseResult:
    open_checks = _open_checks(case, judgement, not_run_before)
    fired = tuple(sorted(failed))
    if failed:
        alarms = [f"{f.check} {f.subject}: {f.message}" for f in judgement.findings if f.check in failed]
        return answer(case, CaseVerdict.FALSE_ALARM, seconds, fired=fired, reason="; ".join(alarms))
    if open_checks:
        reason = "; ".join(_why_open(judgement, check) for check in open_checks)
        if any(broken_at(judgement, check) for check in open_checks):
            return answer(case, CaseVerdict.ERROR, seconds, reason=reason)
        undecided = answer(case, CaseVerdict.UNDECIDED, seconds, reason=reason)
        return undecided.model_copy(update={"open": tuple(open_checks)})
    is_made = case.fault.stage is Stage.MADE
    left_out = f"not asked: {', '.join(sorted(checks_not_asked(judgement, not_run_before)))}"
    return answer(case, CaseVerdict.CLEAN, seconds, reason=left_out if is_made else "")


def _result_of_fault(case: Case, judgement: Judgement, seconds: float, failed: set[str]) -> CaseResult:
    expected, subject = case.fault.expected, case.fault.subject
    outcomes = {c.check: c.outcome for c in judgement.checks}
    missed = {c: f"{c} {outcomes.get(c, '')}".strip() for c in expected if c not in failed}
    broken = [broken_at(judgement, c) for c in missed]
    if not missed and subject:
        said = {f.outcome for f in judgement.findings if (f.check, f.subject) == (expected[0], subject)}
        if Outcome.FAIL not in said:
            missed[expected[0]] = f"{expected[0]} on {subject}"
            broken = [expected[0] if Outcome.ERROR in said else ""]
    fired = tuple(sorted(failed))
    if expected and not missed:
        return answer(case, CaseVerdict.DETECTED, seconds, fired=fired)
    if broken and all(broken):
        reason = "; ".join(_why_open(judgement, check) for check in dict.fromkeys(broken))
        return answer(case, CaseVerdict.ERROR, seconds, fired=fired, reason=reason)
    return answer(case, CaseVerdict.ESCAPED, seconds, fired=fired, reason=", ".join(missed.values()))


def broken_at(judgement: Judgement, check: str) -> str:
    """The check that says `error`, for which this one came to no outcome: itself, or one that it requires; else ""."""
    outcomes = {c.check: c.outcome for c in judgement.checks}
    requires = {c.id: c.requires for c in all_checks()}
    todo = [check]
    for name in todo:
        if outcomes.get(name) is Outcome.ERROR:
            return name
        if outcomes.get(name) is Outcome.NOT_RUN:
            todo += [other for other in requires.get(name, ()) if other not in todo]
    return ""


def _open_checks(case: Case, judgement: Judgement, not_run_before: frozenset[str]) -> list[str]:
    """Checks that must let a twin through and do not; at the stage `made` every required one that is asked."""
    outcomes = {c.check: c.outcome for c in judgement.checks}
    expected: Sequence[str] = case.fault.expected
    if case.fault.stage is Stage.MADE:
        not_asked = checks_not_asked(judgement, not_run_before)
        rank = case.fault.tier.rank
        expected = [
            c.check
            for c in judgement.checks
            if c.required and c.tier.rank <= rank and c.check not in not_asked
        ]
    return [c for c in expected if not outcomes.get(c, Outcome.NOT_RUN).lets_through]


def checks_not_asked(judgement: Judgement, not_run_before: frozenset[str]) -> frozenset[str]:
    """Checks that are not run because the profile leaves their evidence out, or that were not run before the change."""
    not_run = {c.check for c in judgement.checks if c.outcome is Outcome.NOT_RUN}
    for_other_reasons = {
        f.check
        for f in judgement.findings
        if f.outcome is Outcome.NOT_RUN and NOT_IN_PROFILE not in f.message and f.check not in not_run_before
    }
    return frozenset(not_run - for_other_reasons)


def not_run_at(judgement: Judgement, tier: Tier) -> frozenset[str]:
    """Checks of a tier that are not run."""
    return frozenset(c.check for c in judgement.checks if c.tier is tier and c.outcome is Outcome.NOT_RUN)


def _why_open(judgement: Judgement, check: str) -> str:
    """A check's outcome, and what its first finding says that does not let through; one that broke says it first."""
    findings = [f for f in judgement.findings if f.check == check and not f.outcome.lets_through]
    findings.sort(key=lambda f: f.outcome is not Outcome.ERROR)
    if not findings:
        return f"{check} {Outcome.NOT_RUN}"
    return f"{check} {findings[0].outcome}: {findings[0].message}"


def judge_reasons(
    case: Case, reasons: tuple[str, ...], seconds: float, *, open_before: frozenset[str] = frozenset()
) -> CaseResult:
    """The same for what keeps a gate shut; `open_before`: what kept it shut before a bundle was touched.

    An expected reason may be among those: a forger that hides an open check has to fail at that.
    """
    new = tuple(sorted(set(reasons) - open_before))
    missed = [r for r in case.fault.expected if r not in reasons]
    if case.is_twin:
        return answer(case, CaseVerdict.FALSE_ALARM if new else CaseVerdict.CLEAN, seconds, fired=new)
    verdict = CaseVerdict.DETECTED if case.fault.expected and not missed else CaseVerdict.ESCAPED
    return answer(case, verdict, seconds, fired=new, reason=", ".join(missed))


def parts_to_ask(cases: Sequence[Case], results: Sequence[CaseResult]) -> list[Sequence[Case]]:
    """What of a group is asked again: what one twin brought must not be said of the others.

    Where something failed, or broke, halves; where nothing did, each that was not decided alone.
    """
    verdicts = [result.verdict for result in results]
    if len(cases) == 1 or set(verdicts) == {CaseVerdict.CLEAN}:
        return []
    if set(verdicts) <= {CaseVerdict.CLEAN, CaseVerdict.UNDECIDED}:
        return [
            [case] for case, verdict in zip(cases, verdicts, strict=True) if verdict is not CaseVerdict.CLEAN
        ]
    middle = len(cases) // 2
    return [cases[:middle], cases[middle:]]


def answer(
    case: Case, verdict: CaseVerdict, seconds: float = 0.0, *, fired: tuple[str, ...] = (), reason: str = ""
) -> CaseResult:
    """One row of the table."""
    fault = case.fault
    return CaseResult(
        id=case.id,
        is_twin=case.is_twin,
        verdict=verdict,
        principle=fault.principle,
        tier=fault.tier,
        expected=fault.expected,
        fired=fired,
        seconds=round(seconds, 1),
        reason="; ".join(filter(None, (reason, fault.escapes))) if verdict is CaseVerdict.ESCAPED else reason,
        is_known=bool(fault.escapes) and not case.is_twin,
    )
