"""MXFP8 activations: an E4M3 code times a power of two shared by 32 neighbours, chosen by the largest of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from specialized_path.reference.mxfp4 import GROUP_SIZE
from specialized_path.reference.rounding import quantize_e4m3

_EXPONENT_BIAS = 127
_LARGEST_E4M3_EXPONENT = 8
"""448 is 1.75 x 2^8."""
_LARGEST_SCALE_CODE = 254


@dataclass(frozen=True, slots=True, kw_only=True)
class Mxfp8Activation:
    """Rows of K values in MXFP8."""

    codes: Tensor
    """[..., K] float8_e4m3fn."""
    scale: Tensor
    """[..., K/32] uint8, E8M0: code c means 2^(c-127)."""


def quantize_mxfp8(x: Tensor, *, saturates: bool = False) -> Mxfp8Activation:
    """Every value rounded once to E4M3 at the scale of its group.

    The scale code is the exponent of the group's largest magnitude less 8, and one more if its mantissa exceeds
    1.75, so that it fits 448; pinned to 0 ... 254. Magnitudes beyond 448 scales are pinned there.

    Args:
        x: [..., K], floating point, K a multiple of 32. NaN stays NaN and does not count for the scale; infinity
            counts as the type's largest number.
        saturates: leaves the "one more" out: the finer scale, at which the largest magnitudes are pinned.

    Returns:
        Codes and scales; a group of zeros has scale code 0.

    Raises:
        ValueError: K is not whole groups.

    Source: OCP Microscaling Formats (MX) specification 1.0, with the rounding of the scale as said.
    """
    if x.shape[-1] % GROUP_SIZE:
        raise ValueError(f"columns: got {x.shape[-1]}, expected a multiple of {GROUP_SIZE}")
    groups = x.double().unflatten(-1, (-1, GROUP_SIZE))
    largest = torch.finfo(x.dtype).max
    amax = groups.abs().nan_to_num(nan=0.0, posinf=largest).amax(dim=-1)
    # frexp's mantissa is in [0.5, 1): half of the one meant.
    half_mantissa, exponent = amax.frexp()
    code = exponent.long() - 1 - _LARGEST_E4M3_EXPONENT + _EXPONENT_BIAS
    if not saturates:
        code += half_mantissa > 1.75 / 2
    code = torch.where(amax == 0, 0, code).clamp(0, _LARGEST_SCALE_CODE)
    codes = quantize_e4m3(groups / _scale_values(code), acc_dtype=torch.float64)
    return Mxfp8Activation(codes=codes.flatten(-2), scale=code.to(torch.uint8))


def dequantize_mxfp8(activation: Mxfp8Activation, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """The values of the codes, [..., K]: exact in float64; float32 overflows to infinity from 2^128 on at most."""
    groups = activation.codes.double().unflatten(-1, (-1, GROUP_SIZE))
    return (groups * _scale_values(activation.scale)).flatten(-2).to(dtype)


def _scale_values(code: Tensor) -> Tensor:
    """Powers of two in float64, one a group, with a dimension to spread over it."""
    return torch.exp2(code.double() - _EXPONENT_BIAS).unsqueeze(-1)
