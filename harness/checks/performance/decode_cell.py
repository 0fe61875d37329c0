"""Decode-only time a token of one timed cell, and what makes the cell void.

By the ledger's clock; of a profiled cell, the GPU's busy time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from harness.checks.joins.ruling import Ruling
from harness.checks.joins.token_steps import TokenStep, TokenSteps, count_token_steps, index_token_steps
from harness.checks.performance.given_tokens import find_given_fault, given_lines, place_of
from harness.model.evaluation import SuiteItem
from harness.model.evidence import EvidenceSet, GpuState, LedgerEvidence, TimingBlock, TimingEvidence
from harness.model.manifest import Manifest
from harness.model.policy import Policy
from harness.model.step_kernels import StepKernels
from harness.model.words import Arm, Outcome
from harness.stats.paired_ratio import PairedRatio, paired_log_ratio

MIN_FULL_STEP_SHARE = 0.5
"""Of the tokens after the first that each request must get in steps that hold the whole block."""
MAX_CLIENT_DEVIATION = 0.15
"""By how much the client's inter-token time may differ from the ledger's: arrival jitter over a block."""
MAX_VOID_PAIR_SHARE = 0.25
"""Of a cell's pairs, how many may be left out because a block of theirs could not be timed, whatever its time."""
MIN_COMMON_PREFIX_RATIO = 0.5
"""Of the A/A's common prefix with the baseline, what the timed answers of the candidate must share with it."""
MIN_PROFILED_STEPS = 8
"""Steps of each block that the profiler must have seen."""
BusyTimes = Sequence[tuple[int, int]]
"""Start and end of steps, in nanoseconds of the machine's monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTiming:
    """One block's mean time a token: between full decode steps, or of a profiled block the GPU's busy time."""

    pair: int
    arm: Arm
    itl_ms: float
    client_itl_ms: float | None
    """None when the client recorded no arrival times, and of a profiled block."""
    num_tokens: int
    """Tokens a request behind `itl_ms`."""
    load_1min: float | None
    gpu: tuple[GpuState | None, GpuState | None]
    """At both ends of the block."""
    profile: StepKernels | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTiming:
    """A cell that is fit to be compared: the ratio other / reference, and the level of each arm."""

    ratio: PairedRatio
    reference_itl_ms: float
    other_itl_ms: float
    common_prefix: float
    """Mean share of the tokens that the two arms' timed answers have in common from the start."""
    blocks: tuple[BlockTiming, ...]
    void_pairs: tuple[str, ...] = ()
    """Pairs that were left out, with the reason."""
    notes: tuple[str, ...] = ()
    """What else is to be read beside the times."""

    @property
    def is_profiled(self) -> bool:
        """Whether its times are the GPU's busy times."""
        return any(block.profile is not None for block in self.blocks)

    def num_kernels(self, arm: Arm) -> float:
        """Kernels in a decode step of the arm; 0 where it was not profiled."""
        found = [b.profile.num_kernels for b in self.blocks if b.arm is arm and b.profile is not None]
        return fmean([n for n in found if n is not None] or [0.0])


