"""Laws of the GPU sampler: it reads what `nvidia-smi` prints, and without one it knows nothing."""

from __future__ import annotations

import time
from pathlib import Path

from perf_sweeps.gpu_sampler import GpuSampler, parse_samples

COOL, HOT = "1980, 301.2, 41, 0x0000000000000000", "1500, 700.0, 85, 0x0000000000000024"


def test_samples_give_means_and_every_reason_that_slowed_a_gpu() -> None:
    state = parse_samples([COOL, HOT])
    assert (state["sm_clock_mhz"], state["temperature_c"], state["num_gpu_samples"]) == (1740.0, 63.0, 2)
    assert state["throttle_reasons"] == ("sw_power_cap", "sw_thermal_slowdown")


def test_an_idle_gpu_is_not_throttled() -> None:
    assert parse_samples(["1980, 75.0, 30, 0x0000000000000001"])["throttle_reasons"] == ()


def test_a_value_that_a_gpu_does_not_report_is_left_out_of_its_mean() -> None:
    assert parse_samples(["1980, [N/A], 41, 0x0"])["power_w"] is None


def test_a_machine_without_the_program_has_no_sample() -> None:
    with GpuSampler(find=lambda _: None) as sampler:
        pass
    assert sampler.state() == {"num_gpu_samples": 0}


def test_the_program_is_ended_with_the_visit_and_what_it_printed_is_read(tmp_path: Path) -> None:
    program = tmp_path / "smi"
    program.write_text(f"#!/bin/sh\necho '{COOL}'\nexec sleep 60\n")
    program.chmod(0o755)
    with GpuSampler(find=lambda _: str(program)) as sampler:
        time.sleep(0.1)
    assert sampler.state()["num_gpu_samples"] == 1
