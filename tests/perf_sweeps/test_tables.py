"""Laws of tables and prices: every cell a row, the frontier holds what nothing beats, prices add up."""

from __future__ import annotations

import pytest

from perf_sweeps.cell import Axes, Cell, Engine, Workload
from perf_sweeps.presets import preset_cells
from perf_sweeps.price import Rates, price_sweep, render_price
from perf_sweeps.simulated import Simulation
from perf_sweeps.tables import cell_rows, frontier_rows, growth_rows, speedup_rows
from tests.perf_sweeps.sweeps import decode_cells, judge, plan_of, simulate

PLAN = plan_of(decode_cells(1, 2, 4))
QUIET = Simulation(ratio=0.5, noise=1e-9, drift=0)
RESULT = judge(PLAN, simulate(PLAN, QUIET))


def test_every_cell_has_a_row_also_one_that_was_not_measured() -> None:
    rows = cell_rows(judge(PLAN, []))
    assert [(r["batch"], r["speedup"], r["outcome"]) for r in rows] == [
        (b, None, "not_run") for b in (1, 2, 4)
    ]


def test_the_speed_up_is_the_inverse_of_the_ratio_and_lies_in_its_interval() -> None:
    row = cell_rows(RESULT)[0]
    assert row["speedup"] == pytest.approx(2, rel=1e-3)
    assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]


def test_a_point_that_another_batch_beats_in_both_is_not_on_the_frontier() -> None:
    worse = judge(PLAN, simulate(PLAN, Simulation(ratio=1, ratios={2: 9.0}, noise=1e-9, drift=0)))
    candidate = {r["batch"]: r["is_on_frontier"] for r in frontier_rows(worse) if r["arm"] == "candidate"}
    assert candidate == {1: True, 2: False, 4: True}


def test_growth_is_relative_to_the_smallest_batch_and_to_the_byte_floor_where_it_is_known() -> None:
    rows = growth_rows(RESULT, floor_ms=0.5)
    assert [r["baseline_growth"] for r in rows] == pytest.approx([1, 1.2 / 1.1, 1.4 / 1.1], rel=1e-3)
    assert rows[0]["over_floor"] == pytest.approx(1.1, rel=1e-3)


def test_a_longer_context_is_held_against_the_shortest_of_its_batch() -> None:
    cells = Axes(workloads=(Workload.DECODE,), batches=(2,), shapes=((16, 8), (32, 8))).cells()
    plan = plan_of(cells)
    rows = growth_rows(judge(plan, simulate(plan, QUIET)))
    assert [(r["along"], r["input_len"]) for r in rows] == [("batch", 16), ("batch", 32), ("input_len", 32)]


def test_more_ranks_do_not_beat_fewer_by_their_number_alone() -> None:
    engines = (Engine(), Engine(tensor_parallel=4))
    plan = plan_of(
        Axes(workloads=(Workload.DECODE,), batches=(4,), shapes=((16, 8),), engines=engines).cells()
    )
    rows = frontier_rows(judge(plan, simulate(plan, Simulation(ratio=0.5, noise=0.0, drift=0.0))))
    assert {r["engine"]: r["is_on_frontier"] for r in rows} == {"tp1": True, "tp4": False}


def test_the_speed_up_table_has_a_row_a_batch_and_two_columns_an_engine() -> None:
    engines = (Engine(tensor_parallel=8), Engine(tensor_parallel=16))
    cells = Axes(workloads=(Workload.DECODE,), batches=(2, 1), shapes=((1, 8),), engines=engines).cells()
    plan = plan_of(cells)
    rows = speedup_rows(judge(plan, simulate(plan, QUIET)))
    assert [r["batch"] for r in rows] == [1, 2]
    assert rows[1]["tp16 tok/s"] == pytest.approx(2000 / 0.6, rel=1e-3)
    assert rows[0]["tp8 speed-up"] == pytest.approx(2, rel=1e-3)


def test_a_price_is_visits_times_seconds_times_gpus_and_the_start_of_every_server() -> None:
    cells = preset_cells("k3-article", None, "decode/tp8/b1/*")
    price = price_sweep(plan_of(cells, num_blocks=10), Rates(start_s=60))
    visit_s = 1 / 10_000 + 1024 / 193.3
    assert price.start_gpu_minutes == pytest.approx(3 * 8)
    assert price.gpu_minutes - price.start_gpu_minutes == pytest.approx(3 * 21 * visit_s * 8 / 60)


def test_the_tracers_overhead_is_priced_as_one_server_whose_batch_is_prefilled_once_a_block() -> None:
    cell = Cell(workload=Workload.OVERHEAD, batch=4, input_len=1000, output_len=32)
    rates = Rates(start_s=60, step_ms=10, prefill_tok_s=1000, request_rounds=2)
    price = price_sweep(plan_of([cell], num_blocks=5), rates)
    assert (price.num_engines, price.start_gpu_minutes) == (1, 1.0)
    # A block is 4 s of prefill and 6 turns; five of them and the warm-up.
    assert price.gpu_minutes - price.start_gpu_minutes == pytest.approx(6 * (4 + 6 * 0.32) / 60)
    assert "Starting 1 server: " in render_price(price)


def test_a_price_says_what_it_assumes() -> None:
    assert "Assumed, not measured: 9 ms a step" in render_price(price_sweep(PLAN, Rates(step_ms=9)))
