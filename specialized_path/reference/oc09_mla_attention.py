"""OC-9: absorbed MLA attends from every head to one shared cached row a token, causal among the new rows."""

import math

import torch
from torch import Tensor

from specialized_path.reference.rounding import round_to

_LOG2E = 1.0 / math.log(2.0)


def mla_attention(
    query: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    kv_lora_rank: int,
    scale: float,
    query_lens: Tensor | None = None,
    q_scale: float = 1.0,
    k_scale: float = 1.0,
    out_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Softmax attention of the q newest rows of each request over its paged cache, which already holds them.

    Of n new rows, row t sees cached rows `j < seq_len - (n-1-t)`. A row that sees nothing gives zero and an
    LSE of -infinity. Pages and offsets past a request's length are never used, whatever they hold.

    Args:
        query: [B, q, H, R], absorbed query rows; floating point or float8_e4m3fn.
        kv_cache: [pages, P, R], any strides; floating point or float8_e4m3fn.
        block_table: [B, max_pages] int32 or int64; entries past the length may be garbage.
        seq_lens: [B], cached tokens including the new rows; 0 for padding.
        kv_lora_rank: leading columns of a cached row that are the value.
        scale: factor on the scores, (nope + rope)^-1/2 for Kimi K3.
        query_lens: [B], new rows n of each request, 0 ... q; rows from there on give zero. None means q.
        q_scale: scale of a quantised query.
        k_scale: scale of a quantised cache, for keys and values.
        out_dtype: type rounded to; None means `query.dtype`, or bfloat16 for a float8 query.
        acc_dtype: type of scores, softmax and sums.

    Returns:
        Latents [B, q, H, kv_lora_rank], rounded once, and LSE [B, q, H] in `acc_dtype`, base 2.

    Raises:
        ValueError: a length needs more pages than `block_table` has.

    Source: DeepSeek-AI, "DeepSeek-V2" (weight absorption); Dao, "FlashAttention" (LSE).
    """
    visible = visible_lens(seq_lens, query.shape[1], query_lens=query_lens)
    return mla_attention_visible(
        query,
        kv_cache,
        block_table,
        visible,
        kv_lora_rank=kv_lora_rank,
        scale=scale,
        q_scale=q_scale,
        k_scale=k_scale,
        out_dtype=out_dtype,
        acc_dtype=acc_dtype,
    )


def visible_lens(seq_lens: Tensor, num_tokens: int, *, query_lens: Tensor | None = None) -> Tensor:
    """Cached rows that each new row sees: `seq_len - (n-1-t)` for row t of n, never negative, zero from row n on.

    Args:
        seq_lens: [B].
        num_tokens: rows q of the step.
        query_lens: [B], new rows n of each request; None means q.

    Returns:
        [B, q] int64.
    """
    steps = torch.arange(num_tokens, device=seq_lens.device)
    lens = torch.full_like(seq_lens, num_tokens) if query_lens is None else query_lens
    lens = lens.long().unsqueeze(1)
    visible = (seq_lens.long().unsqueeze(1) - (lens - 1 - steps)).clamp_min(0)
    return torch.where(steps < lens, visible, 0)


def mla_attention_visible(
    query: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    visible: Tensor,
    *,
    kv_lora_rank: int,
    scale: float,
    q_scale: float = 1.0,
    k_scale: float = 1.0,
    out_dtype: torch.dtype | None = None,
    acc_dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """The attention core with the number of visible cached rows given for each query row.

    It is what a rank of decode-context parallelism runs, whose visible rows are its own share
    (`dcp_local_lens`).

    Args:
        query: [B, q, H, R].
        kv_cache: [pages, P, R].
        block_table: [B, max_pages].
        visible: [B, q], row t sees cached rows `j < visible[b, t]`.
        kv_lora_rank: leading columns of a cached row that are the value.
        scale: factor on the scores.
        q_scale: scale of a quantised query.
        k_scale: scale of a quantised cache.
        out_dtype: as in `mla_attention`.
        acc_dtype: type of scores, softmax and sums.

    Returns:
        Latents [B, q, H, kv_lora_rank], rounded once, and LSE [B, q, H] in `acc_dtype`, base 2.

    Raises:
        ValueError: a length needs more pages than `block_table` has.
    """
    if out_dtype is None:
        out_dtype = torch.bfloat16 if query.dtype == torch.float8_e4m3fn else query.dtype
    latents, lses = [], []
    for t in range(query.shape[1]):
        rows, seen = _gather_rows(kv_cache, block_table, visible[:, t], acc_dtype)
        scores = torch.bmm(query[:, t].to(acc_dtype), rows.transpose(1, 2)) * (scale * q_scale * k_scale)
        scores = scores.masked_fill(~seen.unsqueeze(1), -math.inf)
        some = seen.any(dim=1)[:, None, None]
        peak = torch.where(some, scores.amax(dim=-1, keepdim=True), 0)
        probs = torch.exp(scores - peak)
        total = probs.sum(dim=-1, keepdim=True)
        latent = torch.bmm(probs, rows[:, :, :kv_lora_rank]) / total * k_scale
        latents.append(round_to(torch.where(some, latent, 0), out_dtype))
        lses.append(torch.where(some, peak * _LOG2E + torch.log2(total), -math.inf).squeeze(-1))
    return torch.stack(latents, dim=1), torch.stack(lses, dim=1)


def _gather_rows(
    kv_cache: Tensor, block_table: Tensor, lens: Tensor, acc_dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The first rows of each request [B, J, R], zero past its length, and the mask [B, J] of those within."""
    page_size = kv_cache.shape[1]
    longest = max([1, *lens.tolist()])
    num_pages = -(-longest // page_size)
    if num_pages > block_table.shape[1]:
        raise ValueError(f"block_table columns: got {block_table.shape[1]}, expected at least {num_pages}")
    first = torch.arange(num_pages, device=lens.device) * page_size
    pages = torch.where(first < lens.unsqueeze(1), block_table[:, :num_pages].long(), 0)
    rows = kv_cache[pages].flatten(1, 2)[:, :longest].to(acc_dtype)
    seen = torch.arange(longest, device=lens.device) < lens.unsqueeze(1)
    rows[~seen] = 0
    return rows, seen
