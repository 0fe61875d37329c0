"""Runs checks over evidence and draws the judgement: the same evidence gives the same bytes."""

from __future__ import annotations

import graphlib
import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.model.check import Check, CheckContext
from harness.model.errors import ConfigurationError
from harness.model.evidence import GapEvidence
from harness.model.finding import Finding
from harness.model.judgement import CheckSummary, Judgement, decide_verdict, policy_digest, worst
from harness.model.record import digest_of
from harness.model.words import Outcome, Principle

_MAX_FRAMES = 20
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def judge(context: CheckContext, checks: Sequence[Check], *, pages: Path, harness_version: str) -> Judgement:
    """The judgement of all checks over the evidence of `context`.

    Args:
        context: change, manifest, policy and evidence.
        checks: every check; the policy says which are required.
        pages: folder that holds `<ID>.md` for each check.
        harness_version: version to be named in the judgement.

    Raises:
        ConfigurationError: the checks do not fit together, have no page, or the policy requires an unknown one.
    """
    ordered = order_checks(checks)
    require_pages(ordered, pages)
    _require_known(context, ordered)
    findings = run_checks(context, ordered)
    required = set(context.policy.required_checks)
    summaries = tuple(
        CheckSummary(
            check=check.id,
            title=check.title,
            principle=check.principle,
            tier=check.tier,
            required=check.id in required,
            outcome=worst([finding.outcome for finding in findings[check.id]]),
            num_findings=len(findings[check.id]),
        )
        for check in ordered
    )
    verdict, reason = decide_verdict(summaries)
    return Judgement(
        verdict=verdict,
        reason=reason,
        change=context.change,
        manifest_sha256=digest_of(context.manifest),
        policy_sha256=policy_digest(context.policy),
        policy_version=context.policy.version,
        harness_version=harness_version,
        checks=summaries,
        findings=tuple(finding for check in ordered for finding in findings[check.id]),
    )


def order_checks(checks: Iterable[Check]) -> tuple[Check, ...]:
    """The checks, each after those that it requires, otherwise by tier, principle and id.

    Raises:
        ConfigurationError: an id twice, an unknown prerequisite, or a circle of them.
    """
    by_id: dict[str, Check] = {}
    for check in sorted(checks, key=_rank):
        if check.id in by_id:
            raise ConfigurationError("check-twice", f"Two checks are called {check.id}.")
        by_id[check.id] = check
    for check in by_id.values():
        for prerequisite in check.requires:
            if prerequisite not in by_id:
                message = f"{check.id} requires {prerequisite}, which does not exist."
                raise ConfigurationError("unknown-check", message)
    sorter = graphlib.TopologicalSorter({check.id: check.requires for check in by_id.values()})
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        circle = " → ".join(error.args[1])
        raise ConfigurationError("check-circle", f"Checks require each other: {circle}.") from None
    ordered: list[Check] = []
    ready: list[Check] = []
    while sorter.is_active():
        ready = sorted([*ready, *(by_id[name] for name in sorter.get_ready())], key=_rank)
        first = ready.pop(0)
        ordered.append(first)
        sorter.done(first.id)
    return tuple(ordered)


def require_pages(checks: Iterable[Check], pages: Path) -> None:
    """Raises `ConfigurationError` naming every check without its page."""
    missing = [check.id for check in checks if not _has_page(pages / f"{check.id}.md")]
    if missing:
        raise ConfigurationError(
            "check-without-page",
            f"Checks without a page that explains them: {', '.join(missing)}.",
            "A check needs docs/checks/<ID>.md: claim, why, how it decides, what it cannot see, how to fix, example.",
        )