def measure_cell(
    cell: TimingEvidence, evidence: EvidenceSet, manifest: Manifest, policy: Policy
) -> CellTiming | Ruling:
    """The cell's ratio, or the ruling that says why it is void."""
    faults = (find_answer_fault, find_given_fault, find_profile_fault)
    for ruling in (find_design_fault(cell, policy), *(find(cell) for find in faults)):
        if ruling is not None:
            return ruling
    steps: dict[Arm, TokenSteps] = {}
    for arm in cell.compares:
        ledger = evidence.ledger(arm, cell.tier)
        if ledger is None:
            return Ruling(
                outcome=Outcome.NOT_RUN, message=f"There is no ledger of the {arm} arm to time it by."
            )
        ids = [item.request_id for _, visited, items in cell.visits if visited is arm for item in items]
        if unlisted := find_unlisted(cell, arm, ledger, ids):
            return unlisted
        steps[arm] = index_token_steps(ledger, manifest, ids)
    fallback = find_fallback(cell, steps, policy)
    if fallback is not None:
        return fallback
    busy = {arm: busy_times(evidence.ledger(arm, cell.tier)) for arm in Arm}
    timed = [(b.pair, time_block(b, cell, steps[b.arm], busy)) for b in cell.blocks]
    broken = [t for _, t in timed if isinstance(t, Ruling) and t.outcome is not Outcome.INCONCLUSIVE]
    if broken:
        return broken[0]
    void = {pair: t.message for pair, t in timed if isinstance(t, Ruling)}
    num_pairs = len({block.pair for block in cell.blocks})
    if len(void) > MAX_VOID_PAIR_SHARE * num_pairs or num_pairs - len(void) < policy.min_timing_blocks:
        return _void(
            Outcome.INCONCLUSIVE,
            f"{cell.cell}: {len(void)} of {num_pairs} pairs could not be timed. {next(iter(void.values()))}",
            "Time on a quieter machine, or longer answers.",
            list(void.values()),
        )
    blocks = tuple(t for pair, t in timed if isinstance(t, BlockTiming) and pair not in void)
    return _compare(cell, blocks, policy, tuple(void.values()))


def _compare(
    cell: TimingEvidence, blocks: Sequence[BlockTiming], policy: Policy, void_pairs: tuple[str, ...]
) -> CellTiming:
    reference, other = (_by_pair(blocks, arm) for arm in cell.compares)
    pairs = sorted(reference)
    return CellTiming(
        ratio=paired_log_ratio([reference[p] for p in pairs], [other[p] for p in pairs], alpha=policy.alpha),
        reference_itl_ms=fmean(reference.values()),
        other_itl_ms=fmean(other.values()),
        common_prefix=_common_prefix(cell),
        blocks=tuple(blocks),
        void_pairs=void_pairs,
        notes=given_lines(cell),
    )


def _by_pair(blocks: Sequence[BlockTiming], arm: Arm) -> dict[int, float]:
    times: dict[int, list[float]] = {}
    for block in blocks:
        if block.arm is arm:
            times.setdefault(block.pair, []).append(block.itl_ms)
    return {pair: fmean(values) for pair, values in times.items()}


def find_design_fault(cell: TimingEvidence, policy: Policy) -> Ruling | None:
    """Too few pairs, pairs without both arms, blocks that are gone, or an order that does not alternate."""
    positions = [block.position for block in cell.blocks]
    if len(set(positions)) < len(positions):
        return _void(Outcome.ERROR, f"{cell.cell}: two blocks claim the same position in time.")
    pairs: dict[int, Counter[Arm]] = {}
    first: dict[int, Arm] = {}
    for block in sorted(cell.blocks, key=lambda block: block.position):
        pairs.setdefault(block.pair, Counter())[block.arm] += 1
        first.setdefault(block.pair, block.arm)
    reference, other = cell.compares
    uneven = [p for p, n in pairs.items() if n[reference] != n[other] or n.total() != n[reference] + n[other]]
    if uneven:
        text = f"{cell.cell}: {len(uneven)} of {len(pairs)} pairs lack a block of one arm."
        return _void(
            Outcome.INCONCLUSIVE, text, "Run the cell again; a pair without its partner compares nothing."
        )
    if gone := set(range(max(positions, default=-1) + 1)) - set(positions):
        text = f"{cell.cell}: {len(gone)} of {len(gone) + len(positions)} timed blocks are not in the record."
        return _void(Outcome.INCONCLUSIVE, text, "Record every block: which ones count is not to be chosen.")
    if len(pairs) < policy.min_timing_blocks:
        text = f"{cell.cell}: {len(pairs)} pairs of blocks, {policy.min_timing_blocks} are needed."
        return _void(
            Outcome.INCONCLUSIVE, text, f"Collect {policy.min_timing_blocks - len(pairs)} more pairs."
        )
    leads = Counter(first.values())
    if abs(leads[reference] - leads[other]) > 1:
        text = f"{cell.cell}: {reference} came first in {leads[reference]} of {len(pairs)} pairs; drift would bias it."
        return _void(Outcome.INCONCLUSIVE, text, "Alternate which arm comes first.")
    if not cell.hardware:
        return _void(Outcome.INCONCLUSIVE, f"{cell.cell}: the record does not name the hardware.")
    return None


