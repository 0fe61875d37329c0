"""Timed cells: ratios with their intervals, what the client saw, and the order in which blocks ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from bundles.contents import Bundle
from harness.model.evidence import GpuState, TimingBlock, TimingEvidence
from harness.model.words import Arm, Outcome
from reports.checks import CheckCard
from reports.drills.figures import Point, distribution, scatter
from reports.drills.pivot import missing_check, pivot
from reports.drills.placed import Placed, placed
from reports.drills.tables import Cell, Drill, Figure, Missing, Table, number_cell, table_of, text_cell
from reports.shown import Tally, pointer, visible

CHECKS = ("PERF001", "PERF002")
QUANTITIES = (
    "decode GPU busy ratio",
    "decode GPU busy_us",
    "kernels in a decode step",
    "decode ITL ratio",
    "decode itl_ms",
    "decode ITL speed-up",
)
QUANTILES = (50, 90, 99)
MAX_CELLS_DRAWN = 6
TTFT, TPOT = "ttft_ms", "tpot_ms"
QUANTILE_HEADS = ("ttft_ms p50", "ttft_ms p90", "ttft_ms p99", "tpot_ms p50", "tpot_ms p90", "tpot_ms p99")
GPU_HEADS = {"sm_clock_mhz": "SM clock, MHz", "power_w": "power, W", "temperature_c": "temperature, C"}
Timed = Placed[TimingEvidence]


def view_timing(bundle: Bundle, cards: Sequence[CheckCard]) -> Drill:
    """Ratios as judged, quantiles of the client's times, and figures."""
    caption = "Ratios and levels as judged, with intervals over pairs of blocks"
    judged = pivot(cards, CHECKS, QUANTITIES, caption)
    parts: list[Table | Figure | Missing] = [judged or missing_check(cards, CHECKS, "Latency of both arms")]
    cells = placed(bundle, TimingEvidence)
    parts += [_machines(cells)] if cells else []
    if profiled := [c for c in cells if c.record.is_profiled]:
        parts.append(_profiles(profiled))
    # The profiler disturbs what the client sees.
    by_wall = [c for c in cells if not c.record.is_profiled]
    timed = [c for c in by_wall if all(values(c.record, arm, TPOT) for arm in c.record.compares)]
    if timed:
        parts.append(_quantiles(timed))
        parts += _frontier(timed)
        # Cells of the candidate come before those that calibrate the noise.
        drawn = sorted(timed, key=lambda c: (c.record.compares[1] is not Arm.CANDIDATE, c.record.batch))
        for cell in drawn[:MAX_CELLS_DRAWN]:
            parts += [_distribution(cell), _order(cell)]
    elif by_wall:
        parts.append(
            _not_run("Time to first token and per token", "no block has the client's arrival times.")
        )
    parts += [
        _clocks(cells),
        _not_run("Throughput under load", "no record of it is in a bundle yet: decode was timed alone."),
    ]
    return Drill(
        anchor="timing",
        title="Latency and throughput",
        question="How fast, how sure, in which order",
        checks=CHECKS,
        parts=tuple(parts),
    )


def _machines(cells: Sequence[Timed]) -> Table:
    """A row a cell: a ratio holds for the machine that it was timed on, and for no other."""
    rows = [
        (
            text_cell(cell.text(cell.record.cell, "cell")),
            text_cell(" against ".join(words(arm) for arm in cell.record.compares)),
            text_cell(cell.text(cell.record.tier, "tier")),
            text_cell(cell.said(cell.record.hardware, "hardware") or "not named"),
            number_cell(cell.length(cell.record.blocks, "blocks")),
        )
        for cell in cells
    ]
    return table_of("Where each cell was timed", ("Cell", "Arms", "Tier", "Machine", "Blocks"), rows)


