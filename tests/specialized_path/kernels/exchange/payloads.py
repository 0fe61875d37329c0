"""What ranks exchange in tests: inputs and weights whose products, rounded once, are the partials wanted."""

import torch
from torch import Tensor

HIDDEN = 7168
INPUTS = {8: 1536, 16: 768}
"""Columns of a rank's output projection by the number of ranks."""
NAMES = (
    *("normal", "cancelling", "negative zeros", "nearly overflowing", "tiny"),
    *("one rank infinite", "one rank NaN"),
)
_INPUT, _UNDERFLOWS = -(2.0**-67), 2.0**-68


def payload(name: str, num_ranks: int, num_rows: int, device: str = "cuda") -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [N, B, K], weights [N, 7168, K] and partials [N, B, 7168] before -0 is made +0, all BF16.

    Each sum has one term that is not zero, so the partials do not depend on the order of the sums. An infinite or
    NaN weight times the zeros of other rows is NaN: those payloads have one row.
    """
    generator = torch.Generator(device).manual_seed(5)
    partials = torch.randn(num_ranks, num_rows, HIDDEN, generator=generator, device=device).bfloat16()
    scale = 1.0
    factors = partials
    if name == "cancelling":
        partials[1::2] = -partials[0::2]
    elif name == "negative zeros":
        scale = _INPUT
        factors, partials = _negative_zeros(partials)
    elif name == "nearly overflowing":
        partials.fill_(1e38)
    elif name == "tiny":
        factors = partials = (partials.double() * 1e-36).bfloat16()
    elif name != "normal":
        partials[-1, 0, 5] = float({"one rank infinite": "inf", "one rank NaN": "nan"}[name])
        factors = partials = partials[:, :1].contiguous()
    x = torch.zeros(*partials.shape[:2], INPUTS[num_ranks], dtype=torch.bfloat16, device=device)
    weight = torch.zeros(num_ranks, HIDDEN, INPUTS[num_ranks], dtype=torch.bfloat16, device=device)
    for row in range(partials.shape[1]):
        x[:, row, row] = scale
        weight[:, :, row] = factors[:, row]
    return x, weight, partials


def _negative_zeros(partials: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and partials of -0 by underflow, the only -0 that a sum begun at +0 rounds to.

    The first row is all empty words (+0 below -0), the second -0 throughout, the third every other word empty.
    """
    for row, every in ((0, 2), (2, 4)):
        partials[:, row, 0::every], partials[:, row, 1::every] = 0.0, -0.0
    partials[:, 1] = -0.0
    zeros = torch.where(partials.signbit(), _UNDERFLOWS, 0.0)
    return torch.where(partials == 0, zeros, partials.float() / _INPUT).bfloat16(), partials
