"""What the blocks of a sweep show: a three-valued result a cell, and an alarm over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import Field

from harness.model.record import Record
from harness.model.words import Arm, Outcome, Verdict
from harness.stats.max_t import max_t_p_values
from harness.stats.paired_ratio import PairedRatio
from harness.stats.paired_verdict import MAX_DROPPED_SHARE, judge_pairs
from perf_sweeps.block import Block, Failure, SweepPlan
from perf_sweeps.cell import Cell
from perf_sweeps.levels import (
    acceptance,
    expert_spread,
    geometric_mean,
    gpu_means,
    interactivity,
    step_kernels,
    throughput,
    ttft_quantiles,
)
from perf_sweeps.void import (
    describe_fallbacks,
    find_disturbance,
    find_faults,
    find_lost,
    find_unserved,
    find_wrong_path,
    visit_time_ms,
)


class Margins(Record):
    """Fixed before any data."""

    margin: float = Field(gt=0, lt=1, default=0.02)
    """How much more time the candidate may take, as a ratio minus one; also how quiet the A/A must be."""
    alpha: float = Field(gt=0, lt=0.5, default=0.05)
    min_blocks: int = Field(ge=2, default=5)


class Ratio(Record):
    """Candidate's time over the baseline's, block by block: below 1 the candidate is faster."""

    estimate: float
    ci_low: float
    ci_high: float
    n: int
    sd: float

    @classmethod
    def of(cls, found: PairedRatio) -> Ratio:
        """The parts that are kept."""
        return cls(
            estimate=found.estimate, ci_low=found.ci_low, ci_high=found.ci_high, n=found.n, sd=found.sd
        )


class CellResult(Record):
    """One cell, judged."""

    cell: Cell
    outcome: Outcome
    message: str
    blocks_needed: int | None = None
    """In all, with 80 % power where the measured noise is the true one; None where more blocks would not help."""
    ratio: Ratio | None = None
    noise: Ratio | None = None
    """Of the second baseline over the first."""
    baseline_ms: float | None = None
    """Geometric mean of the cell's time, see `visit_time_ms`."""
    candidate_ms: float | None = None
    baseline_tok_s: float | None = None
    """Output tokens a second of all requests, prefill included."""
    candidate_tok_s: float | None = None
    ttft_ms: dict[str, float] = Field(default_factory=dict)
    """Candidate's time to first token by quantile (`p50`), of those that the number of requests allows."""
    acceptance_length: float | None = None
    interactivity_tok_s: dict[str, float] = Field(default_factory=dict)
    """Agent-like replay: tokens a second and user that half (`candidate_p50`) or nine tenths of the turns reach."""
    gpu: dict[str, float] = Field(default_factory=dict)
    """Means of the visits by arm, such as `candidate_sm_clock_mhz`; empty where nothing sampled a GPU."""
    experts: dict[str, float] = Field(default_factory=dict)
    """How the tokens spread over experts by arm, see `expert_spread`; empty where experts were not counted."""
    kernels: dict[str, float] = Field(default_factory=dict)
    """Of a decode step by arm, such as `candidate_num_kernels`; empty where none was profiled."""
    hardware: str = ""
    notes: tuple[str, ...] = ()


class SweepResult(Record):
    """All cells, and the verdict on the required ones."""

    schema_version: int = 1
    sweep: str
    verdict: Verdict
    cells: tuple[CellResult, ...]
    alarms: tuple[str, ...] = ()
    """Cells that are slower at `alpha` over all cells together (max-T), required or not; does not gate."""


