"""Laws of a profile: only steps that go on are in it, and what it says is what the device was seen to do."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from harness.engine.step_profile import (
    MAX_STEPS,
    Span,
    StepProfile,
    describe,
    is_work,
    make_cuda_profiler,
)
from harness.model.step_kernels import StepKernels


class Made:
    """A device on which each step of a profile runs two kernels that overlap, and a copy."""

    def __init__(self, log: list[str], *, fails_at: str = "") -> None:
        self.log, self.fails_at = log, fails_at

    def start(self) -> None:
        self.log.append("start")
        if self.fails_at == "start":
            raise RuntimeError("CUPTI")

    def stop(self) -> Sequence[Span]:
        self.log.append("stop")
        if self.fails_at == "stop":
            raise RuntimeError("CUPTI")
        return [Span(0, 4000, "a"), Span(3000, 6000, "b"), Span(9000, 10000, "Memcpy DtoH")]


def profiled(steps: Sequence[bool], log: list[str], *, fails_at: str = "") -> StepProfile:
    profile = StepProfile(lambda: Made(log, fails_at=fails_at))
    profile.arm()
    for goes_on in steps:
        profile.begin_step(goes_on=goes_on)
    return profile


@pytest.mark.parametrize(
    ("steps", "num_steps", "log"),
    [
        ([False, True, True, False, True], 2, ["start", "stop"]),
        ([True, True], 2, ["start", "stop"]),
        ([True] * (MAX_STEPS + 5), MAX_STEPS, ["start", "stop"]),
        ([False, False], 0, []),
    ],
    ids=["ended by another step", "ended when asked", "long enough", "none goes on"],
)
def test_the_first_steps_that_go_on_are_profiled_and_no_other(
    steps: list[bool], num_steps: int, log: list[str]
) -> None:
    seen: list[str] = []
    assert profiled(steps, seen).result()["num_steps"] == num_steps
    assert seen == log


def test_what_is_not_armed_profiles_nothing() -> None:
    log: list[str] = []
    profile = StepProfile(lambda: Made(log))
    profile.begin_step(goes_on=True)
    assert (profile.result(), log) == ({"num_steps": 0}, [])


@pytest.mark.parametrize("fails_at", ["start", "stop"])
def test_a_profiler_that_fails_leaves_the_steps_alone_and_shows_nothing(fails_at: str) -> None:
    profile = profiled([True, True, False, True], [], fails_at=fails_at)
    assert profile.result() == {"num_steps": 0, "problem": "the profiler failed: RuntimeError: CUPTI"}
    assert StepKernels.model_validate(profile.result()).problem


def test_a_profiler_that_fails_as_no_profiler_should_leaves_the_steps_alone_too() -> None:
    def broken() -> Made:
        raise AttributeError("no kineto")

    profile = StepProfile(broken)
    profile.arm()
    for _ in range(3):
        profile.begin_step(goes_on=True)
    assert profile.result() == {"num_steps": 0, "problem": "the profiler failed: AttributeError: no kineto"}
    profile.arm()
    assert profile.result() == {"num_steps": 0}


@pytest.mark.parametrize(
    ("kind", "is_kept"),
    [
        ("kernel", True),
        ("gpu_memcpy", True),
        ("gpu_memset", True),
        ("gpu_user_annotation", False),
        ("cuda_sync", False),
        ("overhead", False),
    ],
)
def test_what_stands_beside_the_devices_work_is_no_work(kind: str, is_kept: bool) -> None:
    assert is_work(SimpleNamespace(activity_type=lambda: kind)) is is_kept
    assert is_work(SimpleNamespace())


def test_work_at_the_same_time_is_counted_once_and_copies_are_no_kernels() -> None:
    found = profiled([True, True], []).result()
    assert (found["busy_us"], found["num_kernels"]) == (3.5, 1.0)
    assert found["kernels"] == [
        {"name": "a", "launches": 0.5, "us": 2.0},
        {"name": "b", "launches": 0.5, "us": 1.5},
    ]


def test_a_device_that_was_seen_to_run_no_kernel_was_not_seen() -> None:
    assert describe([Span(0, 5, "Memset")], 3) == {
        "num_steps": 0,
        "problem": "the profiler told 1 spans of the device in 3 steps, none of a kernel",
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_without_a_gpu_nothing_is_profiled() -> None:
    profile = StepProfile(make_cuda_profiler)
    profile.arm()
    profile.begin_step(goes_on=True)
    assert profile.result() == {"num_steps": 0, "problem": "no CUDA device"}
