"""The embedding on PyTorch tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from specialized_path.kernels.common.checks import require, require_batch
from specialized_path.kernels.embedding.variants import MAX_TOKENS, variant_of

_HIDDEN = 7168


def embed(
    token_ids: Tensor,
    weight: Tensor,
    *,
    vocab_start: int = 0,
    out: Tensor | None = None,
    use_pdl: bool = True,
) -> Tensor:
    """Rows of a shard of the vocabulary, zero for ids that are not of it: OC-1.

    Args:
        token_ids: [B] int32 or int64, contiguous, any values, 1 <= B <= 64.
        weight: [V, 7168] BF16, contiguous, the rows from `vocab_start` on; nothing on the stream may still be writing
            it.
        vocab_start: first id of the shard.
        out: [B, 7168] BF16; allocated when None. Give it inside a CUDA graph.
        use_pdl: launch before the kernel in front has completed.

    Raises:
        ValueError: a shape, type, device or stride is not as above.
    """
    rows, dtype = token_ids.shape[0], token_ids.dtype
    require_batch(rows, MAX_TOKENS)
    if dtype not in (torch.int32, torch.int64):
        raise ValueError(f"token_ids: got {dtype}, expected torch.int32 or torch.int64")
    out = weight.new_empty(rows, _HIDDEN) if out is None else out
    require("token_ids", token_ids, (rows,), dtype)
    require("weight", weight, (weight.shape[0], _HIDDEN))
    require("out", out, (rows, _HIDDEN))
    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import current_stream, pointer

    variant_of(dtype).run(
        *(pointer(t) for t in (token_ids, weight, out)),
        Int32(rows),
        Int64(vocab_start),
        Int64(weight.shape[0]),
        Int32(use_pdl),
        current_stream(weight.device),
    )
    return out
