"""OC-18: the shared experts are one gated MLP on the MLP input itself, not on the latent."""

import torch
from torch import Tensor

from specialized_path.reference.situ import gated_mlp_partial


def shared_experts_partial(
    x: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    *,
    beta: float = 4.0,
    linear_beta: float = 25.0,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """One rank's share of the shared experts' output, rounded after gate-up, activation and down.

    Args:
        x: [B, D], the MLP input.
        w_gate_up: [2*I, D], gate rows first.
        w_down: [D, I].
        beta: see `situ`.
        linear_beta: see `situ`.
        acc_dtype: type of the sums and of the activation.

    Returns:
        [B, D] in `x.dtype`; `latent_up_output` adds the ranks' shares.
    """
    return gated_mlp_partial(x, w_gate_up, w_down, beta=beta, linear_beta=linear_beta, acc_dtype=acc_dtype)
