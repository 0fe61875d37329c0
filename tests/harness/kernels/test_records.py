"""What a run's numbers are made into: which cell is lost, which kernel is above its allowance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.kernels.bench_run import run_bench
from harness.kernels.commands import bench_code, compile_code
from harness.kernels.records import (
    BenchRun,
    CellRecord,
    CompiledKernel,
    CompileRun,
    Timing,
)
from harness.kernels.rendering import render_bench, table
from harness.kernels.subject import KernelRunError
from harness.kernels.timing import summarise
from harness.kernels.worker import time_cell
from harness.model.kernel_tests import (
    Machine,
)
from harness.model.words import ExitCode
from tests.harness.kernels.subjects import Dying

MACHINE = Machine(
    gpu="NVIDIA H200", driver="1", num_gpus=1, sm_clock_mhz=(1, 2), memory_clock_mhz=(3, 4), software={}
)
FACTS = {"family": "toy", "operator": "OC-0", "rank_shape": "any", "batch": 1, "bytes_moved": 2_000_000}


def timing(median_us: float) -> Timing:
    return Timing(median_us=median_us, low_us=median_us, high_us=median_us, rounds=5)


def cell(candidate: float | None, **baselines: float) -> CellRecord:
    return CellRecord(
        name="toy batch=1",
        candidate=None if candidate is None else timing(candidate),
        baselines={name: timing(time) for name, time in baselines.items()},
        missing={},
        launched={},
        **FACTS,
    )


def bench(*cells: CellRecord) -> BenchRun:
    return BenchRun(recorded_at="now", machine=MACHINE, copy_bytes_per_second=4e12, cells=cells)


def compiled(frame_bytes: int | None, allowed: int | None = 0) -> CompileRun:
    kernel = CompiledKernel(
        variant="small",
        arch="sm_90a",
        registers=64,
        frame_bytes=frame_bytes,
        static_shared_bytes=0,
        threads=128,
        allowed_spill_bytes=allowed,
    )
    return CompileRun(recorded_at="now", seconds=1.0, kernels=(kernel,), missing=(), failures=())


def test_a_cell_is_lost_to_each_faster_baseline():
    assert cell(2.0, torch=1.9, vllm=2.1).lost_to == ("torch",)


def test_a_tie_is_not_lost():
    assert cell(2.0, torch=2.0).lost_to == ()


def test_a_kernel_that_did_not_run_has_lost_to_all():
    assert cell(None, torch=1.0, vllm=2.0).lost_to == ("torch", "vllm")


def test_a_lost_cell_is_shown_and_counted():
    text = render_bench(bench(cell(2.0, torch=1.5), cell(1.0, torch=1.5)))
    assert "1 lost" in text
    assert text.splitlines()[1].endswith("torch")


def test_the_share_of_the_copy_bandwidth_is_of_the_bytes_that_had_to_move():
    assert render_bench(bench(cell(1.0))).splitlines()[1].split()[-1] == "50"


def test_a_kernel_that_was_not_timed_leaves_the_run_open():
    assert bench_code(bench(cell(1.0), cell(None))) == ExitCode.UNDECIDED
    assert bench_code(bench(cell(1.0, torch=0.5))) == ExitCode.ADMIT


def test_a_run_that_dies_keeps_the_cells_that_it_had_timed_and_stays_open():
    facts = {"machine": MACHINE.model_dump(), "copies": {"kernel": 4e12}}
    run = run_bench(Dying(facts, {"cell": cell(1.0).model_dump()}), "*", 5)
    assert (run.cells, bench_code(run)) == ((cell(1.0),), ExitCode.UNDECIDED)
    assert "ended early: CUDA error" in render_bench(run)


def test_a_run_that_dies_before_its_first_cell_is_an_error():
    with pytest.raises(KernelRunError):
        run_bench(Dying(), "*", 5)


class Broken:
    """A cell of a subject whose preparation fails."""

    name = "toy batch=1"
    family, operator, rank_shape, batch, bytes_moved = "toy", "OC-0", "any", 1, 8

    def prepare(self):
        raise ValueError("first line\nno such weight")


def test_a_cell_that_cannot_be_prepared_is_listed_with_its_reason():
    record = CellRecord(**time_cell(Broken(), dict, 5))
    assert record.candidate is None
    assert record.missing == {"candidate": "ValueError: no such weight"}


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (compiled(0), ExitCode.ADMIT),
        (compiled(8, allowed=8), ExitCode.ADMIT),
        (compiled(8), ExitCode.REJECT),
        (compiled(None), ExitCode.REJECT),
        (compiled(0, allowed=None), ExitCode.REJECT),
        (compiled(0).model_copy(update={"missing": ("large (sm_90a)",)}), ExitCode.REJECT),
        (compiled(0).model_copy(update={"failures": ("toy: raised",)}), ExitCode.REJECT),
        (compiled(0).model_copy(update={"kernels": ()}), ExitCode.UNDECIDED),
    ],
)
def test_compilation_is_in_order_only_when_every_kernel_is_there_and_within_its_allowance(run, code):
    assert compile_code(run) == code


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=40))
def test_the_median_lies_between_the_quartiles_and_these_between_the_extremes(values):
    found = Timing(**summarise(values))
    assert min(values) <= found.low_us <= found.median_us <= found.high_us <= max(values)


def test_columns_of_a_table_line_up():
    lines = table(("a", "b"), [("long cell", 1), ("x", 2)]).splitlines()
    assert [line.index(c) for line, c in zip(lines, "b12", strict=True)] == [11, 11, 11]
