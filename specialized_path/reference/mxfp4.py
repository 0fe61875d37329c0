"""MXFP4 weights dequantise exactly: a four-bit code times a power of two shared by 32 neighbours along K."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

GROUP_SIZE = 32
"""Codes that share one scale (OCP Microscaling Formats specification)."""
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""Value of each E2M1 code."""
E8M0_NAN = 255
"""The scale code that means NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mxfp4Weight:
    """A weight of N x K (with leading dimensions such as experts) in MXFP4."""

    packed: Tensor
    """[..., N, K/2] uint8, two E2M1 codes a byte, the lower nibble for the even k."""
    scale: Tensor
    """[..., N, K/32] uint8, E8M0: code c means 2^(c-127)."""

    def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> "Mxfp4Weight":
        """The part of the weight at `index` of the leading dimensions and rows (not of K)."""
        return Mxfp4Weight(packed=self.packed[index], scale=self.scale[index])


def dequantize_mxfp4(weight: Mxfp4Weight, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """The exact values of the codes, wherever `dtype` can hold them.

    float64 holds all of them; bfloat16 and float32 hold those up to scale code 252 (6 x 2^125) and overflow
    to infinity at most above.

    Args:
        weight: codes and scales.
        dtype: type of the result.

    Returns:
        [..., N, K].

    Raises:
        ValueError: K of codes and scales disagree, or a scale is the NaN code (such a checkpoint must not be
            loaded).

    Source: OCP Microscaling Formats (MX) specification 1.0.
    """
    packed, scale = weight.packed, weight.scale
    if packed.shape[-1] * 2 != scale.shape[-1] * GROUP_SIZE:
        raise ValueError(
            f"scale columns: got {scale.shape[-1]}, expected {packed.shape[-1] * 2 / GROUP_SIZE}"
        )
    if bool((scale == E8M0_NAN).any()):
        raise ValueError("scale codes: got 255 (NaN), expected 0 ... 254")
    codes = torch.stack([packed & 0xF, packed >> 4], dim=-1).flatten(-2).long()
    scales = scale.long().repeat_interleave(GROUP_SIZE, dim=-1)
    return _value_table(dtype).to(codes.device)[scales * len(E2M1_VALUES) + codes]


@cache
def _value_table(dtype: torch.dtype) -> Tensor:
    """Values of every pair (scale code, E2M1 code), [255 * 16]."""
    exponents = torch.arange(E8M0_NAN, dtype=torch.float64) - 127
    values = torch.tensor(E2M1_VALUES, dtype=torch.float64)
    return (torch.exp2(exponents).unsqueeze(1) * values).flatten().to(dtype)
