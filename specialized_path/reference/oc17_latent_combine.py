"""OC-17: expert outputs are weighted in slot order, reduced over ranks as a latent, and only then normed."""

import torch
from torch import Tensor

from specialized_path.reference.norm import rms_norm
from specialized_path.reference.oc12_output_projection import rank_order_sum
from specialized_path.reference.rounding import round_to


def combine_experts(y: Tensor, topk_weights: Tensor, *, acc_dtype: torch.dtype = torch.float32) -> Tensor:
    """The weighted sum of a rank's expert outputs, slot 0 first, rounded once.

    Args:
        y: [B, top_k, L], rounded expert outputs; the type rounded to.
        topk_weights: [B, top_k].
        acc_dtype: type of products and running sum.

    Returns:
        [B, L] in `y.dtype`.
    """
    total = torch.zeros_like(y[:, 0], dtype=acc_dtype)
    for slot in range(y.shape[1]):
        total = total + topk_weights[:, slot, None].to(acc_dtype) * y[:, slot].to(acc_dtype)
    return round_to(total, y.dtype)


def latent_norm(
    partials: Tensor, norm_weight: Tensor, *, eps: float = 1e-5, acc_dtype: torch.dtype = torch.float32
) -> Tensor:
    """The ranks' combined latents summed in rank order and rounded, then normed and rounded.

    Args:
        partials: [T, B, L], one a rank; the type rounded to.
        norm_weight: [L], the routed-expert norm.
        eps: of the norm.
        acc_dtype: type of sum and norm.

    Returns:
        [B, L] in `partials.dtype`.

    Source: Kimi K3 checkpoint configuration (norm on the latent output).
    """
    reduced = rank_order_sum(partials, acc_dtype=acc_dtype)
    return round_to(rms_norm(reduced, norm_weight, eps=eps, acc_dtype=acc_dtype), partials.dtype)