def _profiles(cells: Sequence[Timed]) -> Table:
    """A row a profiled cell and arm: the median block's busy time and kernels, and the fewest steps of a block."""
    rows = []
    for cell, arm in ((profiled, arm) for profiled in cells for arm in profiled.record.compares):
        seen = [b.profile for b in blocks_of(cell.record, arm) if b.profile is not None]
        found = {
            "busy_us": quantile([p.busy_us or 0.0 for p in seen] or [0.0], 50),
            "num_kernels": quantile([p.num_kernels or 0.0 for p in seen] or [0.0], 50),
            "num_steps": min((p.num_steps for p in seen), default=0),
        }
        numbers = [
            number_cell(cell.tally(value, f"profile of={what} arm={arm}", "blocks"))
            for what, value in found.items()
        ]
        rows.append((text_cell(cell.text(cell.record.cell, "cell")), text_cell(words(arm)), *numbers))
    caption = "What the GPU did in a decode step, by the profiler: medians over blocks, and the fewest steps of a block"
    return table_of(caption, ("Cell", "Arm", "busy, us", "Kernels", "Steps"), rows)


def _clocks(cells: Sequence[Timed]) -> Table | Missing:
    """A row a cell and arm whose GPU was read: lowest and highest of what it told at the ends of the blocks."""
    rows: list[tuple[Cell, ...]] = []
    for cell, arm in ((timed, arm) for timed in cells for arm in timed.record.compares):
        states = _states(cell.record, arm)
        if states:
            name = text_cell(cell.text(cell.record.cell, "cell"))
            slowed = sorted({visible(word) for state in states for word in state.slowdowns or ()})
            found = [_end(cell, arm, what, end) for what in GPU_HEADS for end in ("lowest", "highest")]
            rows.append((name, text_cell(words(arm)), *found, text_cell(", ".join(slowed) or "nothing told")))
    if not rows:
        return _not_run("Clocks and temperature during timing", "no block has a record of them.")
    heads = [f"{end} {head}" for head in GPU_HEADS.values() for end in ("lowest", "highest")]
    caption = "The GPU at both ends of each block"
    return table_of(caption, ("Cell", "Arm", *heads, "Slowed down by"), rows)


def _states(cell: TimingEvidence, arm: Arm) -> list[GpuState]:
    ends = [(block.gpu_before, block.gpu_after) for block in blocks_of(cell, arm)]
    return [state for pair in ends for state in pair if state is not None]


def _end(cell: Timed, arm: Arm, what: str, end: str) -> Cell:
    told = [value for s in _states(cell.record, arm) if (value := getattr(s, what)) is not None]
    if not told:
        return text_cell("not told")
    value = min(told) if end == "lowest" else max(told)
    return number_cell(cell.tally(value, f"gpu of={what} end={end} arm={arm}", "blocks"))


def blocks_of(cell: TimingEvidence, arm: Arm) -> list[TimingBlock]:
    """The arm's blocks in time."""
    return sorted((b for b in cell.blocks if b.arm is arm), key=lambda b: b.position)


def block_values(block: TimingBlock, what: str) -> list[float]:
    """One value a request, in milliseconds: until the first token, or from token to token on average."""
    times = [item.token_times_ms for item in block.items]
    if what == TTFT:
        return [t[0] for t in times if t]
    return [(t[-1] - t[0]) / (len(t) - 1) for t in times if len(t) > 1 and t[-1] > t[0]]


def values(cell: TimingEvidence, arm: Arm, what: str) -> list[float]:
    """The values of all of an arm's blocks."""
    return [value for block in blocks_of(cell, arm) for value in block_values(block, what)]


def quantile(found: Sequence[float], percent: int) -> float:
    """The nearest-rank quantile: a value that was seen, none in between."""
    return sorted(found)[max(ceil(percent * len(found) / 100), 1) - 1]


def _tally(cell: Timed, arm: Arm, what: str, percent: int) -> Tally:
    rule = f"{what} percent={percent} arm={arm}"
    return cell.tally(quantile(values(cell.record, arm, what), percent), rule, "blocks")


def _quantiles(timed: Sequence[Timed]) -> Table:
    head = ("Cell", "Arm", "Requests", *QUANTILE_HEADS)
    rows = []
    for cell in timed:
        for arm in cell.record.compares:
            requests = cell.tally(len(values(cell.record, arm, TPOT)), f"timed-requests arm={arm}", "blocks")
            figures = [
                number_cell(_tally(cell, arm, what, percent))
                for what in (TTFT, TPOT)
                for percent in QUANTILES
            ]
            name = text_cell(cell.text(cell.record.cell, "cell"))
            rows.append((name, text_cell(words(arm)), number_cell(requests), *figures))
    caption = (
        "What the client saw, one value a request, prompt and decode together: a description without an interval, "
        "and of few requests the upper quantiles are the largest value; what is judged is the table of ratios"
    )
    return table_of(caption, head, rows)