def analyse(
    plan: SweepPlan,
    records_of: Callable[[str], Iterable[Block | Failure]],
    margins: Margins,
    *,
    code_digest: str | None = None,
) -> SweepResult:
    """Judges every cell of the plan from what was recorded for it.

    Each required cell is held to the full level: all must pass, so no correction is needed (intersection-union, Berger
    1982).

    Args:
        plan: What was to be measured.
        records_of: A cell's records by its name; asked once a cell, so that one cell at a time is in memory.
        margins: What the cells are held to.
        code_digest: Blocks that another code measured are left out; None takes any.
    """
    results, logs, sweep = [], {}, plan.digest
    for cell in plan.cells:
        measured, failures = sort_records(records_of(cell.name), sweep, code_digest)
        result, ratios = judge_cell(cell, measured, failures, plan, margins)
        # What was seen in untimed visits holds whatever became of the timed ones.
        update = {"experts": expert_spread(measured), "kernels": step_kernels(measured)}
        results.append(result.model_copy(update=update))
        if ratios:
            logs[cell.name] = ratios
    return SweepResult(
        sweep=sweep,
        verdict=decide_verdict(results),
        cells=tuple(results),
        alarms=find_alarms(logs, margins.alpha),
    )


def sort_records(
    records: Iterable[Block | Failure], sweep: str, code_digest: str | None
) -> tuple[list[Block], list[Failure]]:
    """A cell's blocks in their order, one of each, and the failures that count, of that sweep and that code."""
    blocks: dict[int, Block] = {}
    failures = []
    for record in records:
        if record.sweep != sweep:
            continue
        if isinstance(record, Failure):
            failures.append(record)
        elif code_digest is None or record.code_digest == code_digest:
            blocks.setdefault(record.index, record)
    # A crash of the candidate stays one though the block was measured later.
    counts = [f for f in failures if f.index not in blocks or f.arm is Arm.CANDIDATE]
    return [blocks[index] for index in sorted(blocks)], counts


def decide_verdict(results: Sequence[CellResult]) -> Verdict:
    """Admit when every required cell passes, reject when one fails; without a required cell undecided."""
    outcomes = [r.outcome for r in results if r.cell.is_required]
    if Outcome.FAIL in outcomes:
        return Verdict.REJECT
    if outcomes and all(o is Outcome.PASS for o in outcomes):
        return Verdict.ADMIT
    return Verdict.UNDECIDED


def find_alarms(logs: Mapping[str, Sequence[float]], alpha: float) -> tuple[str, ...]:
    """Names of the cells whose log ratios are above 0, at `alpha` for all of them together."""
    if not logs:
        return ()
    p_values = max_t_p_values(list(logs.values()))
    return tuple(name for name, p in zip(logs, p_values, strict=True) if p <= alpha)


def judge_cell(
    cell: Cell, blocks: Sequence[Block], failures: Sequence[Failure], plan: SweepPlan, margins: Margins
) -> tuple[CellResult, tuple[float, ...]]:
    """One cell's result, and its log ratios where it has some: faults first, then the A/A, then the ratio."""

    def void(
        outcome: Outcome, message: str, needed: int | None = None
    ) -> tuple[CellResult, tuple[float, ...]]:
        notes = tuple(line for f in failures[:1] for line in f.lines) + tuple(
            f.message for f in failures[1:5]
        )
        result = CellResult(cell=cell, outcome=outcome, message=message, blocks_needed=needed, notes=notes)
        return result, ()

    fault = find_cell_fault(cell, blocks, failures)
    if fault is not None:
        return void(*fault)
    dropped = [line for line in map(find_disturbance, blocks) if line]
    kept = [block for block in blocks if not find_disturbance(block)]
    if len(dropped) > MAX_DROPPED_SHARE * len(blocks):
        text = f"{len(dropped)} of {len(blocks)} blocks were disturbed: {dropped[0]}. Measure on a quiet machine."
        return void(Outcome.INCONCLUSIVE, text)
    if len(kept) < margins.min_blocks:
        text = f"{len(kept)} usable blocks of {margins.min_blocks} that are needed at least."
        return void(Outcome.INCONCLUSIVE, text, margins.min_blocks)
    return _judge_times(cell, kept, dropped, plan, margins)


