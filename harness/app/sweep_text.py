"""A sweep's result as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perf_sweeps.analysis import CellResult, SweepResult
from perf_sweeps.claims import ClaimResult
from perf_sweeps.simulated import HARDWARE as SIMULATED
from reports.shown import visible


def render_sweep(result: SweepResult, claims: Sequence[ClaimResult], tables: Sequence[Path]) -> str:
    """A line a cell, its reasons, the alarms, the stated numbers, and what was written."""
    required = [r for r in result.cells if r.cell.is_required]
    lines = [f"{result.verdict}: {len(required)} required cells of {len(result.cells)}"]
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
    if tables:
        lines += ["", "Tables: " + ", ".join(str(path) for path in tables)]
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
