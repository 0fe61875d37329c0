"""OC-19: the layer's output is the up-projected latent plus the shared experts' sum over ranks."""

import torch
from torch import Tensor

from specialized_path.reference.oc03_projection import linear
from specialized_path.reference.oc12_output_projection import rank_order_sum
from specialized_path.reference.rounding import round_to


def latent_up_output(
    latent: Tensor, w_up: Tensor, shared_partials: Tensor, *, acc_dtype: torch.dtype = torch.float32
) -> Tensor:
    """The MoE layer's output: the rounded up-projection plus the wide sum of shared partials, rounded.

    For a row shard of `w_up` pass the same columns of the shared partials; shards concatenate in rank order.

    Args:
        latent: [B, L], normed.
        w_up: [D, L] or a row shard; D_local rows.
        shared_partials: [T, B, D_local], one a rank.
        acc_dtype: type of the sums.

    Returns:
        [B, D_local] in `latent.dtype`, the delta that the next layer adds to the prefix.

    Source: Kimi K3 checkpoint configuration (latent experts, shared experts).
    """
    up = linear(latent, w_up, acc_dtype=acc_dtype)
    shared = rank_order_sum(shared_partials.to(acc_dtype), acc_dtype=acc_dtype)
    return round_to(up.to(acc_dtype) + shared, latent.dtype)
