"""OC-15: experts work on a latent that is a plain projection of the MLP input, without a norm."""

import torch
from torch import Tensor

from specialized_path.reference.oc03_projection import linear


def latent_down(x: Tensor, w_down: Tensor, *, acc_dtype: torch.dtype = torch.float32) -> Tensor:
    """The latent, rounded once; row shards of `w_down` give shards that concatenate in rank order.

    Args:
        x: [B, D].
        w_down: [L, D] or a row shard.
        acc_dtype: type of the sums.

    Returns:
        [B, L] in `x.dtype`.

    Source: Kimi K3 checkpoint configuration (latent experts).
    """
    return linear(x, w_down, acc_dtype=acc_dtype)