def find_unlisted(
    cell: TimingEvidence, arm: Arm, ledger: LedgerEvidence, listed: Sequence[str]
) -> Ruling | None:
    """Requests that the engine served under the cell's name and that none of its blocks holds."""
    names = "|".join(sorted({re.escape(request_id.rpartition("-")[0]) for request_id in listed}))
    of_cell = re.compile(rf"(?:cmpl-|chatcmpl-)?((?:{names})-\d+r)(?:-.*)?")
    unlisted = {m[1] for request_id in ledger.parts if (m := of_cell.fullmatch(request_id))} - set(listed)
    if not unlisted:
        return None
    return _void(
        Outcome.INCONCLUSIVE,
        f"{cell.cell}: the ledger of {arm} holds {len(unlisted)} requests of this cell that are in no block of it.",
        "Record every block: which ones count is not to be chosen.",
        sorted(unlisted),
    )


def find_answer_fault(cell: TimingEvidence) -> Ruling | None:
    """Lost, refused or unequal requests: the arms did not do the same work."""
    lines: dict[Arm, list[str]] = {arm: [] for arm in cell.compares}
    for name, arm, items in cell.visits:
        if len(items) != cell.batch:
            lines[arm].append(f"{name}: {len(items)} of {cell.batch} requests")
        for item in items:
            tokens = {item.num_completion_tokens, len(item.token_ids)}
            if item.error or tokens != {cell.num_output_tokens}:
                got = item.error or f"{sorted(tokens)} tokens instead of {cell.num_output_tokens}"
                lines[arm].append(f"{name}, {item.item}: {got}")
    if not any(lines.values()):
        return None
    reference, other = cell.compares
    fault = other is Arm.CANDIDATE and not lines[reference]
    return _void(
        Outcome.FAIL if fault else Outcome.INCONCLUSIVE,
        f"{cell.cell}: {len(lines[reference])} timed requests of {reference} and {len(lines[other])} of {other} were "
        "lost, refused or of another length, so the arms did not do the same work.",
        "A timing counts only if every request got every token.",
        [f"{arm}: {line}" for arm, found in lines.items() for line in found],
    )


def find_profile_fault(cell: TimingEvidence) -> Ruling | None:
    """Blocks in which the profiler saw too few steps. None is left out: that would be for the arm to choose."""
    if not cell.is_profiled:
        return None
    seen = [(block, block.profile.num_steps if block.profile is not None else 0) for block in cell.blocks]
    lines = [
        f"block {b.position} of {b.arm}: {n} steps, {MIN_PROFILED_STEPS} are needed"
        + (f" ({b.profile.problem})" if b.profile is not None and b.profile.problem else "")
        for b, n in seen
        if n < MIN_PROFILED_STEPS
    ]
    if not lines:
        return None
    return _void(
        Outcome.INCONCLUSIVE,
        f"{cell.cell}: in {len(lines)} of {len(seen)} blocks the GPU's profiler saw too few steady decode steps.",
        "Profile where PyTorch's profiler sees the GPU's kernels; each block needs steps that go on alike.",
        lines,
    )


