"""OC-2: what attention reads is the normalised mixture of the finished blocks and the updated prefix."""

import torch
from torch import Tensor

from specialized_path.reference.attn_res import add_to_prefix, mix_sources
from specialized_path.reference.norm import rms_norm
from specialized_path.reference.rounding import round_to


def attn_res_before_attention(
    prefix: Tensor,
    blocks: Tensor,
    delta: Tensor | None,
    res_norm_weight: Tensor,
    res_proj_weight: Tensor,
    input_norm_weight: Tensor,
    *,
    layer_idx: int,
    block_size: int = 12,
    eps: float = 1e-5,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Updates the prefix with the last MLP output, stores a finished block, and gives the attention input.

    On a layer whose index is a multiple of `block_size` the updated prefix is written to
    `blocks[:, layer_idx // block_size]`, in place; it is not counted a second time as a source. Sources are
    the `ceil(layer_idx / block_size)` earlier blocks and the prefix.

    Args:
        prefix: [B, D], the running sum; at layer 0 the embedding.
        blocks: [B, N, D], written in place on block-write layers; columns not yet complete may hold anything.
        delta: [B, D], MLP output of the layer before; None at layer 0.
        res_norm_weight: [D].
        res_proj_weight: [D].
        input_norm_weight: [D], weight of the norm on the mixture.
        layer_idx: index of the layer from 0.
        block_size: layers in a block.
        eps: of both norms.
        acc_dtype: type of sums, norms and softmax.

    Returns:
        The attention input [B, D] and the updated prefix [B, D], both in `prefix.dtype`.

    Source: Kimi team, "Attention Residuals"; block size from the Kimi K3 checkpoint configuration.
    """
    prefix = add_to_prefix(prefix, delta, acc_dtype=acc_dtype)
    if layer_idx % block_size == 0:
        blocks[:, layer_idx // block_size] = prefix
    mixture = mix_sources(
        prefix,
        blocks,
        -(-layer_idx // block_size),
        res_norm_weight,
        res_proj_weight,
        eps=eps,
        acc_dtype=acc_dtype,
    )
    normed = rms_norm(mixture, input_norm_weight, eps=eps, acc_dtype=acc_dtype)
    return round_to(normed, prefix.dtype), prefix
