"""What the judge's answer says of a case."""

from __future__ import annotations

from collections.abc import Sequence

from harness.app.cpu_tier import NOT_IN_PROFILE
from harness.app.selftest.catalogue import Case
from harness.model.judgement import Judgement
from harness.model.selftest import CaseResult, CaseVerdict, Stage
from harness.model.words import Outcome, Tier


def result_of(
    case: Case, judgement: Judgement, seconds: float, *, not_run_before: frozenset[str] = frozenset()
) -> CaseResult:
    """A fault is detected when every expected check fails; a twin is clean when none fails and the expected decide.

    `not_run_before`: static checks that are not run on the tree without the change, which count for no twin of the
    stage `made`.
    """
    failed = {f.check for f in judgement.findings if f.outcome is Outcome.FAIL}
    outcomes = {c.check: c.outcome for c in judgement.checks}
    expected, reason, open_checks = case.fault.expected, "", list[str]()
    if case.is_twin:
        open_checks = _open_checks(case, judgement, not_run_before)
        verdict = (
            CaseVerdict.FALSE_ALARM if failed else CaseVerdict.UNDECIDED if open_checks else CaseVerdict.CLEAN
        )
        alarms = [f"{f.check} {f.subject}: {f.message}" for f in judgement.findings if f.check in failed]
        reason = "; ".join(alarms or [_why_open(judgement, check) for check in open_checks])
        if verdict is CaseVerdict.CLEAN and case.fault.stage is Stage.MADE:
            reason = f"not asked: {', '.join(sorted(checks_not_asked(judgement, not_run_before)))}"
    else:
        missed = [c for c in expected if c not in failed]
        if not missed and case.fault.subject:
            subjects = [
                f.subject for f in judgement.findings if f.outcome is Outcome.FAIL and f.check == expected[0]
            ]
            missed = [] if case.fault.subject in subjects else [f"{expected[0]} on {case.fault.subject}"]
        verdict = CaseVerdict.DETECTED if expected and not missed else CaseVerdict.ESCAPED
        reason = ", ".join(f"{c} {outcomes.get(c, '')}".strip() for c in missed)
    is_open = verdict is CaseVerdict.UNDECIDED
    found = answer(case, verdict, seconds, fired=tuple(sorted(failed)), reason=reason)
    return found.model_copy(update={"open": tuple(open_checks)}) if is_open else found


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
    """A check's outcome, and what its first finding says that does not let through."""
    findings = [f for f in judgement.findings if f.check == check and not f.outcome.lets_through]
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
