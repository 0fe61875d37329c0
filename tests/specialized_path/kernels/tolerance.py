"""The contracts' tolerance classes: how far a kernel's output may lie from the oracle's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BF16_MANTISSA_BITS = 8
"""Significand bits of BF16, the hidden one included."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A class for BF16 outputs: relative L2 error, and units in the last place of each element."""

    relative_l2: float
    max_ulps: float


T1 = Tolerance(2.2e-3, 1.0)
"""One rounding."""
T2 = Tolerance(4e-3, 3.0)
"""Two or three roundings."""
T3_RELATIVE_L2 = 1e-5
"""FP32 state after one step, against float64 on the same inputs."""
T4_MAX_CODE_SHARE = 0.005
"""Share of FP8 bytes that may differ, and by one code only."""
ACCUMULATION = 2.0**-20
"""Allowed error of FP32 sums, relative to the sum of the terms' magnitudes."""


def bf16_ulp(reference: Tensor) -> Tensor:
    """The distance between neighbouring BF16 numbers at each element, in float64; constant below the normal range."""
    magnitude = reference.double().abs().clamp_min(torch.finfo(torch.bfloat16).tiny)
    return torch.exp2(torch.floor(torch.log2(magnitude)) - (BF16_MANTISSA_BITS - 1))


def relative_l2(got: Tensor, reference: Tensor) -> float:
    """`|got - reference| / |reference|`; zero when both are zero, infinite when only the reference is."""
    error = (got.double() - reference.double()).norm().item()
    scale = reference.double().norm().item()
    return error / scale if scale else (0.0 if not error else float("inf"))


def assert_close(
    got: Tensor,
    reference: Tensor,
    tolerance: Tolerance,
    *,
    term_magnitudes: Tensor | None = None,
    inner_flips: Tensor | None = None,
) -> None:
    """Fails unless `got` lies within the class of the float64 `reference`, every element finite or equally not.

    Args:
        got: BF16 output of a kernel.
        reference: float64, not rounded, or rounded where the contract rounds.
        tolerance: the class.
        term_magnitudes: per element, the sum of the absolute terms that it adds up; its FP32 error is allowed to the
            element on top, and not to the relative L2 error.
        inner_flips: per element, what it moves by when inner roundings fall the other way: likewise.
    """
    wide, reference = got.double().cpu(), reference.double().cpu()
    finite = reference.isfinite()
    assert torch.equal(wide.isnan(), reference.isnan()), "NaN elsewhere than in the reference"
    infinite = reference.isinf()
    assert torch.equal(wide.isfinite(), finite) and torch.equal(wide[infinite], reference[infinite]), (
        "infinities elsewhere than in the reference"
    )
    allowed = tolerance.max_ulps * bf16_ulp(reference)
    if inner_flips is not None:
        allowed += inner_flips.double().cpu()
    if term_magnitudes is not None:
        allowed += ACCUMULATION * term_magnitudes.double().cpu()
    excess = ((wide - reference).abs() - allowed)[finite]
    worst = excess.max().item() if excess.numel() else 0.0
    assert worst <= 0, (
        f"{int((excess > 0).sum())} of {excess.numel()} elements off by more than {tolerance.max_ulps} ulp"
    )
    error = relative_l2(wide[finite], reference[finite])
    assert error <= tolerance.relative_l2, f"relative L2 error {error:.2e}"


def assert_state_close(got: Tensor, reference: Tensor) -> None:
    """Class T3: fails unless an FP32 state lies within 1e-5 in relative L2 of the float64 `reference`."""
    error = relative_l2(got.cpu(), reference.cpu())
    assert error <= T3_RELATIVE_L2, f"relative L2 error {error:.2e}, allowed {T3_RELATIVE_L2:.0e}"


def assert_codes_close(got: Tensor, reference: Tensor) -> None:
    """Class T4: fails unless FP8 bytes are equal but for 0.5 % that are one code off, with the same sign."""
    ours, theirs = got.view(torch.uint8).cpu().int(), reference.view(torch.uint8).cpu().int()
    different = ours != theirs
    assert bool(((ours - theirs).abs() <= 1).all()), "a code differs by more than one"
    share = different.double().mean().item()
    assert share <= T4_MAX_CODE_SHARE, f"{share:.2%} of the codes differ"


def assert_same_bits(got: Tensor, reference: Tensor) -> None:
    """Class T0: fails unless both have the same bits, NaN payloads and signs of zero included."""
    assert got.dtype == reference.dtype
    ours, theirs = got.contiguous().view(torch.uint8).cpu(), reference.contiguous().view(torch.uint8).cpu()
    assert torch.equal(ours, theirs), f"{int((ours != theirs).sum())} bytes differ"
