"""What a cut must compute before it may be timed: every case of the contract, each output one rounding from the sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.kernels.projection.cases import CASES, random_inputs
from specialized_path.reference.rounding import round_to

_ACCUMULATION = 2.0**-20
"""Allowed error of FP32 sums, relative to the sum of the terms' magnitudes (OC-3)."""
_RUNS = 3
"""Of each case: a result may depend on which warp comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedProduct:
    """One case's inputs, and the smallest and the largest BF16 number that each output may be."""

    name: str
    x: Tensor
    """[B, K] BF16."""
    weight: Tensor
    """[N, K] BF16."""
    low: Tensor
    """[B, N] BF16; NaN where the output must be NaN."""
    high: Tensor

    def num_wrong(self, out: Tensor) -> int:
        """How many outputs lie outside."""
        inside = (self.low <= out) & (out <= self.high) | self.low.isnan() & out.isnan()
        return int((~inside).sum())


def expected_products(num_rows: int, num_outputs: int, num_inputs: int) -> list[ExpectedProduct]:
    """All cases of the contract in float64, on the current GPU or the CPU.

    An output is the rounding of some number within the FP32 sum's error, and rounding keeps the order of numbers.
    """
    found = []
    for case in CASES:
        x, weight = case.change(*random_inputs(num_rows, num_outputs, num_inputs, seed=num_rows))
        exact = x.double() @ weight.double().T
        magnitudes = x.abs().nan_to_num().double() @ weight.abs().nan_to_num(posinf=0.0).double().T
        error = _ACCUMULATION * magnitudes
        low, high = (round_to(end, torch.bfloat16) for end in (exact - error, exact + error))
        found.append(ExpectedProduct(name=case.name, x=x, weight=weight, low=low, high=high))
    return found


def require_right(expected: list[ExpectedProduct], run: Callable[[Tensor, Tensor, Tensor], object]) -> None:
    """Raises ValueError unless `run(x, weight, out)` fills a poisoned `out` rightly in every run of every case."""
    for product in expected:
        out = torch.empty_like(product.low)
        for _ in range(_RUNS):
            out.fill_(float("nan"))
            run(product.x, product.weight, out)
            wrong = product.num_wrong(out)
            if wrong:
                raise ValueError(f"{wrong} of {out.numel()} outputs are wrong in the case {product.name!r}")