def _frontier(timed: Sequence[Timed]) -> Iterator[Figure]:
    """Tokens a second of one user against those of the machine, a point a batch."""
    cells = sorted((c for c in timed if c.record.compares[1] is Arm.CANDIDATE), key=lambda c: c.record.batch)
    if not cells:
        return
    points: dict[Arm, list[Point]] = {arm: [] for arm in (Arm.BASELINE, Arm.CANDIDATE)}
    rows: list[tuple[Cell, ...]] = []
    for cell in cells:
        for arm, found in points.items():
            per_user = 1000 / quantile(values(cell.record, arm, TPOT), 50)
            per_machine = per_user * cell.record.batch
            found.append((per_user, per_machine))
            each = cell.tally(per_user, f"tokens-per-s-user arm={arm}", "blocks")
            refs = (*each.refs, pointer(cell.path, "batch"))
            whole = Tally(value=per_machine, rule=f"tokens-per-s arm={arm}", refs=refs)
            batch = number_cell(cell.number(cell.record.batch, "batch"))
            rows.append((text_cell(words(arm)), batch, number_cell(each), number_cell(whole)))
    data = table_of(
        "Output tokens a second at the median time per token",
        ("Arm", "Batch", "of one user", "of the machine"),
        rows,
    )
    yield Figure(
        title="Frontier: tokens a second of one user against those of the machine",
        caption=("Both axes start at nothing; each point is a batch, up and to the right is better.",),
        x_label="tokens a second of one user",
        y_label="of the machine",
        series=scatter(points, from_zero=True, lines=True),
        data=data,
    )


def _distribution(cell: Timed) -> Figure:
    record = cell.record
    found = {arm: values(record, arm, TPOT) for arm in record.compares}
    rows = [
        (text_cell(words(arm)), number_cell(low), number_cell(high))
        for arm in record.compares
        for low, high in [(_tally(cell, arm, TPOT, 0), _tally(cell, arm, TPOT, 100))]
    ]
    caption = "Share of requests (upwards) whose time per token is at most x, in ms; x begins at the lowest."
    return Figure(
        title="Distribution of the time per token",
        caption=("Cell ", cell.text(record.cell, "cell"), ". ", caption),
        x_label="ms a token",
        y_label="share",
        series=distribution(found),
        data=table_of("Ends of the curves", ("Arm", "lowest, ms", "highest, ms"), rows),
    )


def _order(cell: Timed) -> Figure:
    record = cell.record
    points: dict[Arm, list[Point]] = {arm: [] for arm in record.compares}
    rows: list[tuple[Cell, ...]] = []
    for place, block in sorted(enumerate(record.blocks), key=lambda pair: pair[1].position):
        found = block_values(block, TPOT)
        if not found or block.arm not in points:
            continue
        middle = quantile(found, 50)
        points[block.arm].append((float(block.position), middle))
        rows.append(
            (
                number_cell(cell.number(block.position, "blocks", place, "position")),
                text_cell(words(block.arm)),
                number_cell(cell.tally(middle, f"{TPOT} percent=50", "blocks", place, "items")),
                number_cell(cell.known(block.load_1min, "blocks", place, "load_1min")),
            )
        )
    return Figure(
        title="Order of the runs",
        caption=(
            "Cell ",
            cell.text(record.cell, "cell"),
            ". Each block's median time per token, in time; upwards it begins at the lowest.",
        ),
        x_label="order in time",
        y_label="ms a token",
        series=scatter(points, from_zero=False, lines=False),
        data=table_of("Blocks in time", ("Position", "Arm", "Median, ms a token", "Load average"), rows),
    )


def words(arm: Arm) -> str:
    """The arm's name in words."""
    return arm.value.replace("_", " ")


def _not_run(what: str, why: str) -> Missing:
    return Missing(what=what, outcome=Outcome.NOT_RUN, reason=(why,))
