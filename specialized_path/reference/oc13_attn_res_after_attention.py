"""OC-13: what the MLP reads is the normalised mixture after attention's output joined the prefix."""

import torch
from torch import Tensor

from specialized_path.reference.attn_res import add_to_prefix, mix_sources
from specialized_path.reference.norm import rms_norm
from specialized_path.reference.rounding import round_to


def attn_res_after_attention(
    prefix: Tensor,
    blocks: Tensor,
    attn_out: Tensor,
    res_norm_weight: Tensor,
    res_proj_weight: Tensor,
    post_norm_weight: Tensor,
    *,
    layer_idx: int,
    block_size: int = 12,
    eps: float = 1e-5,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Starts a new prefix on a block-write layer, otherwise adds to it, and gives the MLP input.

    On a layer whose index is a multiple of `block_size` the old prefix already is a block, so the new prefix
    is `attn_out` alone. Sources are blocks `0 ... layer_idx // block_size` and the new prefix.

    Args:
        prefix: [B, D], as `attn_res_before_attention` returned it.
        blocks: [B, N, D], only read.
        attn_out: [B, D], the reduced output projection.
        res_norm_weight: [D], of the MLP's mixture.
        res_proj_weight: [D], of the MLP's mixture.
        post_norm_weight: [D], weight of the norm on the mixture.
        layer_idx: index of the layer from 0.
        block_size: layers in a block.
        eps: of both norms.
        acc_dtype: type of sums, norms and softmax.

    Returns:
        The MLP input [B, D] and the new prefix [B, D], both in `prefix.dtype`.

    Source: Kimi team, "Attention Residuals"; block size from the Kimi K3 checkpoint configuration.
    """
    if layer_idx % block_size == 0:
        prefix = round_to(attn_out, prefix.dtype)
    else:
        prefix = add_to_prefix(prefix, attn_out, acc_dtype=acc_dtype)
    mixture = mix_sources(
        prefix,
        blocks,
        layer_idx // block_size + 1,
        res_norm_weight,
        res_proj_weight,
        eps=eps,
        acc_dtype=acc_dtype,
    )
    normed = rms_norm(mixture, post_norm_weight, eps=eps, acc_dtype=acc_dtype)
    return round_to(normed, prefix.dtype), prefix