def find_fallback(cell: TimingEvidence, steps: dict[Arm, TokenSteps], policy: Policy) -> Ruling | None:
    """Timed candidate blocks that another path served time that path; so do off arms that are not off."""
    for arm in cell.compares:
        items = [item for _, visited, items in cell.visits if visited is arm for item in items]
        served = count_token_steps(steps[arm], items)
        wanted = served.specialized if arm is Arm.CANDIDATE else served.baseline
        share = wanted / served.total if served.total else 0.0
        if share < policy.min_specialized_share:
            return _void(
                Outcome.FAIL if served.total else Outcome.INCONCLUSIVE,
                f"{cell.cell}: {wanted} of {served.total} timed decode tokens of {arm} were served by the path that "
                f"it stands for ({share:.1%}, required {policy.min_specialized_share:.0%}).",
                "Read the reasons under COR003; a fallback's time says nothing of the path.",
            )
    return None


def busy_times(ledger: LedgerEvidence | None) -> BusyTimes:
    """Start and end of each of an arm's steps, in nanoseconds."""
    rows = ledger.rows if ledger is not None else ()
    return [(row.started_ns, row.started_ns + row.duration_ns) for row in rows]


def find_disturbance(
    block: TimingBlock, tokens: Sequence[Sequence[TokenStep]], busy: Mapping[Arm, BusyTimes]
) -> str:
    """Why a block's time says nothing, whatever it is: another arm computed meanwhile, or the GPU was slowed down.

    A power cap slows nothing down here: the arm that draws the power has earned it.
    """
    rows = [step.row for steps in tokens for step in steps]
    start, end = min(r.started_ns for r in rows), max(r.started_ns + r.duration_ns for r in rows)
    for arm, times in busy.items():
        if arm is not block.arm and any(began < end and ended > start for began, ended in times):
            return f"{arm} computed at the same time"
    states = [state for state in (block.gpu_before, block.gpu_after) if state is not None]
    slowed = {word for state in states for word in state.slowdowns or ()} - {"sw_power_cap"}
    return f"the GPU was slowed down ({', '.join(sorted(slowed))})" if slowed else ""


def time_block(
    block: TimingBlock, cell: TimingEvidence, steps: TokenSteps, busy: Mapping[Arm, BusyTimes]
) -> BlockTiming | Ruling:
    """The mean time a token, from start to start of neighbouring decode steps that hold the block and no more."""
    tokens = [steps.get(item.request_id, ()) for item in block.items]
    common = set.intersection(*({s.row.step for s in ts if _is_full(s, cell.batch)} for ts in tokens))
    rows = {s.row.step: s.row for s in tokens[0] if s.row.step in common}
    neighbours = [(rows[n], rows[n + 1]) for n in sorted(common) if n + 1 in common]
    needed = max(1, int(MIN_FULL_STEP_SHARE * (cell.num_output_tokens - 1)))
    per_request = sum(r.num_emitted_tokens for row, _ in neighbours for r in row.requests) / cell.batch
    if per_request < needed:
        text = (
            f"{cell.cell}: in block {block.position} of {block.arm}, {per_request:.0f} tokens a request came from "
            f"neighbouring decode steps of {cell.batch} requests, {needed} are needed."
        )
        return _void(
            Outcome.INCONCLUSIVE, text, "Time longer answers, and start all requests of a block together."
        )
    if disturbance := find_disturbance(block, tokens, busy):
        text = f"{cell.cell}: during block {block.position} of {block.arm}, {disturbance}."
        return _void(Outcome.INCONCLUSIVE, text, "Time on a quieter machine, one arm at a time.")
    elapsed_ns = [after.started_ns - before.started_ns for before, after in neighbours]
    if min(elapsed_ns) <= 0:
        return _void(
            Outcome.ERROR, f"{cell.cell}: the ledger's clock stands still in block {block.position}."
        )
    if block.profile is not None:
        return _busy_time(block, block.profile, cell, elapsed_ns, per_request)
    client = [_client_itl_ms(i, ts, common) for i, ts in zip(block.items, tokens, strict=True)]
    known = [ms for ms in client if ms is not None]
    timing = BlockTiming(
        pair=block.pair,
        arm=block.arm,
        itl_ms=sum(elapsed_ns) / per_request / 1e6,
        client_itl_ms=fmean(known) if len(known) == len(client) else None,
        num_tokens=round(per_request),
        load_1min=block.load_1min,
        gpu=(block.gpu_before, block.gpu_after),
    )
    return find_client_fault(timing) or timing


