"""What a sweep's folder shows: judged, written as `result.json`, tables and a page, and said as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harness.app.sweep_question import AskedSweep
from harness.app.sweep_text import render_sweep, render_sweep_markdown
from harness.config import read_configuration
from harness.model.words import ExitCode, Verdict
from harness.options import CommandResult, SweepOptions
from perf_sweeps.analysis import Margins, SweepResult, analyse
from perf_sweeps.claims import ClaimResult, Support, match_claim, match_text
from perf_sweeps.journal import RecordIndex
from perf_sweeps.tables import frontier_rows, growth_rows, speedup_rows, write_tables
from reports.sweep_page import render_sweep_page

MAX_OVERHEAD = 0.01
"""Of the tracer, on throughput: beyond it what was measured with it is not what users get."""


def margins_of(asked: AskedSweep) -> Margins:
    """What the policy holds the cells to; the judge's own overhead has a bar of its own."""
    policy = asked.question.policy
    margin = MAX_OVERHEAD if asked.is_overhead else policy.itl_margin
    return Margins(margin=margin, alpha=policy.alpha, min_blocks=policy.min_timing_blocks)


def show_result(asked: AskedSweep, options: SweepOptions) -> CommandResult:
    """Judges what the folder holds and writes what it shows beside it."""
    margins, index = margins_of(asked), RecordIndex(options.out)
    result = analyse(asked.plan, index.of, margins, code_digest=asked.code_digest)
    if options.simulate is not None and result.verdict is Verdict.ADMIT:
        # A rehearsal shows how a sweep goes, and nothing about the change.
        result = result.model_copy(update={"verdict": Verdict.UNDECIDED})
    claims = _match_claims(asked, options, result, margins.margin)
    tables = write_tables(result, options.out, options.floor_ms)
    document = _document(asked, result, claims, margins, index) | {
        "growth": growth_rows(result, options.floor_ms)
    }
    rendered = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
    (options.out / "result.json").write_text(rendered + "\n", encoding="utf-8")
    page = options.out / "report.html"
    page.write_text(render_sweep_page(document), encoding="utf-8")
    if options.output.format == "json":
        return CommandResult(text=rendered, exit_code=exit_code(result, claims))
    if options.output.format == "md":
        return CommandResult(text=render_sweep_markdown(result, claims), exit_code=exit_code(result, claims))
    return CommandResult(
        text=render_sweep(result, claims, (page, *tables), is_overhead=asked.is_overhead),
        exit_code=exit_code(result, claims),
    )


def _match_claims(
    asked: AskedSweep, options: SweepOptions, result: SweepResult, margin: float
) -> list[ClaimResult]:
    """The manifest's numbers and the description's; an overhead says nothing of either."""
    if asked.is_overhead:
        return []
    claims = [match_claim(c, result.cells, margin) for c in asked.question.manifest.performance.claims]
    if options.pr_text is not None:
        text = read_configuration(options.pr_text, "description").decode("utf-8", "replace")
        claims += match_text(text, result.cells, margin)
    return claims


def _document(
    asked: AskedSweep,
    result: SweepResult,
    claims: Sequence[ClaimResult],
    margins: Margins,
    index: RecordIndex,
) -> dict[str, Any]:
    """All that the report shows."""
    return {
        "schema_version": 1,
        "is_overhead": asked.is_overhead,
        "plan": asked.plan.model_dump(mode="json", exclude={"cells"}),
        "code_digest": asked.code_digest,
        "recorded_from": index.first_at,
        "recorded_to": index.last_at,
        "margin": margins.margin,
        "names": [r.cell.name for r in result.cells],
        "result": result.model_dump(mode="json"),
        "claims": [c.model_dump(mode="json") for c in claims],
        "frontier": frontier_rows(result),
        "speedups": speedup_rows(result),
    }


def exit_code(result: SweepResult, claims: Sequence[ClaimResult]) -> ExitCode:
    """A refuted cell or number rejects; one that nothing shows leaves the sweep undecided."""
    if result.verdict is Verdict.REJECT or any(c.support is Support.CONTRADICTED for c in claims):
        return ExitCode.REJECT
    if result.verdict is Verdict.ADMIT and all(c.support is Support.SUPPORTED for c in claims):
        return ExitCode.ADMIT
    return ExitCode.UNDECIDED
