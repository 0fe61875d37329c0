"""Attention residuals mix the prefix with completed blocks by softmax; three contracts share this core."""

import torch
from torch import Tensor

from specialized_path.reference.rounding import round_to


def mix_sources(
    prefix: Tensor,
    blocks: Tensor,
    num_blocks: int,
    res_norm_weight: Tensor,
    res_proj_weight: Tensor,
    *,
    eps: float = 1e-5,
    acc_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Softmax mixture of the first `num_blocks` blocks and the prefix, scored by a learned query.

    Source j scores `sum_d(v_jd * norm_d * proj_d) * rsqrt(mean(v_j^2) + eps)`; the mixture is of the sources
    themselves, not of their normalised forms. Blocks from `num_blocks` on are never read.

    Args:
        prefix: [B, D].
        blocks: [B, N, D] with N >= num_blocks.
        num_blocks: completed blocks that are visible; 0 gives the prefix itself.
        res_norm_weight: [D], weight of the norm on the sources.
        res_proj_weight: [D], the learned query.
        eps: added to the mean square.
        acc_dtype: type of scores, softmax and mixture, and of the result.

    Returns:
        [B, D] in `acc_dtype`, not rounded.

    Raises:
        ValueError: `num_blocks` is negative or greater than N.

    Source: Kimi team, "Attention Residuals"; eps from the Kimi K3 checkpoint configuration.
    """
    if not 0 <= num_blocks <= blocks.shape[1]:
        raise ValueError(f"num_blocks: got {num_blocks}, expected 0 ... {blocks.shape[1]}")
    sources = torch.cat([blocks[:, :num_blocks], prefix.unsqueeze(1)], dim=1).to(acc_dtype)
    query = res_norm_weight.to(acc_dtype) * res_proj_weight.to(acc_dtype)
    inverse_rms = torch.rsqrt(sources.square().mean(dim=-1) + eps)
    probs = torch.softmax((sources @ query) * inverse_rms, dim=1)
    return torch.bmm(probs.unsqueeze(1), sources).squeeze(1)


def add_to_prefix(prefix: Tensor, delta: Tensor | None, *, acc_dtype: torch.dtype = torch.float32) -> Tensor:
    """The prefix plus a layer's output, rounded once to the type of the prefix; without `delta`, the prefix.

    Args:
        prefix: [B, D].
        delta: [B, D] or None (nothing to add).
        acc_dtype: type of the sum.

    Returns:
        [B, D] in `prefix.dtype`.
    """
    if delta is None:
        return prefix
    return round_to(prefix.to(acc_dtype) + delta.to(acc_dtype), prefix.dtype)
