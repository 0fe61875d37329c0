"""Laws of the GPU sampler: both ends of a visit and its middle are read, and what a GPU does not tell is not known."""

from __future__ import annotations

import time
from collections.abc import Iterator

from harness.model.evidence import GpuState
from perf_sweeps.gpu_sampler import INTERVAL_S, GpuSampler

COOL = GpuState(
    name="made", sm_clock_mhz=1980, memory_clock_mhz=2619, power_w=301.0, temperature_c=41, slowdowns=()
)
HOT = COOL.model_copy(
    update={
        "sm_clock_mhz": 1500,
        "power_w": None,
        "temperature_c": 85,
        "slowdowns": ("sw_thermal_slowdown",),
    }
)
SILENT = COOL.model_copy(update={"slowdowns": None})


def sampled(*states: GpuState | None, seconds: float = 0.0) -> dict[str, object]:
    found: Iterator[GpuState | None] = iter(states)
    with GpuSampler(lambda: next(found)) as sampler:
        time.sleep(seconds)
    return sampler.state()


def test_samples_give_means_and_every_reason_that_slowed_the_gpu() -> None:
    state = sampled(COOL, HOT)
    assert (state["sm_clock_mhz"], state["temperature_c"], state["num_gpu_samples"]) == (1740.0, 63.0, 2)
    assert state["throttle_reasons"] == ("sw_thermal_slowdown",)


def test_a_value_that_a_gpu_does_not_report_is_left_out_of_its_mean() -> None:
    assert sampled(COOL, HOT)["power_w"] == 301.0


def test_what_happens_in_the_middle_of_a_visit_is_seen() -> None:
    state = sampled(COOL, HOT, *[COOL] * 20, seconds=2 * INTERVAL_S)
    assert state["throttle_reasons"] == ("sw_thermal_slowdown",)


def test_a_gpu_that_tells_no_reasons_was_not_sampled() -> None:
    assert sampled(SILENT, SILENT)["num_gpu_samples"] == 0


def test_a_machine_without_a_gpu_has_no_sample() -> None:
    assert sampled(None)["num_gpu_samples"] == 0