def _busy_time(
    block: TimingBlock,
    profile: StepKernels,
    cell: TimingEvidence,
    elapsed_ns: Sequence[int],
    per_request: float,
) -> BlockTiming | Ruling:
    """The GPU's busy time a token; it cannot be more than the steps took, nor of more steps than there were."""
    busy_us = profile.busy_us or 0.0
    if profile.num_steps > len(elapsed_ns) + 1 or profile.num_steps * busy_us > sum(elapsed_ns) / 1000:
        return _void(
            Outcome.ERROR,
            f"{cell.cell}: the profile of block {block.position} of {block.arm} tells of {profile.num_steps} steps of "
            f"{busy_us:.1f} us, the ledger of {len(elapsed_ns) + 1} steps in {sum(elapsed_ns) / 1000:.1f} us.",
        )
    return BlockTiming(
        pair=block.pair,
        arm=block.arm,
        itl_ms=busy_us / 1000 * len(elapsed_ns) / per_request,
        client_itl_ms=None,
        num_tokens=round(per_request),
        load_1min=block.load_1min,
        gpu=(block.gpu_before, block.gpu_after),
        profile=profile,
    )


def _is_full(step: TokenStep, batch: int) -> bool:
    return step.row.is_pure_decode and step.batch == batch


def _client_itl_ms(item: SuiteItem, tokens: Sequence[TokenStep], common: set[int]) -> float | None:
    """Mean time between arrivals of the tokens of these steps; None without one arrival a token."""
    times = item.token_times_ms
    if len(times) != len(item.token_ids) or any(b < a for a, b in pairwise(times)):
        return None
    timed = [t for t, step in zip(times, tokens, strict=False) if step.row.step in common]
    return (timed[-1] - timed[0]) / (len(timed) - 1) if len(timed) > 1 else None


def find_client_fault(timing: BlockTiming) -> Ruling | None:
    """The client must have seen the pace that the ledger claims."""
    where = f"pair {timing.pair}, {timing.arm}"
    if timing.client_itl_ms is None:
        text = f"{where}: the client lacks one arrival time a token."
        return _void(Outcome.INCONCLUSIVE, text, "Stream the timed requests, one token an event.")
    if abs(timing.client_itl_ms / timing.itl_ms - 1) <= MAX_CLIENT_DEVIATION:
        return None
    text = (
        f"{where}: the client saw another pace ({timing.client_itl_ms:.3f} ms) than the ledger "
        f"({timing.itl_ms:.3f} ms) by over {MAX_CLIENT_DEVIATION:.0%}."
    )
    return _void(Outcome.INCONCLUSIVE, text, "Time on a quieter machine, or longer answers.")


def _common_prefix(cell: TimingEvidence) -> float:
    """Mean share of leading tokens that the arms' answers to the same request of a pair have in common."""
    answers: dict[tuple[int, str], dict[Arm, tuple[int, ...]]] = {}
    for block in cell.blocks:
        for item in block.items:
            answers.setdefault((block.pair, place_of(item)), {})[block.arm] = item.token_ids
    shares = []
    for by_arm in answers.values():
        first, second = (by_arm.get(arm, ()) for arm in cell.compares)
        length = max(len(first), len(second), 1)
        pairs = enumerate(zip(first, second, strict=False))
        common = next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
        shares.append(common / length)
    return fmean(shares)


def _void(outcome: Outcome, message: str, advice: str = "", details: Sequence[str] = ()) -> Ruling:
    return Ruling(outcome=outcome, message=message, advice=advice, details=tuple(details))
