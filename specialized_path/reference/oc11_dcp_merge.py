"""OC-11: attention over tokens spread across ranks is the LSE-weighted sum of the ranks' attentions."""

import torch
from torch import Tensor

from specialized_path.reference.rounding import round_to


def dcp_local_lens(global_lens: Tensor, *, rank: int, world_size: int, interleave: int = 1) -> Tensor:
    """How many of the first n tokens live on a rank, when token i lives on rank `(i // interleave) % world_size`.

    A rank keeps its tokens in order, so applied to `visible_lens` it gives the rows that each query row sees
    in the rank's own cache: the causal limit is a global position, even where the local share is short.

    Args:
        global_lens: any shape, integer, token counts n.
        rank: 0 ... world_size-1.
        world_size: ranks that share a request's cache.
        interleave: consecutive tokens on one rank.

    Returns:
        The shape of `global_lens`, int64.
    """
    lens = global_lens.long()
    whole, rest = lens // (interleave * world_size), lens % (interleave * world_size)
    return whole * interleave + (rest - rank * interleave).clamp(0, interleave)


def dcp_merge(
    latents: Tensor, lse: Tensor, *, empty_lse: float = -3e38, acc_dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """The attention over all shards, from each shard's latent and base-2 LSE, summed in rank order, rounded once.

    A shard whose LSE is NaN, infinite or near `empty_lse` counts as empty: weight zero, its latent not read.

    Args:
        latents: [T, ..., H, C], one a rank; the type rounded to.
        lse: [T, ..., H], base 2.
        empty_lse: the finite value that stands for an empty shard; anything below half of it is taken as
            empty.
        acc_dtype: type of weights and sums.

    Returns:
        Latents [..., H, C] in `latents.dtype` and the merged LSE [..., H] in `acc_dtype`, base 2. Where every
        shard is empty: zero and `empty_lse`.

    Source: Dao et al., "Flash-Decoding" (merging partial softmaxes).
    """
    wide = lse.to(acc_dtype)
    empty = ~wide.isfinite() | (wide < empty_lse / 2)
    wide = torch.where(empty, empty_lse, wide)
    peak = wide.amax(dim=0)
    weight = torch.where(empty, 0, torch.exp2(wide - peak))
    total, merged = torch.zeros_like(weight[0]), torch.zeros_like(latents[0], dtype=acc_dtype)
    for rank_weight in weight:
        total = total + rank_weight
    divisor = torch.where(total > 0, total, 1)
    for rank_weight, rank_latent, rank_empty in zip(weight, latents, empty, strict=True):
        term = (rank_weight / divisor).unsqueeze(-1) * rank_latent.to(acc_dtype)
        merged = merged + torch.where(rank_empty.unsqueeze(-1), 0, term)
    merged_lse = torch.where(total > 0, peak + torch.log2(divisor), empty_lse)
    return round_to(merged, latents.dtype), merged_lse
