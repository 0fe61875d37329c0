"""The selftest's table as text."""

from __future__ import annotations

from collections import Counter

from harness.model.selftest import STOPPED, CaseResult, CaseVerdict, Rate, SelftestReport
from harness.model.words import Tier, Verdict

_HEAD = ("fault", "principle", "tier", "expected", "fired", "verdict", "twin", "s")


def render_table(report: SelftestReport) -> str:
    """A line a fault, with its twin beside it; then both rates, and every reason."""
    faults = {case.id: case for case in report.cases if not case.is_twin}
    twins = {case.id: case for case in report.cases if case.is_twin}
    ids = sorted({case.id for case in report.cases})
    rows = [_HEAD, *(_row(faults.get(name), twins.get(name)) for name in ids)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    reasons = [
        f"{case.id}{' (twin)' if case.is_twin else ''}: {case.verdict}: {case.reason}"
        for case in report.cases
        if case.reason and case.verdict not in (CaseVerdict.DETECTED, CaseVerdict.CLEAN)
    ]
    open_checks = Counter(check for case in report.cases for check in case.open)
    not_run = sum(case.verdict is CaseVerdict.NOT_RUN for case in report.cases)
    let_be = [case.id for case in report.cases if is_let_be(case)]
    summary = [
        *([f"Not run, and counted for no rate: {not_run} cases"] if not_run else []),
        *(f"Undecided by {check}: {count}" for check, count in sorted(open_checks.items())),
        f"Detected: {_rate(report.detection)}",
        *(
            [f"Of these not rejected, as the policy requires no check that failed: {' '.join(let_be)}"]
            if let_be
            else []
        ),
        f"False alarms: {_rate(report.false_alarm)}",
        f"Clean, and left undecided: {_rate(report.undecided)}",
        f"Asked: tier {report.tier}, profile {report.profile}{', of ' + ' '.join(report.only) if report.only else ''}",
        f"{report.recorded_at}, {report.hardware}, fasttrack {report.harness_version}, commit {_commit(report)}",
    ]
    return "\n".join([*lines, "", *reasons, *([""] if reasons else []), *summary])


def is_let_be(case: CaseResult) -> bool:
    """Whether a fault was found and its change is not rejected for it."""
    return case.verdict is CaseVerdict.DETECTED and case.change not in (None, Verdict.REJECT)


def render_sentence(report: SelftestReport) -> str:
    """The rates as README, guide and reports tell them, with what was stopped before a verdict."""
    tiers = " and ".join(tier for tier in Tier if tier.rank <= report.tier.rank)
    stopped = [case for case in report.cases if STOPPED in case.reason]
    faults = sum(not case.is_twin for case in stopped)
    twins = len(stopped) - faults
    left = (
        f" ({faults} faults and {twins} clean changes had no verdict when it was stopped)" if stopped else ""
    )
    return (
        f"Of {report.detection.n} seeded faults it found {report.detection.hits} "
        f"(95 % exact interval {_interval(report.detection)}); of the {report.false_alarm.n} clean changes beside them "
        f"it rejected {report.false_alarm.hits} ({_interval(report.false_alarm)}) and left {report.undecided.hits} "
        f"undecided{left}: counted on {report.recorded_at[:10]} at commit {report.commit[:7]}, tiers {tiers}, "
        f"on {report.hardware}."
    )


def _interval(rate: Rate) -> str:
    return f"{rate.low:.0%} to {rate.high:.0%}".replace("%", " %")


def _row(fault: CaseResult | None, twin: CaseResult | None) -> tuple[str, ...]:
    """One of both is missing in a run that was interrupted between them."""
    known = fault or twin
    assert known is not None
    fired = f" ({' '.join(twin.fired)})" if twin is not None and twin.fired else ""
    return (
        known.id,
        known.principle.value,
        known.tier.value,
        " ".join(known.expected),
        (" ".join(fault.fired) or "-") if fault else "",
        fault.verdict.value if fault else "",
        twin.verdict.value + fired if twin else "",
        f"{known.seconds:.0f}",
    )


def _commit(report: SelftestReport) -> str:
    """Twelve digits, and whether the tree was another."""
    return report.commit[:12] + (" with changes" if report.commit.endswith("+") else "")


def _rate(rate: Rate) -> str:
    if not rate.n:
        return "none was run"
    return (
        f"{rate.hits} of {rate.n} ({rate.low:.0%} to {rate.high:.0%}, {rate.confidence:.0%} exact interval)"
    )
