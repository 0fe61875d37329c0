"""Fixtures of the oracle's own tests: seeded inputs, and a rounding that shares nothing with the oracle's."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor


@pytest.fixture
def randn() -> Callable[..., Tensor]:
    """Normal deviates from one seeded generator; float64, where no contract rounds, unless told otherwise."""
    generator = torch.Generator().manual_seed(20260)

    def draw(*shape: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).to(dtype)

    return draw


@pytest.fixture
def bf16() -> Callable[[float], float]:
    """A Python float rounded to the nearest bfloat16, ties to even, by counting units in the last place."""

    def rounded(value: float) -> float:
        if value == 0 or not math.isfinite(value):
            return value
        unit = 2.0 ** (max(math.frexp(value)[1], -125) - 8)
        nearest = round(value / unit) * unit
        return nearest if abs(nearest) < 2.0**128 else math.copysign(math.inf, value)

    return rounded