def run_checks(context: CheckContext, ordered: Sequence[Check]) -> Mapping[str, tuple[Finding, ...]]:
    """The findings by check id; never none for a check."""
    recorded = frozenset(record.id for record in context.evidence)
    gaps = {gap.tier: gap for gap in context.evidence.of(GapEvidence) if gap.what == f"tier {gap.tier}"}
    findings: dict[str, tuple[Finding, ...]] = {}
    for check in ordered:
        closed = [p for p in check.requires if not worst([f.outcome for f in findings[p]]).lets_through]
        if gap := gaps.get(check.tier):
            findings[check.id] = (_tier_missing(check, gap),)
        elif closed:
            names = ", ".join(f"{p} ({worst([f.outcome for f in findings[p]])})" for p in closed)
            message = f"It means nothing before its prerequisite holds: {names}."
            findings[check.id] = (_finding(check, Outcome.NOT_RUN, message),)
        else:
            findings[check.id] = _run_one(check, context, recorded)
    return findings


def _run_one(check: Check, context: CheckContext, recorded: frozenset[str]) -> tuple[Finding, ...]:
    try:
        returned: object = check.run(context.at(check.tier))
        found = list(returned) if isinstance(returned, Iterable) else [returned]
    except (Exception, SystemExit) as error:
        return (_error(check, f"The check broke: {_described(error)}.", _frames(error)),)
    if not found:
        return (_error(check, "The check returned no finding."),)
    kept = [f for f in found if isinstance(f, Finding) and _complaint(f, check, recorded) is None]
    complaints = [text for f in found if (text := _complaint(f, check, recorded)) is not None]
    errors = [_error(check, "The check returned what it may not.", complaints)] if complaints else []
    return tuple(kept + errors)


def _complaint(found: object, check: Check, recorded: frozenset[str]) -> str | None:
    if not isinstance(found, Finding):
        return f"not a finding: {type(found).__name__}"
    if (found.check, found.principle, found.tier) != (check.id, check.principle, check.tier):
        return f"a finding of {found.check} ({found.principle}, {found.tier} tier)"
    unknown = sorted(set(found.evidence) - recorded)
    if unknown:
        return f"a finding that rests on evidence which is not there: {', '.join(unknown)}"
    return None


def _require_known(context: CheckContext, checks: Iterable[Check]) -> None:
    tiers = {check.id: check.tier for check in checks}
    for tier, ids in context.policy.required.items():
        for name in ids:
            if tiers.get(name) is not tier:
                place = f"no {tier} check" if name not in tiers else f"a {tiers[name]} check"
                raise ConfigurationError(
                    "unknown-check", f"The policy requires {name} at the {tier} tier, but it is {place}."
                )


def _has_page(page: Path) -> bool:
    return page.is_file() and page.stat().st_size > 0


def _rank(check: Check) -> tuple[int, int, str]:
    return check.tier.rank, list(Principle).index(check.principle), check.id


def _tier_missing(check: Check, gap: GapEvidence) -> Finding:
    message = f"The {check.tier} tier was not run: {gap.reason.rstrip('.')}."
    outcome = Outcome.ERROR if gap.broke else Outcome.NOT_RUN
    return _finding(check, outcome, message, details=gap.details, evidence=(gap.id,))


def _error(check: Check, message: str, details: Sequence[str] = ()) -> Finding:
    advice = "This is a fault of the check, not of the change; please report it."
    return _finding(check, Outcome.ERROR, message, advice=advice, details=details)


def _finding(
    check: Check,
    outcome: Outcome,
    message: str,
    *,
    advice: str = "",
    details: Sequence[str] = (),
    evidence: Sequence[str] = (),
) -> Finding:
    return Finding(
        check=check.id,
        principle=check.principle,
        tier=check.tier,
        subject=check.title,
        outcome=outcome,
        message=message,
        advice=advice,
        details=tuple(details),
        evidence=tuple(evidence),
    )


def _described(error: BaseException) -> str:
    text = _ADDRESS.sub("0x…", str(error)).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _frames(error: BaseException) -> list[str]:
    """The traceback by module name: file names and addresses differ between machines."""
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{line} in {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return frames[-_MAX_FRAMES:]
