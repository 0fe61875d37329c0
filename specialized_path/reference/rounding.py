"""Every rounding of the contracts is to nearest, ties to even, and happens once."""

import torch
from torch import Tensor

E4M3_MAX = 448.0
"""Largest finite magnitude of float8_e4m3fn (OCP 8-bit floating point specification)."""


def round_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` correctly rounded to `dtype`, also from float64, where a plain cast would round twice.

    PyTorch narrows float64 to a 16-bit type by way of float32; a value next to the midpoint of two 16-bit
    numbers can then fall on the wrong side. Here the intermediate float32 is rounded to odd, which is
    innocuous (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
    rounding to odd").

    Args:
        x: any shape, floating point.
        dtype: the type wanted; equal to `x.dtype` it is the identity.

    Returns:
        A tensor of the same shape, type `dtype`. Overflow gives infinity, NaN stays NaN.
    """
    if x.dtype == dtype:
        return x
    if x.dtype != torch.float64 or torch.finfo(dtype).bits >= 32:
        return x.to(dtype)
    nearest = x.to(torch.float32)
    widened = nearest.double()
    inexact = (widened != x) & ~x.isnan()
    toward_zero = nearest.view(torch.int32) - (inexact & (widened.abs() > x.abs())).int()
    odd = torch.where(inexact, toward_zero | 1, toward_zero)
    return odd.view(torch.float32).to(dtype)


def quantize_e4m3(x: Tensor, *, scale: float = 1.0, acc_dtype: torch.dtype = torch.float32) -> Tensor:
    """`x / scale` in float8_e4m3fn, values beyond the range pinned to +-448 and NaN kept.

    Args:
        x: any shape, floating point.
        scale: per-tensor scale, dimensionless and positive; the stored code means code x scale.
        acc_dtype: type of the division.

    Returns:
        float8_e4m3fn tensor of the shape of `x`.
    """
    # Explicit, since versions of PyTorch differ in whether the cast itself saturates.
    scaled = (x.to(acc_dtype) / scale).clamp(-E4M3_MAX, E4M3_MAX)
    return round_to(scaled, torch.float8_e4m3fn)
