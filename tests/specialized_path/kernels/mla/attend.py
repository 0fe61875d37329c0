"""Attention on a case's inputs, into poisoned outputs and a poisoned workspace."""

import torch
from torch import Tensor

from specialized_path.kernels.mla.cases import AttentionInputs
from specialized_path.kernels.mla.launch import (
    AttentionScale,
    PartialAttention,
    allocate_partial,
    mla_attention,
)

NAN = float("nan")
QUERY_SCALE = AttentionScale(query=0.5, cache=0.25)
"""What the query side's tests store e4m3 codes over."""


def scale_for(dtype: torch.dtype) -> AttentionScale:
    return AttentionScale() if dtype == torch.bfloat16 else AttentionScale(query=0.5, cache=1.25)


def workspace(inputs: AttentionInputs, max_context: int = 131072) -> PartialAttention:
    """Poisoned, as an earlier layer might leave it."""
    num_reqs, num_tokens, num_heads, _ = inputs.query.shape
    partial = allocate_partial(num_reqs, num_tokens, num_heads, max_context, inputs.query.device)
    partial.sums.fill_(NAN)
    partial.max_and_sum.fill_(NAN)
    return partial


def attend(inputs: AttentionInputs, max_context: int = 131072, **options: object) -> tuple[Tensor, Tensor]:
    rows = inputs.query.shape[:3]
    out = torch.full((*rows, 512), NAN, dtype=torch.bfloat16, device="cuda")
    lse = torch.full(rows, NAN, device="cuda")
    options = {"scale": scale_for(inputs.query.dtype), "partial": workspace(inputs, max_context)} | options
    return mla_attention(
        inputs.query, inputs.kv_cache, inputs.block_table, inputs.seq_lens, out=out, lse=lse, **options
    )
