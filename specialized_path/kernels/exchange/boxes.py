"""Boxes on PyTorch tensors: made empty, found by their peers, and looked through for what was left in them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specialized_path.kernels.exchange.protocol import EMPTY_WORD, BoxLayout

_EMPTY_INT32 = EMPTY_WORD - 2**32


def make_box(layout: BoxLayout, device: torch.device | str) -> Tensor:
    """One rank's box, empty: BF16 of the layout's shape."""
    words = torch.full(
        (*layout.shape[:-1], layout.width // 2), _EMPTY_INT32, dtype=torch.int32, device=device
    )
    return words.view(torch.bfloat16)


def empty_box(box: Tensor) -> None:
    """Empties a box in place, after a failed exchange, when no rank stores into it any more."""
    box.view(torch.int32).fill_(_EMPTY_INT32)


def count_full_words(box: Tensor) -> int:
    """Words of a box that are not empty; 0 wherever every exchange has been consumed."""
    return int((box.view(torch.int32) != _EMPTY_INT32).sum())


def slot_addresses(box_addresses: Sequence[int], layout: BoxLayout, rank: int) -> list[list[int]]:
    """Where a rank's rows begin in every rank's box, for each copy: what a publishing kernel's table holds.

    Args:
        box_addresses: of each rank's box, in rank order, as this rank's GPU sees them.
        layout: of the boxes.
        rank: the publisher.

    Returns:
        `[copies][num_ranks]` addresses.

    Raises:
        ValueError: the number of boxes is not the layout's, or the rank is none of theirs.
    """
    if len(box_addresses) != layout.num_ranks or not 0 <= rank < layout.num_ranks:
        raise ValueError(
            f"ranks: got rank {rank} and {len(box_addresses)} boxes, expected {layout.num_ranks} of them"
        )
    row_bytes = layout.width * 2
    return [
        [box + (copy * layout.num_ranks + rank) * layout.max_rows * row_bytes for box in box_addresses]
        for copy in range(layout.copies)
    ]


def make_table(
    box_addresses: Sequence[int], layout: BoxLayout, rank: int, device: torch.device | str
) -> Tensor:
    """`slot_addresses` as [copies, num_ranks] int64 on the GPU."""
    return torch.tensor(slot_addresses(box_addresses, layout, rank), dtype=torch.int64, device=device)
