"""Rows through the boxes, on PyTorch tensors: publish, then gather or sum; bounds and errors as in `launch`.

The exchanges around attention and experts are made of them, and of the kernels that are there:

- shards of context-parallel attention (OC-11): LSE and latents to the heads' owners, gathered by rank for `dcp_merge`;
- router logits and latent (OC-14, OC-15): every rank's shard of both to all, gathered as columns;
- combined latent (OC-17): partials to all, summed for `latent_norm`;
- layer output (OC-19): the shared experts' partials to the columns' owners and summed, the owners' columns to all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specialized_path.kernels.common.checks import require, require_batch, require_rows
from specialized_path.kernels.exchange.launch import DEFAULT_POLLS
from specialized_path.kernels.exchange.variants import publish_rows_variant, take_rows_variant

_FLOATS, _HALVES = 4, 8
"""Elements of a fragment of 16 bytes."""


def publish_rows(
    halves: Tensor,
    table: Tensor,
    *,
    floats: Tensor | None = None,
    to_owners: bool = False,
    use_pdl: bool = True,
) -> None:
    """This rank's rows into the boxes of all ranks, or each rank's part of them into its box; -0 becomes +0.

    Args:
        halves: [B, W] BF16, contiguous, or [B, N, W] where parts go to their owners; W a multiple of 8.
        table: [N] int64, where this rank's rows begin in every rank's box, for one copy (`make_table`).
        floats: [B, F] or [B, N, F] FP32 likewise, F a multiple of 4; they lie in front of a row's `halves` in the box.
        to_owners: see there.
        use_pdl: starts the kernel before the one in front has completed.

    Raises:
        ValueError: a shape, type or device is not as said.
    """
    from cutlass import Int32

    from specialized_path.kernels.common.host import current_stream, pointer

    num_ranks, num_rows = table.shape[0], halves.shape[0]
    parts = (num_rows, num_ranks) if to_owners else (num_rows,)
    require("table", table, (num_ranks,), torch.int64)
    require("halves", halves, (*parts, halves.shape[-1]))
    if floats is not None:
        require("floats", floats, (*parts, floats.shape[-1]), torch.float32)
    publish_rows_variant(num_ranks, to_owners).run(
        pointer(floats, torch.float32),
        pointer(halves),
        pointer(table),
        *(Int32(count) for count in _fragments(halves, floats)),
        Int32(num_rows),
        Int32(use_pdl),
        current_stream(halves.device),
    )


def gather_rows(
    box: Tensor,
    error: Tensor,
    halves: Tensor,
    *,
    floats: Tensor | None = None,
    polls: int = DEFAULT_POLLS,
    use_pdl: bool = True,
) -> None:
    """All ranks' rows out of this rank's box.

    Args:
        box: [N, max_rows, 2 F + W] BF16, one copy of this rank's box; is empty again afterwards.
        error: [1] int32.
        halves: [N, B, W] BF16, filled; ranks and rows may lie any multiple of 8 elements apart, so that a transposed
            view of [B, N * W] takes them as columns.
        floats: [N, B, F] FP32, filled, likewise in multiples of 4.
        polls: see above.
        use_pdl: starts the kernel before the one in front has completed.

    Raises:
        ValueError: a shape, type, device or stride is not as said.
    """
    num_ranks, num_rows = box.shape[0], halves.shape[1]
    require_rows("halves", halves, (num_ranks, num_rows, halves.shape[-1]))
    if floats is not None and (
        floats.shape[:2] != halves.shape[:2]
        or floats.dtype != torch.float32
        or floats.stride(2) != 1
        or any(stride % _FLOATS for stride in floats.stride()[:2])
    ):
        raise ValueError(
            f"floats: got {tuple(floats.shape)} {floats.dtype}, strides {floats.stride()}, expected "
            f"{(*halves.shape[:2], 'F')} torch.float32, multiples of {_FLOATS} apart"
        )
    _take(box, error, halves, floats, polls, use_pdl, adds=False)


def sum_rows(
    box: Tensor, error: Tensor, out: Tensor, *, polls: int = DEFAULT_POLLS, use_pdl: bool = True
) -> None:
    """The sum of all ranks' rows in this rank's box, FP32 in the order of the ranks, rounded once, into `out` [B, W].

    The rest as for `gather_rows`.
    """
    require("out", out, (out.shape[0], out.shape[-1]))
    _take(box, error, out.unsqueeze(0), None, polls, use_pdl, adds=True)


def _take(
    box: Tensor,
    error: Tensor,
    halves: Tensor,
    floats: Tensor | None,
    polls: int,
    use_pdl: bool,
    *,
    adds: bool,
) -> None:
    from cutlass import Int32, Int64

    from specialized_path.kernels.common.host import current_stream, pointer

    num_ranks, max_rows = box.shape[:2]
    fragments = _fragments(halves, floats)
    require("box", box, (num_ranks, max_rows, _HALVES * sum(fragments)))
    require("error", error, (1,), torch.int32)
    require_batch(halves.shape[1], max_rows)
    float_strides = (0, 0) if floats is None else (floats.stride(0) * 4, floats.stride(1) * 4)
    take_rows_variant(num_ranks, adds, max_rows).run(
        pointer(box),
        pointer(error),
        pointer(floats, torch.float32),
        pointer(halves),
        *(Int32(count) for count in fragments),
        *(Int64(stride) for stride in (*float_strides, halves.stride(0) * 2, halves.stride(1) * 2)),
        Int32(halves.shape[1]),
        Int32(polls),
        Int32(use_pdl),
        current_stream(box.device),
    )


def _fragments(halves: Tensor, floats: Tensor | None) -> tuple[int, int]:
    """Of a row, FP32 and BF16."""
    num_floats = 0 if floats is None else floats.shape[-1]
    if num_floats % _FLOATS or halves.shape[-1] % _HALVES or not halves.shape[-1]:
        raise ValueError(
            f"columns: got {num_floats} FP32 and {halves.shape[-1]} BF16, expected multiples of {_FLOATS} and {_HALVES}"
        )
    return num_floats // _FLOATS, halves.shape[-1] // _HALVES
