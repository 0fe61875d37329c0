"""OC-20: the first layer's MLP is dense, with the same activation and roundings as the shared experts."""

import torch
from torch import Tensor

from specialized_path.reference.situ import gated_mlp_partial


def dense_mlp_partial(
    x: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    *,
    beta: float = 4.0,
    linear_beta: float = 25.0,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """One rank's share of the dense MLP; `rank_order_sum` of the shares is the layer's output.

    Args:
        x: [B, D], the MLP input.
        w_gate_up: [2*I, D], gate rows first.
        w_down: [D, I].
        beta: see `situ`.
        linear_beta: see `situ`.
        acc_dtype: type of the sums and of the activation.

    Returns:
        [B, D] in `x.dtype`.
    """
    return gated_mlp_partial(x, w_gate_up, w_down, beta=beta, linear_beta=linear_beta, acc_dtype=acc_dtype)
