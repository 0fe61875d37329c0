"""OC-1: a vocabulary shard embeds the ids it owns and gives zero for every other id."""

import torch
from torch import Tensor


def embedding(token_ids: Tensor, weight: Tensor, *, vocab_start: int = 0) -> Tensor:
    """Rows of `weight` at `token_ids - vocab_start`; zero where the id is not of this shard.

    The sum over the shards (`rank_order_sum`) is exact, since at most one term is not zero.

    Args:
        token_ids: [B] int32 or int64, any value (padding may hold -1 or a stale id).
        weight: [V_local, D], the vocabulary rows `vocab_start ... vocab_start + V_local - 1`.
        vocab_start: first id of this shard.

    Returns:
        [B, D] in `weight.dtype`, the bits of the table.
    """
    row = token_ids.long() - vocab_start
    owned = (row >= 0) & (row < weight.shape[0])
    rows = weight[torch.where(owned, row, 0)]
    return torch.where(owned.unsqueeze(-1), rows, 0)