def find_cell_fault(
    cell: Cell, blocks: Sequence[Block], failures: Sequence[Failure]
) -> tuple[Outcome, str] | None:
    """What makes the whole cell void or failed, whatever the times: no order of the blocks hides it."""
    refused = [f for f in failures if f.cause == "refused"]
    engine = [f for f in failures if f.cause == "engine"]
    if refused and not engine:
        text = f"{refused[0].arm} refuses the deployment: {refused[0].message}"
        if cell.is_beyond_scope and all(f.arm is Arm.CANDIDATE for f in refused):
            return Outcome.NOT_RUN, f"Nothing was served beyond the scope. {text}"
        return Outcome.INCONCLUSIVE, f"Void: {text}"
    if engine:
        outcome = Outcome.FAIL if all(f.arm is Arm.CANDIDATE for f in engine) else Outcome.INCONCLUSIVE
        return outcome, f"The {engine[0].arm or 'engine'} gave no answer: {engine[0].message}"
    if unusable := [f for f in failures if f.cause == "measurement"]:
        return Outcome.INCONCLUSIVE, f"Void: {unusable[0].message}"
    if not blocks:
        why = f": {failures[0].message}" if failures else "."
        return Outcome.NOT_RUN, f"No block of the cell was measured{why}"
    lost = [find_lost(block) for block in blocks]
    if any(candidate for candidate, _ in lost) and not any(others for _, others in lost):
        text = f"The candidate lost {sum(c for c, _ in lost)} requests and the baseline none."
        return Outcome.FAIL, text
    for block in blocks:
        if faults := find_faults(cell, block):
            return Outcome.INCONCLUSIVE, f"Void: block {block.index}: {faults[0]}."
    if unserved := find_unserved(cell, blocks):
        return Outcome.NOT_RUN, unserved
    if wrong := next(filter(None, (find_wrong_path(cell, block) for block in blocks)), ""):
        return Outcome.INCONCLUSIVE, f"Void: {wrong}."
    if len({block.hardware for block in blocks}) > 1:
        return Outcome.INCONCLUSIVE, "Void: its blocks ran on different hardware."
    return None


def _judge_times(
    cell: Cell, blocks: Sequence[Block], dropped: Sequence[str], plan: SweepPlan, margins: Margins
) -> tuple[CellResult, tuple[float, ...]]:
    times = {arm: [block_time_ms(cell, block, arm) for block in blocks] for arm in plan.arms}
    found = judge_pairs(
        times[Arm.BASELINE],
        times[Arm.CANDIDATE],
        times.get(Arm.BASELINE_AGAIN, ()),
        margin=margins.margin,
        alpha=margins.alpha,
    )
    ttft, notes = ttft_quantiles(blocks, Arm.CANDIDATE)
    if fallbacks := describe_fallbacks(blocks):
        notes = (*notes, f"candidate: {fallbacks}")
    return CellResult(
        cell=cell,
        outcome=found.outcome,
        message=found.message,
        blocks_needed=found.needed,
        ratio=Ratio.of(found.timing),
        noise=Ratio.of(found.noise) if found.noise is not None else None,
        baseline_ms=geometric_mean(times[Arm.BASELINE]),
        candidate_ms=geometric_mean(times[Arm.CANDIDATE]),
        baseline_tok_s=throughput(blocks, Arm.BASELINE),
        candidate_tok_s=throughput(blocks, Arm.CANDIDATE),
        ttft_ms=ttft,
        acceptance_length=acceptance(blocks),
        interactivity_tok_s=interactivity(blocks),
        gpu=gpu_means(blocks),
        hardware=blocks[0].hardware,
        notes=(*dropped, *notes),
    ), found.timing.log_ratios


def block_time_ms(cell: Cell, block: Block, arm: Arm) -> float:
    """Geometric mean of the arm's visits of the block."""
    times = [visit_time_ms(cell, v) for v in block.visits if v.arm is arm]
    return geometric_mean([t for t in times if t is not None])
