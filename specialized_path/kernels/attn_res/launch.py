"""Attention residuals on PyTorch tensors: checks what it gets, picks the variant, launches it.

All tensors are BF16 and on one GPU. Weights are [7168]; rows are [B, 7168] with 1 <= B <= 64. Finished blocks must have
been written two or more launches back, in a chain whose kernels trigger after their own wait: they are read above it.
Outputs that are None are allocated; give them inside a CUDA graph. `use_pdl` starts the kernel before the one in front
has completed. A shape, type, device or stride that is not as said raises ValueError.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specialized_path.kernels.attn_res.variants import HIDDEN, MAX_BATCH, AttnResVariant, Update, find_variant
from specialized_path.kernels.common.checks import require, require_batch, require_rows

BLOCK_SIZE = 12


def attn_res_before_attention(
    prefix: Tensor,
    blocks: Tensor,
    delta: Tensor | None,
    res_norm_weight: Tensor,
    res_proj_weight: Tensor,
    input_norm_weight: Tensor,
    *,
    layer_idx: int,
    out: Tensor | None = None,
    prefix_out: Tensor | None = None,
    aux_out: Tensor | None = None,
    use_pdl: bool = True,
) -> tuple[Tensor, Tensor]:
    """OC-2: the attention input and the new prefix; a block-write layer also fills `blocks[:, layer_idx // 12]`.

    Args:
        prefix: rows; at layer 0 the embedding.
        blocks: [B, N, 7168], strides of rows and blocks any multiples of 8 elements.
        delta: rows, the MLP output of the layer before; None at layer 0.
        res_norm_weight, res_proj_weight, input_norm_weight: weights.
        layer_idx: from 0.
        out, prefix_out: rows; `prefix_out` may be `prefix`.
        aux_out: rows of any stride that also get the new prefix (a drafter's stream).
        use_pdl: see above.
    """
    is_write = layer_idx % BLOCK_SIZE == 0
    return _run(
        prefix,
        blocks,
        delta,
        (res_norm_weight, res_proj_weight, input_norm_weight),
        (out, prefix_out, blocks[:, layer_idx // BLOCK_SIZE] if is_write else None, aux_out),
        find_variant(-(-layer_idx // BLOCK_SIZE), "keep" if delta is None else "add"),
        use_pdl,
    )


def attn_res_after_attention(
    prefix: Tensor,
    blocks: Tensor,
    attn_out: Tensor,
    res_norm_weight: Tensor,
    res_proj_weight: Tensor,
    post_norm_weight: Tensor,
    *,
    layer_idx: int,
    out: Tensor | None = None,
    prefix_out: Tensor | None = None,
    use_pdl: bool = True,
) -> tuple[Tensor, Tensor]:
    """OC-13: the MLP input and the new prefix, which on a block-write layer is `attn_out` alone; arguments as above."""
    update: Update = "replace" if layer_idx % BLOCK_SIZE == 0 else "add"
    return _run(
        prefix,
        blocks,
        attn_out,
        (res_norm_weight, res_proj_weight, post_norm_weight),
        (out, prefix_out, None, None),
        find_variant(layer_idx // BLOCK_SIZE + 1, update),
        use_pdl,
    )


def attn_res_output(
    prefix: Tensor,
    blocks: Tensor,
    delta: Tensor,
    res_norm_weight: Tensor,
    res_proj_weight: Tensor,
    final_norm_weight: Tensor,
    *,
    out: Tensor | None = None,
    prefix_out: Tensor | None = None,
    use_pdl: bool = True,
) -> tuple[Tensor, Tensor]:
    """OC-21: the hidden state that the LM head reads, and the final prefix; `blocks` has the model's eight."""
    return _run(
        prefix,
        blocks,
        delta,
        (res_norm_weight, res_proj_weight, final_norm_weight),
        (out, prefix_out, None, None),
        find_variant(blocks.shape[1], "add", rounds_mixture=True),
        use_pdl,
    )


def _run(
    prefix: Tensor,
    blocks: Tensor,
    delta: Tensor | None,
    weights: tuple[Tensor, Tensor, Tensor],
    outputs: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None],
    variant: AttnResVariant,
    use_pdl: bool,
) -> tuple[Tensor, Tensor]:
    out = torch.empty_like(prefix) if outputs[0] is None else outputs[0]
    prefix_out = torch.empty_like(prefix) if outputs[1] is None else outputs[1]
    block_out, aux_out = outputs[2:]
    _check(prefix, blocks, delta, weights, (out, prefix_out, block_out, aux_out), variant.num_blocks)
    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import current_stream, pointer

    strides = [
        blocks.stride(0),
        blocks.stride(1),
        *(0 if t is None else t.stride(0) for t in (block_out, aux_out)),
    ]
    variant.kernel.run(
        *(pointer(t) for t in (prefix, delta, blocks, *weights, out, prefix_out, block_out, aux_out)),
        *(Int64(stride * prefix.element_size()) for stride in strides),
        Int32(prefix.shape[0]),
        Int32(use_pdl),
        current_stream(prefix.device),
    )
    return out, prefix_out


def _check(
    prefix: Tensor,
    blocks: Tensor,
    delta: Tensor | None,
    weights: tuple[Tensor, Tensor, Tensor],
    outputs: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    num_blocks: int,
) -> None:
    rows = (prefix.shape[0], HIDDEN)
    require_batch(prefix.shape[0], MAX_BATCH)
    for name, tensor in (
        ("prefix", prefix),
        ("delta", delta),
        ("out", outputs[0]),
        ("prefix_out", outputs[1]),
    ):
        if tensor is not None:
            require(name, tensor, rows)
    for name, tensor in zip(("res_norm_weight", "res_proj_weight", "norm_weight"), weights, strict=True):
        require(name, tensor, (HIDDEN,))
    require_rows("blocks", blocks, (prefix.shape[0], blocks.shape[1], HIDDEN))
    if blocks.shape[1] < num_blocks:
        raise ValueError(f"blocks: got {blocks.shape[1]} a row, expected at least {num_blocks}")
    for name, tensor in (("block_out", outputs[2]), ("aux_out", outputs[3])):
        if tensor is not None:
            require_rows(name, tensor, rows)
