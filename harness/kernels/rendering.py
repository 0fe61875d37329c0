"""Runs on kernels as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from harness.kernels.records import (
    BenchRun,
    CellRecord,
    CompileRun,
    Timing,
    TuneRun,
    VariantRecord,
)
from harness.model.kernel_tests import (
    KernelTestRun,
    MemoryCheck,
)

_NOT_TIMED = "-"


def render_inventory(variants: Iterable[VariantRecord]) -> str:
    """One line a variant."""
    rows = [
        (v.name, v.operator, v.rank_shape, f"{v.batches[0]}-{v.batches[1]}", _roles(v.roles))
        for v in variants
    ]
    return table(("variant", "operator", "ranks", "batches", "arguments"), rows)


def _roles(roles: dict[str, str]) -> str:
    return " ".join(f"{number}:{role}" for number, role in roles.items())


def render_compile(run: CompileRun) -> str:
    """What is above its allowance, what is missing, and the largest kernels by family."""
    rows = [
        (
            k.variant,
            k.arch,
            _number(k.registers),
            _number(k.frame_bytes),
            k.static_shared_bytes,
            _number(k.threads),
        )
        for k in run.kernels
    ]
    lines = [table(("variant", "arch", "registers", "local bytes", "static shared", "threads"), rows)]
    over = [k for k in run.kernels if not k.is_within_allowance]
    lines += [
        f"above its allowance: {k.variant} ({k.arch}): {_number(k.frame_bytes)} bytes of local memory, "
        f"{_number(k.allowed_spill_bytes)} allowed"
        for k in over
    ]
    lines += [f"gave no kernel: {name}" for name in run.missing]
    lines += [f"failed: {text}" for text in run.failures]
    text = f"{len(run.kernels)} kernels in {run.seconds:.0f} s, {len(over)} above their allowance"
    lines.append(text + _only(run.match))
    return "\n".join(lines)


def _number(value: int | None) -> str:
    return _NOT_TIMED if value is None else str(value)


def _only(match: str) -> str:
    return "" if match == "*" else f"; of the variants, only {match!r}"


def render_tests(run: KernelTestRun) -> str:
    """What did not pass, what was never launched, and the counts."""
    counts = Counter(test.outcome for test in run.tests)
    lines = [f"{t.outcome}: {t.test}: {t.reason}" for t in run.tests if t.outcome in ("failed", "error")]
    reasons = Counter(t.reason for t in run.tests if t.outcome == "not_run")
    lines += [f"not run: {n} tests: {reason}" for reason, n in reasons.most_common()]
    lines += [f"no passed test launched: {name}" for name in run.never_launched]
    lines += _memcheck(run.memcheck) if run.memcheck else []
    lines += [f"ended early: {run.stopped_by}"] if run.stopped_by else []
    text = ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())) or "no test ran"
    lines.append(text + _only(run.match))
    return "\n".join(lines)


def _memcheck(checked: MemoryCheck) -> list[str]:
    lost = checked.num_processes - checked.num_ended
    text = f"memcheck: {checked.num_errors} errors in {checked.num_ended} processes"
    return [*checked.findings, text + (f", {lost} not followed to the end" if lost else "")]


def render_bench(run: BenchRun) -> str:
    """A table of the cells; lost ones say to whom."""
    names = list(dict.fromkeys(name for cell in run.cells for name in cell.baselines))
    header = ("cell", "us", "quartiles", "% of copy", *names, "lost to")
    rows = [_cell_row(cell, names, run.copy_bytes_per_second) for cell in run.cells]
    lines = [table(header, rows)]
    lines += [f"not timed: {c.name}: {name}: {why}" for c in run.cells for name, why in c.missing.items()]
    lines += [f"ended early: {run.stopped_by}"] if run.stopped_by else []
    lost = [cell.name for cell in run.cells if cell.lost_to]
    lines.append(f"{len(run.cells)} cells, {len(lost)} lost; {_machine(run)}")
    return "\n".join(lines)


def _cell_row(cell: CellRecord, names: Sequence[str], copy_bandwidth: float) -> tuple[str, ...]:
    timing, speed = cell.candidate, cell.bytes_per_second
    share = _NOT_TIMED if speed is None else f"{100 * speed / copy_bandwidth:.0f}"
    quartiles = _NOT_TIMED if timing is None else f"{timing.low_us:.2f}-{timing.high_us:.2f}"
    others = [_median(cell.baselines.get(name)) for name in names]
    return (cell.name, _median(timing), quartiles, share, *others, ", ".join(cell.lost_to))


def _median(timing: Timing | None) -> str:
    return _NOT_TIMED if timing is None else f"{timing.median_us:.2f}"


def _machine(run: BenchRun) -> str:
    copy = f"copy {run.copy_bytes_per_second / 1e12:.2f} TB/s"
    clocks = "-".join(map(str, run.machine.sm_clock_mhz))
    return f"{run.machine.gpu}, driver {run.machine.driver}, SM clock {clocks} MHz, {copy}"


def render_tune(run: TuneRun) -> str:
    """The choice of each task, by how much it beats the next, and what did not run."""
    rows = []
    for choice in run.choices:
        first, second, *_ = [*choice.timings.values(), None, None]
        rows.append(
            (choice.task, choice.chosen or _NOT_TIMED, _median(first), _median(second), len(choice.failures))
        )
    lines = [table(("task", "chosen", "us", "second", "failures"), rows)]
    lines += [
        f"did not run: {c.task}: {name}: {why}" for c in run.choices for name, why in c.failures.items()
    ]
    lines += [f"no choice ran: {c.task}" for c in run.choices if c.chosen is None]
    lines += [f"ended early: {run.stopped_by}"] if run.stopped_by else []
    lines.append(f"saved: {run.saved or 'nothing'}; {run.machine.gpu}")
    return "\n".join(lines)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their longest cell, two spaces apart."""
    cells = [tuple(header), *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells
    )
