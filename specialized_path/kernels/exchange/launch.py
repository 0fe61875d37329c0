"""The steps of an exchange on PyTorch tensors: each checks what it gets, picks the variant, launches it.

Rows and weights are BF16 on one GPU. A kernel that takes from a box gives up after `polls` looks at what has not come
(a look takes half a microsecond or more): its rank's error word then says 1 + the rank awaited, and the rows are NaN.
After that the boxes hold what came late: empty them when all ranks have stopped.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specialized_path.kernels.attn_res.launch import BLOCK_SIZE
from specialized_path.kernels.attn_res.variants import HIDDEN, MAX_BATCH
from specialized_path.kernels.common.checks import require, require_batch, require_rows
from specialized_path.kernels.exchange.variants import consume_variant, publish_variant, reduce_variant

DEFAULT_POLLS = 1 << 24
"""Some ten seconds."""


def publish_projection(
    x: Tensor, weight: Tensor, table: Tensor, *, is_two_shot: bool = False, use_pdl: bool = True
) -> None:
    """The projection of this rank's heads, its rounded rows stored into the boxes of all ranks.

    Args:
        x: [B, K], contiguous, 1 <= B <= 64.
        weight: [7168, K], contiguous; an o_proj of the projections' shapes. It is read before the kernel in front has
            completed.
        table: [N] int64, where this rank's rows begin in every rank's box, for one copy (`make_table`).
        is_two_shot: whether each column chunk goes into its owner's chunk box only.
        use_pdl: starts the kernel before the one in front has completed.

    Raises:
        ValueError: a shape, type or device is not as said.
    """
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    num_ranks, num_inputs = table.shape[0], weight.shape[-1]
    variant = publish_variant(num_inputs, x.shape[0], num_ranks, is_two_shot)
    require("x", x, (x.shape[0], num_inputs))
    require("weight", weight, (HIDDEN, num_inputs))
    require("table", table, (num_ranks,), torch.int64)
    if HIDDEN % (8 * num_ranks):
        raise ValueError(f"exchange: got {num_ranks} ranks, expected a divisor of {HIDDEN // 8}")
    variant.run(
        pointer(x),
        pointer(weight),
        pointer(table),
        Int32(x.shape[0]),
        Int32(use_pdl),
        current_stream(x.device),
    )


def reduce_chunks(
    chunks: Tensor,
    table: Tensor,
    error: Tensor,
    *,
    num_rows: int,
    polls: int = DEFAULT_POLLS,
    use_pdl: bool = True,
) -> None:
    """The second step of a two-shot exchange: adds this rank's column chunk and stores the sum into every box.

    Args:
        chunks: [N, max_rows, 7168 / N], one copy of this rank's chunk box; is empty again afterwards. The emptying may
            arrive behind the sum, so chunk boxes have copies by `copy_schedule`, as result boxes have.
        table: [N] int64, where this rank's rows begin in every rank's result box, for one copy.
        error: [1] int32.
        num_rows: rows of the step.
        polls: see above.
        use_pdl: starts the kernel before the one in front has completed.

    Raises:
        ValueError: a shape, type or device is not as said.
    """
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    num_ranks, max_rows = chunks.shape[0], chunks.shape[1]
    require("chunks", chunks, (num_ranks, max_rows, HIDDEN // num_ranks))
    require("table", table, (num_ranks,), torch.int64)
    require("error", error, (1,), torch.int32)
    require_batch(num_rows, max_rows)
    reduce_variant(num_ranks, max_rows).run(
        pointer(chunks),
        pointer(table),
        pointer(error),
        Int32(num_rows),
        Int32(polls),
        Int32(use_pdl),
        current_stream(chunks.device),
    )


def attn_res_after_exchange(
    prefix: Tensor,
    blocks: Tensor,
    box: Tensor,
    res_norm_weight: Tensor,
    res_proj_weight: Tensor,
    post_norm_weight: Tensor,
    error: Tensor,
    *,
    layer_idx: int,
    is_two_shot: bool = False,
    out: Tensor | None = None,
    prefix_out: Tensor | None = None,
    polls: int = DEFAULT_POLLS,
    use_pdl: bool = True,
) -> tuple[Tensor, Tensor]:
    """OC-13 with its attention output out of a box (OC-12): the MLP input and the new prefix.

    Args:
        prefix: [L * B, 7168], the rows of L ranks, rank by rank; L is 1 outside of tests.
        blocks: [L * B, n, 7168], as for the attention residual.
        box: [L, N, max_rows, width], one copy of each of these ranks' boxes, any distance apart; width is 7168, or of
            a two-shot exchange 7168 / N. What is taken is empty again afterwards.
        res_norm_weight, res_proj_weight, post_norm_weight: [7168].
        error: [L] int32.
        layer_idx: from 0.
        is_two_shot: whether the box holds the owners' sums.
        out, prefix_out: rows; None allocates them; give them inside a CUDA graph.
        polls: see above.
        use_pdl: starts the kernel before the one in front has completed.

    Raises:
        ValueError: a shape, type, device or stride is not as said.
    """
    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import current_stream, pointer

    num_local, num_ranks, max_rows = box.shape[:3]
    num_rows = prefix.shape[0]
    out = torch.empty_like(prefix) if out is None else out
    prefix_out = torch.empty_like(prefix) if prefix_out is None else prefix_out
    num_blocks = layer_idx // BLOCK_SIZE + 1
    _check_consume(prefix, blocks, box, error, (out, prefix_out), num_blocks, is_two_shot)
    for name, weight in (
        ("res_norm_weight", res_norm_weight),
        ("res_proj_weight", res_proj_weight),
        ("post_norm_weight", post_norm_weight),
    ):
        require(name, weight, (HIDDEN,))
    update = "replace" if layer_idx % BLOCK_SIZE == 0 else "add"
    consume_variant(num_ranks, num_blocks, update, is_two_shot, max_rows).run(
        *(pointer(t) for t in (prefix, box, blocks, res_norm_weight, res_proj_weight, post_norm_weight)),
        *(pointer(t) for t in (out, prefix_out, error)),
        *(Int64(stride * 2) for stride in (blocks.stride(0), blocks.stride(1), box.stride(0))),
        Int32(num_rows),
        Int32(num_rows // num_local),
        Int32(polls),
        Int32(use_pdl),
        current_stream(prefix.device),
    )
    return out, prefix_out


def _check_consume(
    prefix: Tensor,
    blocks: Tensor,
    box: Tensor,
    error: Tensor,
    outputs: tuple[Tensor, Tensor],
    num_blocks: int,
    is_two_shot: bool,
) -> None:
    num_local, num_ranks, max_rows, width = box.shape
    num_rows = prefix.shape[0]
    if num_rows % num_local:
        raise ValueError(f"rows: got {num_rows}, expected a multiple of {num_local} ranks")
    require_batch(num_rows // num_local, min(max_rows, MAX_BATCH))
    for name, tensor in (("prefix", prefix), ("out", outputs[0]), ("prefix_out", outputs[1])):
        require(name, tensor, (num_rows, HIDDEN))
    require_rows("blocks", blocks, (num_rows, blocks.shape[1], HIDDEN))
    if blocks.shape[1] < num_blocks:
        raise ValueError(f"blocks: got {blocks.shape[1]} a row, expected at least {num_blocks}")
    expected = HIDDEN // num_ranks if is_two_shot else HIDDEN
    if width != expected or box[0].numel() != num_ranks * max_rows * width or not box[0].is_contiguous():
        raise ValueError(f"box: got {tuple(box.shape)}, expected contiguous copies of width {expected}")
    require_rows("box", box, tuple(box.shape))
    require("error", error, (num_local,), torch.int32)
