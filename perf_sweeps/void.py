"""What makes a measurement void: fixed rules over what was counted, none over how long it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt

from harness.model.words import Arm
from perf_sweeps.block import Block, Visit
from perf_sweeps.cell import Cell, Workload
from perf_sweeps.machine_load import MIN_ELAPSED_S

MAX_FOREIGN_CPU_SHARE = 0.10
"""Of all cores; a block in which others took more is dropped, whatever its times."""
MIN_SPECIALIZED_SHARE = 0.95
MAX_WALL_EXCESS = 1.25
"""The harness's clock around a visit over the load generator's own: beyond it (and `MAX_WALL_EXTRA_S`) one is wrong."""
MAX_WALL_EXTRA_S = 2.0
MAX_ENGINE_EXCESS = 1.05
"""The engine's first step to its last over the load generator's time: the last tokens travel while it ends its step."""
MAX_PACE_RATIO = 1.5
"""Between the load generator's time and the open-loop check's, two runs one after the other."""
MAX_ACCEPTANCE_DIFFERENCE = 0.02
_PATH_WORKLOADS = (Workload.DECODE, Workload.SPECULATIVE)


def find_faults(cell: Cell, block: Block) -> tuple[str, ...]:
    """Why the block compares nothing: any line voids the whole cell."""
    lines = [
        f"{visit.arm}, visit {visit.position}: {text}"
        for visit in block.visits
        for text in _faults(cell, visit)
    ]
    totals = {(sum(v.input_lens), sum(v.output_lens)) for v in block.visits}
    if len(totals) > 1 and not lines:
        lines.append(f"the visits compare different token counts (prompt, output): {sorted(totals)}")
    lengths = [v.acceptance_length for v in block.visits if v.acceptance_length is not None]
    if cell.workload is Workload.SPECULATIVE:
        if len(lengths) < len(block.visits):
            lines.append("no acceptance length was recorded")
        elif max(lengths) > min(lengths) * (1 + MAX_ACCEPTANCE_DIFFERENCE):
            lines.append(f"acceptance lengths differ: {min(lengths):.2f} to {max(lengths):.2f}")
        elif other := [n for n in lengths if not _is_as_asked(cell, n)]:
            asked = cell.engine.acceptance_length
            lines.append(f"the engine was asked for an acceptance length of {asked:g} and had {other[0]:.2f}")
    return tuple(lines)


def _is_as_asked(cell: Cell, length: float) -> bool:
    """Whether a recorded acceptance length is the synthetic one, up to chance and what the last step has too many.

    vLLM (0.33) accepts the whole part of the drafts always and one more with the chance of the rest.
    """
    asked = cell.engine.acceptance_length
    if asked is None:
        return True
    num_tokens = max(1, cell.output_len - 1)
    rest = asked % 1
    chance = 3 * sqrt(rest * (1 - rest) * asked / (cell.batch * num_tokens))
    allowed = asked * MAX_ACCEPTANCE_DIFFERENCE + chance
    return asked * num_tokens / (num_tokens + asked) - allowed <= length <= asked + allowed


def _faults(cell: Cell, visit: Visit) -> Sequence[str]:
    lines = []
    if visit.num_answered < visit.num_asked or visit.num_failed:
        why = f" ({visit.errors[0]})" if visit.errors else ""
        lines.append(f"{visit.num_answered} of {visit.num_asked} requests were answered{why}")
    short = [n for n in visit.output_lens if n != cell.output_len]
    if short and cell.workload is not Workload.AGENT:
        lines.append(f"{len(short)} answers have another length than {cell.output_len}, such as {short[0]}")
    other = [n for n in visit.input_lens if n != cell.input_len]
    if other and cell.workload is not Workload.AGENT:
        lines.append(f"{len(other)} prompts have another length than {cell.input_len}, such as {other[0]}")
    if visit.num_ranks != cell.engine.tensor_parallel:
        lines.append(f"{visit.num_ranks} ranks served it, not {cell.engine.tensor_parallel}")
    if visit.rank_difference:
        lines.append(f"the ranks did not do the same: {visit.rank_difference}")
    if visit.num_truncated:
        lines.append(f"{visit.num_truncated} turns were cut short")
    total = sum(visit.output_lens)
    if visit.counted_tokens is not None and visit.counted_tokens != total:
        lines.append(
            f"the client got {total} tokens and the engine made {visit.counted_tokens}: cached, or counted wrong"
        )
    if visit.num_cached_tokens and cell.workload is not Workload.AGENT:
        lines.append(f"{visit.num_cached_tokens} prompt tokens came from the prefix cache")
    if visit.engine_s is not None and visit.engine_s > visit.duration_s * MAX_ENGINE_EXCESS:
        lines.append(
            f"the load generator says {visit.duration_s:.2f} s and the engine worked for {visit.engine_s:.2f} s"
        )
    if visit.wall_s is not None and not _clocks_agree(visit.duration_s, visit.wall_s, visit.engine_s):
        lines.append(
            f"the load generator says {visit.duration_s:.2f} s and the harness's clock {visit.wall_s:.2f} s"
        )
    check = visit.open_loop
    if check is not None and check.num_tokens != total:
        lines.append(f"the load generator counts {total} tokens and an independent client {check.num_tokens}")
    if check is not None and not _are_near(visit.duration_s, check.wall_s):
        lines.append(
            f"the load generator says {visit.duration_s:.2f} s, and at that pace an independent client took "
            f"{check.wall_s:.2f} s"
        )
    if visit_time_ms(cell, visit) is None:
        lines.append(
            "nothing was timed: no step held the whole batch without prompt tokens, or no times are there"
        )
    return lines


def _clocks_agree(duration_s: float, wall_s: float, engine_s: float | None) -> bool:
    """The engine's account, where there is one, bounds the time from below better than a clock around a command."""
    if duration_s > 1.01 * wall_s:
        return False
    longest_s = max(duration_s * MAX_WALL_EXCESS, duration_s + MAX_WALL_EXTRA_S)
    return engine_s is not None or wall_s <= longest_s


