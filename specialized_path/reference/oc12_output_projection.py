"""OC-12: each rank rounds its partial product once, and the ranks' partials add up in rank order."""

import torch
from torch import Tensor

from specialized_path.reference.oc03_projection import linear
from specialized_path.reference.rounding import round_to


def output_projection_partial(y: Tensor, w_o: Tensor, *, acc_dtype: torch.dtype = torch.float32) -> Tensor:
    """One rank's share of the output projection, rounded once; -0 comes out as +0.

    Args:
        y: [..., H*V], the heads of this rank.
        w_o: [D, H*V], the columns of this rank.
        acc_dtype: type of the sums.

    Returns:
        [..., D] in `y.dtype`.
    """
    return linear(y, w_o, acc_dtype=acc_dtype) + 0.0


def rank_order_sum(partials: Tensor, *, acc_dtype: torch.dtype = torch.float32) -> Tensor:
    """The sum of the ranks' partials, rank 0 first, one after the other, rounded once; never -0.

    One order for all ranks makes the result bit-identical on each of them. It begins at +0 and its terms are multiples
    of the type's smallest number, so it neither is -0 nor underflows to it.

    Args:
        partials: [T, ...], one a rank; the type rounded to.
        acc_dtype: type of the running sum.

    Returns:
        [...] in `partials.dtype`.
    """
    total = torch.zeros_like(partials[0], dtype=acc_dtype)
    for partial in partials:
        total = total + partial.to(acc_dtype)
    return round_to(total, partials.dtype)
