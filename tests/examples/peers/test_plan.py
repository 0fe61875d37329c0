"""The plan of a run among peers."""

import pytest

from examples.peers.plan import GPUS, PAYLOADS, START_LIMIT_S, cases, make_jobs, render_plan
from tests.specialized_path.kernels.exchange.payloads import NAMES


@pytest.mark.parametrize("num_gpus", GPUS)
def test_a_run_ends_within_ten_minutes_by_its_limits(num_gpus):
    assert START_LIMIT_S + sum(job.limit_s for job in make_jobs(num_gpus)) < 600


@pytest.mark.parametrize("num_gpus", GPUS)
def test_one_rank_a_gpu_and_the_deployment_of_eight_are_exchanged_in_all_parts(num_gpus):
    ranks = [job.num_ranks for job in make_jobs(num_gpus) if "iterations" in job.parts]
    assert ranks == sorted({num_gpus, 8})


def test_no_case_of_a_part_is_named_twice():
    found = [cases(p, job.num_processes, job.num_ranks) for job in make_jobs(4) for p in job.parts]
    assert all(len(set(names)) == len(names) > 0 for names in found)


def test_every_process_is_late_in_turn():
    found = {name.split(", ")[1] for name in cases("delays", 4, 8)}
    assert found == {f"process {p} late to {place}" for p in range(4) for place in ("publish", "consume")}


def test_the_payloads_are_those_of_the_kernels_tests():
    assert PAYLOADS == NAMES


def test_another_number_of_gpus_is_refused():
    with pytest.raises(ValueError, match="got 3, expected one of"):
        make_jobs(3)


def test_the_plan_names_what_it_cannot_show():
    text = render_plan(2, 100_000)
    assert "fused row exchanges" in text and "iterations: 4 cases of 100,000 exchanges" in text
