"""What a measured cell shows: whether its A/A is quiet, whether the work was the same, and the ratio in words."""

from __future__ import annotations

from dataclasses import dataclass

from harness.checks.joins.missing import arm_need, missing_ruling
from harness.checks.joins.ruling import Ruling
from harness.checks.joins.token_steps import timing_cells
from harness.checks.performance.decode_cell import (
    MIN_COMMON_PREFIX_RATIO,
    BlockTiming,
    CellTiming,
    measure_cell,
)
from harness.model.check import CheckContext
from harness.model.evidence import GpuState, TimingEvidence
from harness.model.finding import Measurement
from harness.model.words import Arm, Outcome, Tier
from harness.stats.paired_ratio import PairedRatio


@dataclass(frozen=True, slots=True, kw_only=True)
class FairCell:
    """A batch whose A/A was quiet and whose candidate blocks were timed fairly."""

    batch: int
    hardware: str
    noise: CellTiming
    timing: CellTiming
    evidence_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidCell:
    """A batch that shows nothing, with the reason."""

    ruling: Ruling
    evidence_ids: tuple[str, ...]
    noisy: FairCell | None = None
    """What was measured, where nothing but the A/A speaks against it."""


def measure_batch(
    context: CheckContext, batch: int, tier: Tier, *, max_half_width: float, is_profiled: bool = False
) -> FairCell | VoidCell:
    """The batch's candidate cell, held to the same bars as its A/A, which comes first.

    Args:
        context: Evidence, manifest and policy.
        batch: Requests in each timed decode step.
        tier: Where it was timed.
        max_half_width: Half-width of the A/A's interval, as a share, above which the machine is too noisy.
        is_profiled: Whether the GPU's busy time is wanted, and not the wall time.
    """
    noise_cell = find_cell(context, batch, tier, Arm.BASELINE_AGAIN, is_profiled=is_profiled)
    cell = find_cell(context, batch, tier, Arm.CANDIDATE, is_profiled=is_profiled)
    if noise_cell is None or cell is None:
        other = Arm.BASELINE_AGAIN if noise_cell is None else Arm.CANDIDATE
        done = "profiled" if is_profiled else "timed"
        what = f"{done} decode at batch {batch}, baseline against {other.replace('_', ' ')}"
        name = "profile" if is_profiled else "timing"
        needs = ("timing", f"{name} at batch {batch}, {Arm.BASELINE} against {other}", arm_need(other))
        return VoidCell(ruling=missing_ruling(context.evidence, tier, what, *needs), evidence_ids=())
    ids = _evidence_ids(context, noise_cell, cell)
    noise = measure_cell(noise_cell, context.evidence, context.manifest, context.policy)
    if isinstance(noise, Ruling):
        return VoidCell(ruling=noise, evidence_ids=ids)
    timing = measure_cell(cell, context.evidence, context.manifest, context.policy)
    if isinstance(timing, Ruling):
        return VoidCell(ruling=timing, evidence_ids=ids)
    if (unequal := find_unequal_work(noise_cell, noise, cell, timing)) is not None:
        return VoidCell(ruling=unequal, evidence_ids=ids)
    fair = FairCell(batch=batch, hardware=cell.hardware, noise=noise, timing=timing, evidence_ids=ids)
    if (unquiet := find_noise(noise_cell, noise, context.policy.itl_margin, max_half_width)) is not None:
        return VoidCell(ruling=unquiet, evidence_ids=ids, noisy=fair)
    return fair


def find_cell(
    context: CheckContext, batch: int, tier: Tier, other: Arm, *, is_profiled: bool
) -> TimingEvidence | None:
    """The latest record of the batch that compares the baseline with `other`, by wall time or by the GPU's."""
    asked = (is_profiled, batch, (Arm.BASELINE, other))
    cells = timing_cells(context.evidence, tier)
    found = [c for c in cells if (c.is_profiled, c.batch, c.compares) == asked]
    return found[-1] if found else None


def _evidence_ids(context: CheckContext, *cells: TimingEvidence) -> tuple[str, ...]:
    ledgers = [context.evidence.ledger(arm, cells[0].tier) for arm in Arm]
    return (*(cell.id for cell in cells), *(ledger.id for ledger in ledgers if ledger is not None))


def find_unequal_work(
    noise_cell: TimingEvidence, noise: CellTiming, cell: TimingEvidence, timing: CellTiming
) -> Ruling | None:
    """Another machine than the A/A's, or timed answers that are not the baseline's."""
    if noise_cell.hardware != cell.hardware:
        text = f"{cell.cell}: the A/A ran on other hardware ({noise_cell.hardware}) than the candidate."
        return Ruling(outcome=Outcome.INCONCLUSIVE, message=text)
    if noise_cell.tokens_given is not cell.tokens_given:
        text = f"{cell.cell}: tokens were given to the arms of one of the two comparisons only."
        return Ruling(outcome=Outcome.INCONCLUSIVE, message=text, advice="Collect both with one engine.")
    if timing.common_prefix < MIN_COMMON_PREFIX_RATIO * noise.common_prefix:
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            message=f"{cell.cell}: timed answers share {timing.common_prefix:.0%} of their tokens with the baseline's "
            f"(A/A {noise.common_prefix:.0%}): nothing shows that the timed steps computed the same thing.",
            advice=f"Correct the answers first ({'COR012' if cell.tier is Tier.GPU else 'COR001'}), then time them.",
        )
    return None


