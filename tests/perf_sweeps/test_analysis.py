"""Laws of judging cells: three outcomes, void before fast, and how often chance decides."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any

import numpy as np
import pytest

from harness.model.step_kernels import StepKernels
from harness.model.words import Arm, Outcome, Verdict
from perf_sweeps.analysis import Margins
from perf_sweeps.block import ExpertCounts, Failure, MachineState, OpenLoopCheck, Visit
from perf_sweeps.cell import Axes, Cell, Engine, Workload
from perf_sweeps.simulated import Simulation
from tests.perf_sweeps.sweeps import (
    CODE,
    decode_cells,
    in_arm,
    judge,
    judge_one,
    plan_of,
    simulate,
    with_visits,
)

PLAN = plan_of(decode_cells(4))
GOOD = simulate(PLAN)
CANDIDATE = Arm.CANDIDATE
Change = Callable[[Visit], dict[str, Any]]


def check(visit: Visit, **changed: Any) -> OpenLoopCheck:
    asked = {"num_asked": 4, "num_tokens": sum(visit.output_lens), "wall_s": visit.duration_s}
    return OpenLoopCheck.model_validate(asked | changed)


def failure(**changed: Any) -> Failure:
    return Failure.model_validate(
        {
            "sweep": PLAN.digest,
            "cell": PLAN.cells[0].name,
            "index": 5,
            "cause": "engine",
            "arm": CANDIDATE,
            "message": "it died",
            "recorded_at": "2026-01-01T00:00:00Z",
        }
        | changed
    )


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [(0.9, Outcome.PASS), (1.0, Outcome.PASS), (1.03, Outcome.FAIL), (1.02, Outcome.INCONCLUSIVE)],
)
def test_a_cell_passes_fails_or_is_left_open_by_its_interval(ratio: float, outcome: Outcome) -> None:
    assert judge_one(PLAN, simulate(PLAN, Simulation(ratio=ratio))).outcome is outcome


def test_three_per_cent_slower_at_one_batch_of_six_is_found_there_and_nowhere_else() -> None:
    plan = plan_of(decode_cells(1, 2, 4, 8, 16, 32), num_blocks=5)
    result = judge(plan, simulate(plan, Simulation(ratios={8: 1.03})))
    failed = [r.cell.batch for r in result.cells if r.outcome is Outcome.FAIL]
    assert (failed, result.verdict) == ([8], Verdict.REJECT)


def test_the_alarm_names_a_slow_cell_that_is_not_required() -> None:
    cells = [c.model_copy(update={"is_required": c.batch == 1}) for c in decode_cells(1, 8)]
    plan = plan_of(cells)
    result = judge(plan, simulate(plan, Simulation(ratios={8: 1.03})))
    assert (result.verdict, result.alarms) == (Verdict.ADMIT, (cells[1].name,))


def test_a_drift_that_is_linear_in_time_moves_no_ratio() -> None:
    steep = judge_one(PLAN, simulate(PLAN, Simulation(drift=0.05, noise=1e-6)))
    assert steep.ratio is not None
    assert steep.ratio.estimate == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: {"output_lens": (8, 8, 8, 3)}, "another length"),
        (lambda _: {"counted_tokens": 0}, "cached, or counted wrong"),
        (lambda _: {"num_cached_tokens": 16}, "prefix cache"),
        (lambda _: {"num_truncated": 1}, "cut short"),
        (lambda _: {"num_answered": 3, "output_lens": (8,) * 3, "counted_tokens": 24}, "3 of 4 requests"),
        (lambda _: {"decode_step_ms": None}, "nothing was timed"),
        (lambda v: {"wall_s": v.duration_s + 9}, "harness's clock"),
        (lambda v: {"wall_s": v.duration_s / 2}, "harness's clock"),
        (lambda v: {"engine_s": v.duration_s * 1.1}, "the engine worked for"),
        (lambda _: {"input_lens": (15,) * 4}, "4 prompts have another length than 16"),
        (lambda v: {"open_loop": check(v, num_tokens=31)}, "an independent client 31"),
        (lambda v: {"open_loop": check(v, wall_s=v.duration_s + 9)}, "at that pace an independent client"),
        (in_arm(CANDIDATE, specialized_share=0.5), "specialised path served 50%"),
        (in_arm(Arm.BASELINE, specialized_share=1.0), "baseline: the specialised path served 100%"),
        (in_arm(CANDIDATE, specialized_share=None), "nothing says which path"),
    ],
)
def test_one_block_that_compares_nothing_makes_the_cell_void_however_fast_it_was(
    change: Change, said: str
) -> None:
    blocks = simulate(PLAN, Simulation(ratio=0.5))
    result = judge_one(PLAN, [*blocks[:-1], with_visits(blocks[-1], change)])
    assert result.outcome is Outcome.INCONCLUSIVE
    assert said in result.message


def test_requests_that_only_the_candidate_loses_are_its_fault() -> None:
    lost = with_visits(GOOD[0], in_arm(CANDIDATE, num_answered=3, num_failed=1))
    assert judge_one(PLAN, [lost, *GOOD[1:]]).outcome is Outcome.FAIL


def test_a_block_that_others_disturbed_is_dropped_whatever_its_time() -> None:
    noisy = with_visits(
        GOOD[0], in_arm(CANDIDATE, machine=MachineState(foreign_cpu_share=0.4), decode_step_ms=9.0)
    )
    result = judge_one(PLAN, [noisy, *GOOD[1:]])
    assert result.outcome is Outcome.PASS
    assert result.notes[0].startswith("block 0: others took 40%")


def short(foreign_s: float | None, wall_s: float = 0.15) -> Change:
    """A visit that is too short for a share of its own, on two cores."""
    machine = MachineState(foreign_cpu_s=foreign_s, num_cores=2)
    return lambda _: {"machine": machine, "wall_s": wall_s, "duration_s": wall_s}


@pytest.mark.parametrize(
    ("visits", "num_kept"),
    [(short(0.0), 6), (short(0.01), 6), (short(0.1), 5), (short(None), 5), (short(0.0, 0.01), 5)],
    ids=["quiet", "little", "a neighbour", "not told", "too short together"],
)
def test_short_visits_are_judged_together_and_what_cannot_be_told_is_not_quiet(
    visits: Change, num_kept: int
) -> None:
    result = judge_one(PLAN, [with_visits(GOOD[0], visits), *GOOD[1:]])
    assert result.ratio is not None and result.ratio.n == num_kept


def test_a_throttled_gpu_drops_its_block() -> None:
    hot = with_visits(GOOD[0], lambda _: {"machine": MachineState(throttle_reasons=("sw_thermal_slowdown",))})
    assert judge_one(PLAN, [hot, *GOOD[1:]]).ratio.n == 5  # type: ignore[union-attr]


def test_a_power_cap_is_no_throttling_since_the_arm_that_draws_the_power_has_earned_it() -> None:
    capped = with_visits(
        GOOD[0],
        lambda _: {"machine": MachineState(foreign_cpu_share=0.0, throttle_reasons=("sw_power_cap",))},
    )
    assert judge_one(PLAN, [capped, *GOOD[1:]]).ratio.n == 6  # type: ignore[union-attr]


@pytest.mark.parametrize(("num_samples", "num_kept"), [(2, 6), (0, 5)])
def test_cores_of_which_nothing_is_told_drop_a_block_unless_a_gpu_computed_whose_state_was_read(
    num_samples: int, num_kept: int
) -> None:
    told = {"machine": MachineState(num_gpu_samples=num_samples)}
    assert judge_one(PLAN, [with_visits(GOOD[0], lambda _: told), *GOOD[1:]]).ratio.n == num_kept  # type: ignore[union-attr]


def test_a_neighbour_in_too_many_blocks_leaves_the_cell_open() -> None:
    """Three of nine: enough are left for an interval, and it is not to be trusted."""
    plan = plan_of(decode_cells(4), num_blocks=9)
    blocks = simulate(plan)
    noise = MachineState(foreign_cpu_share=0.4)
    noisy = [with_visits(b, lambda _: {"machine": noise}) for b in blocks[:3]]
    assert judge_one(plan, [*noisy, *blocks[3:]]).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("hit", [(1,), (2,), (1, 4), (2, 5)])
def test_a_neighbour_whom_nobody_saw_in_the_middle_of_a_block_gives_no_false_verdict(
    hit: tuple[int, ...],
) -> None:
    """The baseline is in the middle of blocks 1 and 4, the candidate of 2 and 5."""

    def slowed(visit: Visit) -> dict[str, Any]:
        return {"decode_step_ms": (visit.decode_step_ms or 0) * 1.4} if visit.position in (2, 3) else {}

    blocks = [with_visits(b, slowed) if b.index in hit else b for b in GOOD]
    assert judge_one(PLAN, blocks).outcome is Outcome.INCONCLUSIVE


def test_a_biased_second_baseline_leaves_even_a_fast_candidate_open() -> None:
    blocks = [
        with_visits(
            b, lambda v: {"decode_step_ms": v.decode_step_ms * 1.05} if v.arm is Arm.BASELINE_AGAIN else {}
        )  # type: ignore[operator]
        for b in simulate(PLAN, Simulation(ratio=0.5))
    ]
    assert "biased" in judge_one(PLAN, blocks).message


def test_without_a_second_baseline_nothing_passes() -> None:
    plan = plan_of(decode_cells(4), arms=(Arm.BASELINE, CANDIDATE))
    assert judge_one(plan, simulate(plan)).outcome is Outcome.INCONCLUSIVE


def test_a_noisy_machine_is_told_how_many_blocks_would_do() -> None:
    result = judge_one(PLAN, simulate(PLAN, Simulation(noise=0.03)))
    assert result.outcome is Outcome.INCONCLUSIVE
    assert (result.blocks_needed or 0) > PLAN.num_blocks


def test_a_cell_without_blocks_was_not_run_and_admits_nothing() -> None:
    result = judge(PLAN, [])
    assert (result.cells[0].outcome, result.verdict) == (Outcome.NOT_RUN, Verdict.UNDECIDED)


def test_a_sweep_that_requires_no_cell_admits_nothing() -> None:
    plan = plan_of([c.model_copy(update={"is_required": False}) for c in decode_cells(4)])
    assert judge(plan, simulate(plan)).verdict is Verdict.UNDECIDED


def test_fewer_blocks_than_the_least_leave_the_cell_open() -> None:
    assert judge_one(PLAN, GOOD[:4]).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("change", [{"sweep": "another"}, {"code_digest": "d" * 64}])
def test_blocks_of_another_plan_or_of_other_code_count_for_nothing(change: dict[str, str]) -> None:
    foreign = [b.model_copy(update=change) for b in GOOD]
    assert judge_one(PLAN, foreign).outcome is Outcome.NOT_RUN


def test_a_gpus_clock_is_shown_by_arm_where_it_was_sampled() -> None:
    def sampled(visit: Visit) -> dict[str, Any]:
        mhz = 1900.0 if visit.arm is CANDIDATE else 1980.0
        return {"machine": visit.machine.model_copy(update={"num_gpu_samples": 3, "sm_clock_mhz": mhz})}

    result = judge_one(PLAN, [with_visits(block, sampled) for block in GOOD])
    assert result.gpu == {"baseline_sm_clock_mhz": 1980.0, "candidate_sm_clock_mhz": 1900.0}
    assert judge_one(PLAN, GOOD).gpu == {}


def test_interactivity_of_an_agent_cell_is_said_by_arm_where_its_turns_bear_it() -> None:
    cell = Cell(workload=Workload.AGENT, batch=2, input_len=64, output_len=8)
    plan = plan_of([cell])
    found = judge_one(plan, simulate(plan, Simulation(ratio=0.5, noise=0.0, drift=0.0)))
    said = {name: round(pace) for name, pace in found.interactivity_tok_s.items()}
    assert said == {"baseline_p50": 833, "candidate_p50": 1667}, "24 turns bear no P90"


def test_blocks_of_two_kinds_of_hardware_are_not_put_together() -> None:
    moved = GOOD[0].model_copy(update={"hardware": "another"})
    assert "different hardware" in judge_one(PLAN, [moved, *GOOD[1:]]).message


def test_a_candidate_that_died_fails_though_the_block_was_measured_later() -> None:
    assert judge_one(PLAN, [failure(), *GOOD]).outcome is Outcome.FAIL


@pytest.mark.parametrize("change", [{"arm": Arm.BASELINE}, {"arm": None}, {"cause": "measurement"}])
def test_a_failure_that_is_not_the_candidates_leaves_the_cell_open(change: dict[str, Any]) -> None:
    assert judge_one(PLAN, [*GOOD[:5], failure(**change)]).outcome is Outcome.INCONCLUSIVE


def test_a_machine_that_was_lost_and_replaced_changes_nothing() -> None:
    lost = failure(cause="infrastructure", arm=None)
    assert judge_one(PLAN, [lost, *GOOD]) == judge_one(PLAN, GOOD)


def test_percentiles_are_shown_only_where_the_requests_bear_them() -> None:
    plan = plan_of(decode_cells(8))
    result = judge_one(plan, simulate(plan))
    assert set(result.ttft_ms) == {"p50", "p90"}
    assert "p99 (299)" in result.notes[0]


def speculative(accepted: float | None) -> Cell:
    engine = Engine(draft_tokens=3, acceptance_length=accepted)
    return Cell(workload=Workload.SPECULATIVE, batch=1, input_len=4, output_len=60, engine=engine)


def test_acceptance_that_differs_between_arms_makes_a_speculative_cell_void() -> None:
    plan = plan_of([speculative(3.0)])
    blocks = [with_visits(b, in_arm(CANDIDATE, acceptance_length=3.2)) for b in simulate(plan)]
    assert "acceptance lengths differ" in judge_one(plan, blocks).message


@pytest.mark.parametrize(
    ("asked", "recorded", "is_void"),
    [
        (3.0, 3.0, False),
        (3.0, 2.88, False),
        (3.0, 1.0, True),
        (3.0, 3.2, True),
        (2.5, 2.6, False),
        (None, 1.2, False),
    ],
)
def test_a_cell_with_another_acceptance_length_than_its_name_says_is_void(
    asked: float | None, recorded: float, is_void: bool
) -> None:
    plan = plan_of([speculative(asked)])
    blocks = [with_visits(b, lambda _: {"acceptance_length": recorded}) for b in simulate(plan)]
    result = judge_one(plan, blocks)
    assert ("asked for an acceptance length" in result.message, result.outcome is not Outcome.PASS) == (
        is_void,
        is_void,
    )


def beyond(*, is_beyond: bool = True) -> Cell:
    return speculative(3.0).model_copy(update={"is_beyond_scope": is_beyond})


@pytest.mark.parametrize(
    ("share", "is_beyond", "outcome", "said"),
    [
        (0.0, True, Outcome.NOT_RUN, "360 steps fell back: drafts"),
        (0.0, False, Outcome.INCONCLUSIVE, "Void"),
        (0.5, True, Outcome.INCONCLUSIVE, "served 50%"),
        (None, True, Outcome.NOT_RUN, "served no decode token"),
        (1.0, True, Outcome.PASS, ""),
    ],
)
def test_a_cell_with_drafts_that_the_path_did_not_serve_never_passes(
    share: float | None, is_beyond: bool, outcome: Outcome, said: str
) -> None:
    plan = plan_of([beyond(is_beyond=is_beyond)])
    fell_back = in_arm(CANDIDATE, specialized_share=share, fallbacks={} if share else {"drafts": 30})
    result = judge_one(plan, [with_visits(b, fell_back) for b in simulate(plan)])
    assert result.outcome is outcome and said in result.message


@pytest.mark.parametrize(
    ("arm", "is_beyond", "outcome"),
    [
        (CANDIDATE, True, Outcome.NOT_RUN),
        (CANDIDATE, False, Outcome.INCONCLUSIVE),
        (Arm.BASELINE, True, Outcome.INCONCLUSIVE),
    ],
)
def test_a_deployment_that_is_refused_was_not_run_beyond_the_scope_and_is_void_within(
    arm: Arm, is_beyond: bool, outcome: Outcome
) -> None:
    plan = plan_of([beyond(is_beyond=is_beyond)])
    refused = failure(
        sweep=plan.digest, cell=plan.cells[0].name, index=0, cause="refused", arm=arm, message="no drafts"
    )
    result = judge_one(plan, [refused])
    assert result.outcome is outcome and f"{arm} refuses the deployment: no drafts" in result.message


def test_steps_that_fell_back_are_noted_beside_a_cell_that_was_timed() -> None:
    blocks = [with_visits(b, in_arm(CANDIDATE, fallbacks={"too many": 2})) for b in GOOD]
    assert "candidate: 24 steps fell back: too many" in judge_one(PLAN, blocks).notes


def test_every_workload_has_a_time_of_its_own() -> None:
    cells = Axes(
        workloads=(Workload.PREFILL, Workload.MIXED, Workload.DECODE, Workload.AGENT),
        batches=(2,),
        shapes=((40, 16),),
    ).cells()
    plan = plan_of((*cells, speculative(2.0)))
    levels = {
        r.cell.workload: r.baseline_ms
        for r in judge(plan, simulate(plan, Simulation(noise=0, drift=0))).cells
    }
    assert levels == pytest.approx(
        {
            Workload.PREFILL: 3.2,
            Workload.MIXED: (3.2 + 15 * 1.2) / 32,
            Workload.DECODE: 1.2,
            Workload.AGENT: 1.2,
            Workload.SPECULATIVE: 0.55,
        }
    )


def test_a_candidate_at_the_margin_passes_no_more_often_than_alpha() -> None:
    """300 sweeps of 7 blocks whose true ratio is the limit itself: chance passes some, at most 5 % of them."""
    rng, margins = np.random.default_rng(7), Margins()
    passes = 0
    for _ in range(300):
        logs = rng.normal(0, 0.006, (7, 6))
        blocks = [
            with_visits(
                block,
                lambda v, row=row: {
                    "decode_step_ms": exp(row[v.position]) * (1.02 if v.arm is CANDIDATE else 1)
                },
            )
            for block, row in zip(_seven(), logs, strict=True)
        ]
        passes += judge(SEVEN, blocks, margins).cells[0].outcome is Outcome.PASS
    assert passes <= 26, "15 expected at most; 26 is 2.9 standard deviations above"


SEVEN = plan_of(decode_cells(1), num_blocks=7)
_BLOCKS = simulate(SEVEN)


def _seven() -> list[Any]:
    assert all(b.code_digest == CODE for b in _BLOCKS)
    return _BLOCKS


def seen(visit: Visit) -> dict[str, Any]:
    experts = ExpertCounts(layers=((4, 0, 4, 0), (8,)))
    kernels = StepKernels(num_steps=3, busy_us=50.0, num_kernels=20.0)
    return {"experts": experts, "kernels": kernels} if visit.arm is Arm.CANDIDATE else {}


def test_what_was_seen_outside_the_timed_visits_is_told_whatever_becomes_of_the_times() -> None:
    disturbed = with_visits(GOOD[0], lambda _: {"machine": MachineState(foreign_cpu_share=0.9)})
    for blocks in ([with_visits(disturbed, seen), *GOOD[1:]], [with_visits(disturbed, seen)]):
        result = judge_one(PLAN, blocks)
        assert result.kernels == {"candidate_num_kernels": 20.0, "candidate_busy_us": 50.0}
        assert result.experts["candidate_used"] == pytest.approx((2 / 4 + 1 / 4) / 2)
        assert result.experts["candidate_effective"] == pytest.approx((2 + 1) / 2)
        assert result.experts["candidate_busiest"] == pytest.approx((0.5 + 1) / 2)


def test_experts_that_were_not_counted_have_no_spread() -> None:
    none = [with_visits(GOOD[0], lambda _: {"experts": ExpertCounts(layers=((0, 0), ()))}), *GOOD[1:]]
    assert judge_one(PLAN, none).experts == judge_one(PLAN, GOOD).experts == {}
