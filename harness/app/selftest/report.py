"""The report of a selftest: its cases, the rates, and what the command ends with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.app.judging import HARNESS_VERSION
from harness.app.recorder import utc_now
from harness.app.selftest.table import render_table
from harness.app.selftest.workplace import head_of
from harness.facts.environment import collect_environment
from harness.model.selftest import (
    CaseResult,
    CaseVerdict,
    Rate,
    SelftestReport,
    count_detected,
    count_twins,
)
from harness.model.words import ExitCode, Tier
from harness.options import SelftestOptions
from harness.stats.binomial import clopper_pearson

ALPHA = 0.05


def report_of(
    root: Path, results: Sequence[CaseResult], options: SelftestOptions, *, commit: str
) -> SelftestReport:
    """The report on the cases that have a verdict, of the tree that was at `commit` when they began."""
    environment = collect_environment(Tier.STATIC)
    return SelftestReport(
        recorded_at=utc_now(),
        tier=options.tier,
        profile=options.profile,
        only=options.only,
        hardware=environment.machine,
        harness_version=HARNESS_VERSION,
        commit=commit if head_of(root) == commit else f"{commit.removesuffix('+')}+",
        cases=tuple(sorted(results, key=lambda r: (r.id, r.is_twin))),
        detection=rate(*count_detected(results)),
        false_alarm=rate(*count_twins(results, CaseVerdict.FALSE_ALARM)),
        undecided=rate(*count_twins(results, CaseVerdict.UNDECIDED)),
    )


def render_report(report: SelftestReport, options: SelftestOptions) -> str:
    """The report in the asked format; as JSON also in the asked file."""
    document = report.model_dump_json(indent=2)
    if options.out is not None:
        options.out.write_text(f"{document}\n", encoding="utf-8")
    return document if options.output.format == "json" else render_table(report)


def rate(hits: int, n: int) -> Rate:
    """A rate with its exact interval."""
    low, high = clopper_pearson(hits, n, alpha=ALPHA)
    return Rate(hits=hits, n=n, low=low, high=high, confidence=1 - ALPHA)


def exit_code_of(report: SelftestReport) -> ExitCode:
    """What a selftest ends with."""
    if not report.is_whole:
        return ExitCode.HARNESS
    surprises = (CaseVerdict.ESCAPED, CaseVerdict.FALSE_ALARM)
    is_bad = any(c.verdict in surprises and not c.is_known for c in report.cases)
    if is_bad:
        return ExitCode.REJECT
    return ExitCode.ADMIT if report.is_decided else ExitCode.UNDECIDED