def _are_near(one_s: float, other_s: float) -> bool:
    """Two runs of the same work: within a half, or what a busy machine may add to a short one."""
    shorter, longer = sorted((one_s, other_s))
    return longer <= max(shorter * MAX_PACE_RATIO, shorter + MAX_WALL_EXTRA_S)


def find_lost(block: Block) -> tuple[int, int]:
    """Requests without an answer, of the candidate and of the other arms."""
    lost = {True: 0, False: 0}
    for visit in block.visits:
        lost[visit.arm is Arm.CANDIDATE] += max(visit.num_asked - visit.num_answered, visit.num_failed)
    return lost[True], lost[False]


def find_unserved(cell: Cell, blocks: Sequence[Block]) -> str:
    """Why a cell with drafts says nothing of the specialised path: it served none of them; empty where it did.

    Only beyond the scope: within it the path has to serve (`find_wrong_path`).
    """
    if cell.workload is not Workload.SPECULATIVE or not cell.is_beyond_scope:
        return ""
    visits = [v for block in blocks for v in block.visits if v.arm is Arm.CANDIDATE]
    if any(visit.specialized_share for visit in visits):
        return ""
    reasons = describe_fallbacks(blocks) or "it was never asked, or no reason is recorded"
    return f"The specialised path served no decode token of it, which lies beyond its scope: {reasons}."


def describe_fallbacks(blocks: Sequence[Block]) -> str:
    """How many decode steps of the candidate fell back, by reason, the most frequent first; empty where none did."""
    counts: Counter[str] = Counter()
    for visit in (v for block in blocks for v in block.visits if v.arm is Arm.CANDIDATE):
        counts.update(visit.fallbacks)
    return "; ".join(f"{count} steps fell back: {reason}" for reason, count in counts.most_common())


def find_wrong_path(cell: Cell, block: Block) -> str:
    """Why nothing shows that the arms were served by the code that they stand for; empty when it is shown.

    Decode with one request too many may fall back. With drafts beyond the scope it may not do so in part.
    """
    if cell.workload not in _PATH_WORKLOADS or (cell.is_beyond_scope and not cell.engine.draft_tokens):
        return ""
    for visit in block.visits:
        share, is_candidate = visit.specialized_share, visit.arm is Arm.CANDIDATE
        if share is None:
            return f"{visit.arm}: nothing says which path served its tokens"
        if is_candidate and share < MIN_SPECIALIZED_SHARE:
            return f"{visit.arm}: the specialised path served {share:.0%} of its decode tokens"
        if not is_candidate and share > 1 - MIN_SPECIALIZED_SHARE:
            return f"{visit.arm}: the specialised path served {share:.0%} of its decode tokens"
    return ""


def find_disturbance(block: Block) -> str:
    """Why a block is dropped though its counts are right: others used the machine or may have, or it throttled.

    On a GPU whose state was read, cores of which nothing is told drop nothing: the GPU computes, and the A/A is timed
    beside. A power cap is no throttling: the arm that draws the power has earned it.
    """
    for visit in block.visits:
        share = visit.machine.foreign_cpu_share
        if share is not None and share > MAX_FOREIGN_CPU_SHARE:
            return f"block {block.index}: others took {share:.0%} of the cores while {visit.arm} was timed"
        if reasons := set(visit.machine.throttle_reasons) - {"sw_power_cap"}:
            return f"block {block.index}: throttled ({', '.join(sorted(reasons))})"
    short = [v for v in block.visits if v.machine.foreign_cpu_share is None]
    if not short:
        return ""
    share = _share_together(short)
    if share is None:
        if all(v.machine.num_gpu_samples for v in block.visits):
            return ""
        return f"block {block.index}: nothing says how much of the machine others took"
    if share > MAX_FOREIGN_CPU_SHARE:
        return f"block {block.index}: others took {share:.0%} of the cores over its short visits"
    return ""


def _share_together(visits: Sequence[Visit]) -> float | None:
    """What others took of the cores over several visits, each too short to tell; None where all are together, too."""
    taken_s = [v.machine.foreign_cpu_s for v in visits]
    elapsed_s = sum(v.wall_s or 0.0 for v in visits)
    core_s = sum((v.wall_s or 0.0) * (v.machine.num_cores or 1) for v in visits)
    if elapsed_s < MIN_ELAPSED_S or any(s is None for s in taken_s):
        return None
    return sum(s for s in taken_s if s is not None) / core_s


def visit_time_ms(cell: Cell, visit: Visit) -> float | None:
    """The time that the cell is about, less is better; None where the visit holds none.

    Decode: a full step without prompt tokens. Speculative: that, over the tokens which it emitted. Prefill: mean time
    to first token. Mixed, overhead: time of the whole visit a token. Agent: median over turns of the time between
    tokens.
    """
    if cell.workload is Workload.DECODE:
        return visit.decode_step_ms
    if cell.workload is Workload.SPECULATIVE:
        if visit.decode_step_ms is None or visit.acceptance_length is None:
            return None
        return visit.decode_step_ms / visit.acceptance_length
    if cell.workload is Workload.PREFILL:
        return sum(visit.ttfts_ms) / len(visit.ttfts_ms) if visit.ttfts_ms else None
    if cell.workload in (Workload.MIXED, Workload.OVERHEAD):
        return 1000 * visit.duration_s / sum(visit.output_lens) if visit.output_lens else None
    times = sorted(visit.turn_token_ms)
    return times[len(times) // 2] if times else None