def find_noise(
    noise_cell: TimingEvidence, noise: CellTiming, margin: float, max_half_width: float
) -> Ruling | None:
    """A noisy or biased A/A."""
    ratio = noise.ratio
    half_width = (ratio.ci_high - ratio.ci_low) / 2
    text = f"{noise_cell.cell}: two baselines differ by a factor of {interval_words(ratio)}"
    if half_width > max_half_width:
        text += (
            f"; half the interval exceeds {max_half_width:.0%}, so the machine is too noisy to time anything."
        )
        advice = "Stop other work on the machine, or collect more pairs of longer blocks."
    elif is_biased(ratio, margin):
        text += ": the set-up is biased."
        advice = "Look for what tells the two servers apart: cores, memory, order of starting."
    else:
        return None
    return Ruling(
        outcome=Outcome.INCONCLUSIVE,
        message=text,
        advice=advice,
        measurements=(ratio_measurement(noise, noise_cell.batch, noise_cell.hardware, "A/A"),),
        details=load_lines(noise),
    )


def is_biased(ratio: PairedRatio, margin: float) -> bool:
    """Whether an A/A's interval lies wholly beyond the margin."""
    return ratio.ci_low > 1 + margin or ratio.ci_high < 1 - margin


def interval_words(ratio: PairedRatio) -> str:
    """A ratio with its interval and pairs."""
    return f"{ratio.estimate:.3f} (interval {ratio.ci_low:.3f} to {ratio.ci_high:.3f}, {ratio.n} pairs)"


def ratio_measurement(
    timing: CellTiming, batch: int, hardware: str, what: str, margin: float | None = None
) -> Measurement:
    """The ratio of times a token, other arm over baseline; below 1 the other is faster."""
    quantity = "decode GPU busy ratio" if timing.is_profiled else "decode ITL ratio"
    return Measurement(
        name=f"{quantity}, batch {batch}, {what}",
        unit="ratio",
        estimate=timing.ratio.estimate,
        ci_low=timing.ratio.ci_low,
        ci_high=timing.ratio.ci_high,
        margin=margin,
        n=timing.ratio.n,
        hardware=hardware,
    )


def fair_measurements(fair: FairCell, margin: float | None = None) -> tuple[Measurement, ...]:
    """Candidate's ratio (with its margin where it is held to one), the A/A's ratio, and both levels in ms.

    Of a profiled cell the levels are the GPU's busy microseconds a token, and the kernels in a step.
    """
    timing = fair.timing
    itl_ms = {Arm.BASELINE: timing.reference_itl_ms, Arm.CANDIDATE: timing.other_itl_ms}
    if timing.is_profiled:
        levels = [("decode GPU busy_us", "us", arm, 1000 * ms) for arm, ms in itl_ms.items()]
        levels += [("kernels in a decode step", "kernels", arm, timing.num_kernels(arm)) for arm in itl_ms]
    else:
        levels = [("decode itl_ms", "ms", arm, ms) for arm, ms in itl_ms.items()]
    return (
        ratio_measurement(timing, fair.batch, fair.hardware, "candidate", margin),
        ratio_measurement(fair.noise, fair.batch, fair.hardware, "A/A"),
        *(
            Measurement(
                name=f"{quantity}, batch {fair.batch}, {arm}",
                unit=unit,
                estimate=level,
                n=timing.ratio.n,
                hardware=fair.hardware,
            )
            for quantity, unit, arm, level in levels
        ),
    )


def load_lines(timing: CellTiming) -> tuple[str, ...]:
    """Each block's latency, or what its profile saw, and the machine's load and clocks, for the drill-down."""
    return (
        timing.notes
        + tuple(
            f"pair {b.pair}, {b.arm}: {_time_words(b)}"
            + ("" if b.load_1min is None else f", load {b.load_1min}")
            + "".join(f"; {_gpu_words(state)}" for state in b.gpu if state is not None)
            for b in timing.blocks
        )
        + tuple(f"left out: {reason}" for reason in timing.void_pairs)
    )


def _time_words(block: BlockTiming) -> str:
    seen = block.profile
    if seen is None:
        return f"{block.itl_ms:.3f} ms over {block.num_tokens} tokens a request"
    what = f"busy {seen.busy_us or 0:.1f} us and {seen.num_kernels or 0:g} kernels a step"
    return f"{what} over {seen.num_steps} steps"


def _gpu_words(state: GpuState) -> str:
    values = (
        (state.sm_clock_mhz, "MHz"),
        (state.memory_clock_mhz, "MHz memory"),
        (state.power_w, "W"),
        (state.temperature_c, "C"),
    )
    told = [f"{value:g} {unit}" for value, unit in values if value is not None]
    slowed = ("slow-downs not told",) if state.slowdowns is None else state.slowdowns
    return ", ".join((*told, *slowed)) or "the GPU tells nothing"
