"""Root-mean-square normalisation is one formula, shared by every contract that normalises."""

import torch
from torch import Tensor


def rms_norm(
    x: Tensor, weight: Tensor, *, eps: float = 1e-5, acc_dtype: torch.dtype = torch.float32
) -> Tensor:
    """`x * rsqrt(mean(x^2) + eps) * weight` over the last dimension, not rounded.

    Args:
        x: [..., D], floating point.
        weight: [D].
        eps: added to the mean square, in squared units of `x`.
        acc_dtype: type of the arithmetic and of the result.

    Returns:
        [..., D] in `acc_dtype`; the caller rounds where its contract rounds.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization"; eps from the Kimi K3 checkpoint
    configuration (`rms_norm_eps`).
    """
    wide = x.to(acc_dtype)
    mean_square = wide.square().mean(dim=-1, keepdim=True)
    return wide * torch.rsqrt(mean_square + eps) * weight.to(acc_dtype)
