"""OC-21: the last mixture is rounded before the final norm; the lowest id wins a tie between logits."""

import torch
from torch import Tensor

from specialized_path.reference.attn_res import add_to_prefix, mix_sources
from specialized_path.reference.norm import rms_norm
from specialized_path.reference.oc03_projection import linear
from specialized_path.reference.rounding import round_to


def attn_res_output(
    prefix: Tensor,
    blocks: Tensor,
    delta: Tensor,
    res_norm_weight: Tensor,
    res_proj_weight: Tensor,
    final_norm_weight: Tensor,
    *,
    num_blocks: int | None = None,
    eps: float = 1e-5,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """The hidden state that the LM head reads: mixture of all blocks and the prefix, rounded, then normed.

    Args:
        prefix: [B, D].
        blocks: [B, N, D], only read.
        delta: [B, D], MLP output of the last layer.
        res_norm_weight: [D], of the output mixture.
        res_proj_weight: [D], of the output mixture.
        final_norm_weight: [D].
        num_blocks: blocks written by the model's layers, `ceil(num_layers / block_size)`; None means all N.
        eps: of both norms.
        acc_dtype: type of sums, norms and softmax.

    Returns:
        The hidden state [B, D] and the final prefix [B, D], both in `prefix.dtype`.

    Source: Kimi team, "Attention Residuals".
    """
    prefix = add_to_prefix(prefix, delta, acc_dtype=acc_dtype)
    count = blocks.shape[1] if num_blocks is None else num_blocks
    mixture = mix_sources(
        prefix, blocks, count, res_norm_weight, res_proj_weight, eps=eps, acc_dtype=acc_dtype
    )
    rounded = round_to(mixture, prefix.dtype)
    normed = rms_norm(rounded, final_norm_weight, eps=eps, acc_dtype=acc_dtype)
    return round_to(normed, prefix.dtype), prefix


def output_logits(
    hidden: Tensor,
    lm_head_weight: Tensor,
    *,
    acc_dtype: torch.dtype = torch.float32,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Logits of a vocabulary shard, rounded once; shards concatenate in rank order.

    Args:
        hidden: [B, D].
        lm_head_weight: [V_local, D].
        acc_dtype: type of the sums.
        out_dtype: type rounded to; None means `hidden.dtype`.

    Returns:
        [B, V_local].
    """
    return linear(hidden, lm_head_weight, acc_dtype=acc_dtype, out_dtype=out_dtype)


def greedy_token(logits: Tensor) -> Tensor:
    """The id of the largest logit, the lowest id on a tie, never an id outside the vocabulary.

    NaN counts as -infinity, so a row of NaN gives id 0.

    Args:
        logits: [..., V], V >= 1.

    Returns:
        [...] int64 in 0 ... V-1.
    """
    return torch.where(logits.isnan(), float("-inf"), logits).argmax(dim=-1)
