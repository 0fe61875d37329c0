"""RMS normalisation over the last dimension, in float32 whatever the model's dtype."""

import torch
from torch import Tensor, nn


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Returns x / rms(x) * weight, rounded once to the dtype of `weight`.

    Args:
        x: [..., n], any float dtype.
        weight: [n].
        eps: Added to the mean square.
    """
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(weight.dtype)


class RmsNorm(nn.Module):
    """A normalisation weight under its checkpoint name, with its eps."""

    def __init__(self, size: int, eps: float, dtype: torch.dtype) -> None:
        """Holds `size` weights of the given dtype."""
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last dimension of `x`."""
        return rms_norm(x, self.weight, self.eps)
