"""Whether the numbers that a change states are borne out by cells of a sweep."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from harness.model.manifest import Claim
from harness.model.record import Record
from perf_sweeps.analysis import CellResult
from perf_sweeps.cell import Workload

_NUMBER = re.compile(
    r"(?<![\w.])(?P<value>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)\s*"
    r"(?P<unit>x(?!\d)|×|%|tok(?:en)?s?\s*/\s*s(?:ec)?(?:ond)?(?:\s*/\s*user)?|ms\b|us\b|µs\b)",
    re.IGNORECASE,
)
_BATCH = re.compile(r"\b(?:batch(?:\s+size)?|bs)\s*(?:=|of)?\s*(\d+)\b", re.IGNORECASE)


class Support(StrEnum):
    """What the sweep says of a stated number."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    """A cell shows that it is not reached."""
    UNDECIDED = "undecided"
    """The cell's interval holds both."""
    UNSUPPORTED = "unsupported"
    """No cell measures it."""


class ClaimResult(Record):
    """One stated number."""

    text: str
    """As it was stated: untrusted."""
    support: Support
    reason: str
    cells: tuple[str, ...] = ()


def match_claim(claim: Claim, results: Sequence[CellResult], margin: float) -> ClaimResult:
    """A claim of the manifest against the decode cells of its batch and hardware.

    Every such cell must show it: the lower bound of the speed-up reaches the claimed figure less the margin (for a
    claim above 1 never less than 1), and the claimed figure is not above the upper bound.
    """
    text = f"{claim.value:g}x at batch {claim.batch} on {claim.hardware}"
    cells = [
        r
        for r in results
        if r.cell.workload is Workload.DECODE
        and r.cell.batch == claim.batch
        and claim.hardware.casefold() in r.hardware.casefold()
    ]
    return _match_speedup(text, claim.value, cells, margin)


def match_text(text: str, results: Sequence[CellResult], margin: float) -> tuple[ClaimResult, ...]:
    """Every number with a unit in a description, line by line.

    A ratio (`1.5x`) is held against the decode cells of the batch that its line names; where it names none it must hold
    in every decode cell. Other units are compared with the level of the cells of the named batch, within the margin:
    tokens a second and milliseconds. What names no batch, and percentages, match nothing.
    """
    found = []
    for line in text.splitlines():
        batches = {int(b) for b in _BATCH.findall(line)}
        for match in _NUMBER.finditer(line):
            found.append(_match_number(match, batches, line.strip(), results, margin))
    return tuple(found)


def _match_number(
    match: re.Match[str], batches: set[int], line: str, results: Sequence[CellResult], margin: float
) -> ClaimResult:
    value, unit = float(match["value"].replace(",", "")), match["unit"].lower()
    shown = f"{match[0]} in {line[:160]!r}"
    if len(batches) > 1:
        text = "its line names several batches: which one is meant is not said"
        return ClaimResult(text=shown, support=Support.UNSUPPORTED, reason=text)
    decode = [r for r in results if r.cell.workload is Workload.DECODE]
    cells = [r for r in decode if not batches or r.cell.batch in batches]
    if unit in ("x", "×"):
        return _match_speedup(shown, value, cells, margin)
    if not batches or unit == "%":
        text = "a percentage does not say of what" if unit == "%" else "its line names no batch"
        return ClaimResult(text=shown, support=Support.UNSUPPORTED, reason=text)
    return _match_level(shown, value, unit, cells, margin)


def _match_speedup(text: str, value: float, cells: Sequence[CellResult], margin: float) -> ClaimResult:
    names = tuple(r.cell.name for r in cells)
    if not cells:
        return ClaimResult(text=text, support=Support.UNSUPPORTED, reason="no cell measures it")
    bar = max(value * (1 - margin), 1.0) if value > 1 else value * (1 - margin)
    supports = {r.cell.name: _support(r, value, bar) for r in cells}
    worst = max(supports.values(), key=list(Support).index)
    if Support.CONTRADICTED in supports.values():
        worst = Support.CONTRADICTED
    parts = [
        f"{r.cell.name}: {1 / r.ratio.estimate:.3f}x ({1 / r.ratio.ci_high:.3f} to {1 / r.ratio.ci_low:.3f})"
        if r.ratio
        else f"{r.cell.name}: not measured"
        for r in cells
    ]
    return ClaimResult(
        text=text, support=worst, reason=f"bar {bar:.3f}; " + "; ".join(parts[:4]), cells=names
    )


def _support(result: CellResult, value: float, bar: float) -> Support:
    ratio, noise = result.ratio, result.noise
    if ratio is None or noise is None:
        return Support.UNSUPPORTED
    low, high = 1 / ratio.ci_high, 1 / ratio.ci_low
    if high < bar:
        return Support.CONTRADICTED
    return Support.SUPPORTED if low >= bar and high >= value else Support.UNDECIDED


def _match_level(
    text: str, value: float, unit: str, cells: Sequence[CellResult], margin: float
) -> ClaimResult:
    """Levels are those of this hardware: near one of either arm is support, anything else contradicts nothing."""
    levels = [(r.cell.name, level) for r in cells for level in _levels(r, unit)]
    near = [(name, level) for name, level in levels if abs(level / value - 1) <= margin]
    if near:
        name, level = near[0]
        return ClaimResult(text=text, support=Support.SUPPORTED, reason=f"{name}: {level:.4g}", cells=(name,))
    seen = ", ".join(f"{name}: {level:.4g}" for name, level in levels[:4]) or "no cell measures it"
    return ClaimResult(text=text, support=Support.UNSUPPORTED, reason=seen)


def _levels(result: CellResult, unit: str) -> Iterable[float]:
    """Either arm's level in the unit: tokens a second of steady decode from the step, or milliseconds."""
    if result.ratio is None:
        return
    for step_ms in (result.baseline_ms, result.candidate_ms):
        if step_ms is None:
            continue
        if unit == "ms":
            yield step_ms
        elif unit in ("us", "µs"):
            yield 1000 * step_ms
        elif "user" in unit:
            yield 1000 / step_ms
        else:
            yield 1000 * result.cell.batch / step_ms
