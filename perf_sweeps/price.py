"""What a sweep would cost, before anything is started: stated assumptions times counts."""

from __future__ import annotations

from pydantic import Field

from harness.model.record import Record
from harness.model.words import Arm
from perf_sweeps.block import SweepPlan
from perf_sweeps.cell import Cell, Workload


class Rates(Record):
    """Assumptions: none of them was measured for the sweep at hand."""

    step_ms: float = Field(gt=0, default=15.0)
    """One engine step of decode, where no published figure says otherwise."""
    prefill_tok_s: float = Field(gt=0, default=10_000.0)
    start_s: float = Field(ge=0, default=300.0)
    """From the start of a server to its first answer."""
    request_rounds: int = Field(ge=1, default=1)
    """How often a visit fills the batch."""


class Line(Record):
    """One cell's price."""

    cell: Cell
    num_visits: int
    visit_s: float
    gpus: int
    gpu_minutes: float
    is_from_published: bool
    """Whether the step's time comes from the published figure of the cell."""


class Price(Record):
    """The whole sweep's price in GPU-minutes."""

    lines: tuple[Line, ...]
    num_engines: int
    """Servers that are started: one an arm and engine configuration; one where the tracer is set aside by turns."""
    start_gpu_minutes: float
    rates: Rates

    @property
    def gpu_minutes(self) -> float:
        """Measuring and starting together."""
        return self.start_gpu_minutes + sum(line.gpu_minutes for line in self.lines)


def price_sweep(plan: SweepPlan, rates: Rates) -> Price:
    """The price of every cell and of starting the servers; the arms of a configuration share its GPUs.

    One warm-up visit an arm and cell is counted. A platform without GPUs has its cores' minutes in the same place.
    """
    num_arms = len(plan.arms)
    lines = []
    for cell in plan.cells:
        is_one_batch = cell.workload is Workload.OVERHEAD
        # One that decodes its batch by turns is warmed up with a whole block.
        num_visits = num_arms * (2 * plan.num_blocks + (2 if is_one_batch else 1))
        visit_s, is_published = visit_seconds(cell, rates, num_turns=2 * num_arms if is_one_batch else 1)
        gpus = cell.engine.tensor_parallel
        lines.append(
            Line(
                cell=cell,
                num_visits=num_visits,
                visit_s=visit_s,
                gpus=gpus,
                gpu_minutes=num_visits * visit_s * gpus / 60,
                is_from_published=is_published,
            )
        )
    servers = {
        (cell.engine, arm)
        for cell in plan.cells
        for arm in ((Arm.CANDIDATE,) if cell.workload is Workload.OVERHEAD else plan.arms)
    }
    return Price(
        lines=tuple(lines),
        num_engines=len(servers),
        start_gpu_minutes=sum(rates.start_s * engine.tensor_parallel for engine, _ in servers) / 60,
        rates=rates,
    )


def visit_seconds(cell: Cell, rates: Rates, num_turns: int = 1) -> tuple[float, bool]:
    """Seconds of one visit, prefill and decode one after the other, and whether a published figure went in.

    `num_turns` visits decode what was prefilled once.
    """
    published = cell.published.tok_s if cell.published else None
    per_step = cell.engine.acceptance_length or 1
    token_s = cell.batch / published if published else rates.step_ms / 1000 / per_step
    prefill_s = cell.batch * cell.input_len / rates.prefill_tok_s / num_turns
    decode_s = 0.0 if cell.workload is Workload.PREFILL else cell.output_len * token_s
    rounds = 1 if num_turns > 1 else rates.request_rounds
    return rounds * (prefill_s + decode_s), published is not None


def render_price(price: Price, *, unit: str = "GPU-min") -> str:
    """The price as a table, the dearest cell last, and what it assumes."""
    rows = [("cell", "visits", "s a visit", "GPUs", unit)]
    for line in sorted(price.lines, key=lambda line: line.gpu_minutes):
        mark = "*" if line.is_from_published else ""
        minutes = f"{line.gpu_minutes:.1f}"
        rows.append(
            (line.cell.name, str(line.num_visits), f"{line.visit_s:.2f}{mark}", str(line.gpus), minutes)
        )
    width = max(len(row[0]) for row in rows)
    text = [
        f"{name:<{width}}  {visits:>6}  {seconds:>10}  {gpus:>4}  {minutes:>9}"
        for name, visits, seconds, gpus, minutes in rows
    ]
    rates = price.rates
    servers = "1 server" if price.num_engines == 1 else f"{price.num_engines} servers"
    return "\n".join(
        (
            *text,
            "",
            f"Starting {servers}: {price.start_gpu_minutes:.1f} {unit}. "
            f"Together: {price.gpu_minutes:.1f} {unit}.",
            f"Assumed, not measured: {rates.step_ms:g} ms a step (* from the published figure), "
            f"{rates.prefill_tok_s:g} tokens of prefill a second, {rates.start_s:g} s for a server to start.",
        )
    )
