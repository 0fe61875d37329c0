"""A sweep's result as text and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perf_sweeps.analysis import CellResult, SweepResult
from perf_sweeps.claims import ClaimResult
from perf_sweeps.simulated import HARDWARE as SIMULATED
from perf_sweeps.tables import speedup_rows
from reports.shown import format_number, visible


def render_sweep(
    result: SweepResult, claims: Sequence[ClaimResult], written: Sequence[Path], *, is_overhead: bool
) -> str:
    """A line a cell, its reasons, the alarms, the stated numbers, and what was written."""
    required = [r for r in result.cells if r.cell.is_required]
    lines = [f"{result.verdict}: {len(required)} required cells of {len(result.cells)}"]
    if is_overhead:
        lines.append("The judge's own tracer: candidate with it, baseline without. Nothing about the change.")
    if any(r.hardware == SIMULATED for r in result.cells):
        lines.append("A rehearsal with simulated arms: it shows nothing about the change.")
    lines.append("")
    for cell in result.cells:
        lines += _cell_lines(cell)
    if result.alarms:
        lines += ["", f"Slower at alpha over all cells together: {', '.join(result.alarms)}"]
    if claims:
        lines += ["", "Stated numbers:"]
        lines += [f"  {c.support:<13} {c.text}: {c.reason}" for c in claims]
    if written:
        lines += ["", "Written: " + ", ".join(str(path) for path in written)]
    return "\n".join(visible(line) for line in lines)


def _cell_lines(result: CellResult) -> list[str]:
    optional = "" if result.cell.is_required else " (not required)"
    beyond = " (beyond the scope on purpose)" if result.cell.is_beyond_scope else ""
    lines = [f"{result.outcome:<13} {result.cell.name}{optional}{beyond}", f"              {result.message}"]
    if result.ratio is not None:
        lines.append(
            f"              baseline {result.baseline_ms:.3f} ms, candidate {result.candidate_ms:.3f} ms, "
            f"on {result.hardware}"
        )
    if result.blocks_needed:
        lines.append(f"              about {result.blocks_needed} blocks would decide it")
    return lines + [f"              note: {note}" for note in result.notes]


def render_sweep_markdown(result: SweepResult, claims: Sequence[ClaimResult]) -> str:
    """The verdict, a row a cell, and the speed-ups in the shape in which such tables are published."""
    lines = [f"**{result.verdict}**: performance sweep `{result.sweep[:12]}`", ""]
    lines += _table(
        ("cell", "outcome", "speed-up [interval]", "blocks", "A/A"),
        [(f"`{r.cell.name}`", str(r.outcome), *_measured(r)) for r in result.cells],
    )
    rows = speedup_rows(result)
    if rows:
        names = tuple(dict.fromkeys(name for row in rows for name in row))
        lines += ["", *_table(names, [tuple(_number(row.get(name)) for name in names) for row in rows])]
    if claims:
        stated = [(c.text, str(c.support), c.reason) for c in claims]
        lines += ["", *_table(("stated", "the sweep says", "why"), stated)]
    return "\n".join(visible(line) for line in lines)


def _measured(result: CellResult) -> tuple[str, str, str]:
    ratio, noise = result.ratio, result.noise
    if ratio is None:
        return "–", "0", "–"
    speedup = f"{1 / ratio.estimate:.3f} [{1 / ratio.ci_high:.3f}, {1 / ratio.ci_low:.3f}]"
    return speedup, str(ratio.n), f"{noise.estimate:.3f}" if noise else "–"


def _number(value: float | None) -> str:
    return "–" if value is None else format_number(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells may hold untrusted text: a bar or markup in it stays text."""
    return [
        f"| {' | '.join(row)} |"
        for row in (head, ["---"] * len(head), *([_plain(cell) for cell in row] for row in rows))
    ]


def _plain(cell: str) -> str:
    return cell.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
