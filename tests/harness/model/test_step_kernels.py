"""A profile tells a busy time and kernels for its steps, or has no steps."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from harness.engine.step_profile import Span, describe
from harness.model.step_kernels import StepKernels


@pytest.mark.parametrize(
    "told",
    [
        {"num_steps": 9},
        {"num_steps": 9, "busy_us": 3.0},
        {"num_steps": 9, "busy_us": 0.0, "num_kernels": 2.0},
        {"num_steps": 9, "busy_us": 3.0, "num_kernels": 0.0},
        {"num_steps": 9, "busy_us": float("nan"), "num_kernels": 2.0},
        {"num_steps": 0, "busy_us": 3.0, "num_kernels": 2.0},
        {"num_steps": -1},
    ],
)
def test_steps_without_kernels_or_kernels_without_steps_do_not_parse(told: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        StepKernels.model_validate(told)


@pytest.mark.parametrize(("num_steps", "busy_us"), [(2, 1.5), (0, None)])
def test_what_the_worker_tells_is_read(num_steps: int, busy_us: float | None) -> None:
    told = describe([Span(0, 3000, "a")], num_steps)
    assert StepKernels.model_validate(told).busy_us == busy_us
