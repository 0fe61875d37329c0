"""The all-reduce of the output projection, cut along the boxes: publish, reduce (two-shot only), consume.

One-shot: every rank stores its whole partial into every box, and the attention residual behind it adds what it finds
there. Two-shot: a rank stores each column chunk into the box of the chunk's owner; the owner adds, and stores the sum
into every box. The sum is always taken in the order of the ranks, so that every rank has the same bits.

Rows of several ranks may lie in one launch of the consumer (`rows_per_rank`): that is how N ranks are tested on one
GPU. A launch that serves one rank has all its rows in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from specialized_path.kernels.attn_res.kernel import COLUMNS, CTAS, THREADS, AttnResKernel
from specialized_path.kernels.attn_res.variants import HIDDEN
from specialized_path.kernels.common import device
from specialized_path.kernels.exchange import mailbox
from specialized_path.kernels.projection.kernel import ProjectionKernel

_REDUCE_THREADS = 128
_FRAGMENT_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishKernel(ProjectionKernel):
    """The projection, its rounded rows stored into boxes instead of memory of this GPU."""

    num_ranks: int
    is_two_shot: bool = False
    is_multicast: bool = False
    """Whether one store reaches every box (one-shot only); `y` then holds one address. Never run."""

    def __post_init__(self) -> None:
        """Refuses multicast where a fragment goes to its owner alone."""
        if self.is_two_shot and self.is_multicast:
            raise ValueError("publish: got multicast in two shots, expected it of the owners' sums")

    @property
    def columns_per_store(self) -> int:
        """One fragment."""
        return COLUMNS

    @cute.jit
    def store(self, y: Int64, row: Int32, column: Int32, words: tuple[Any, ...]) -> None:
        """A fragment of a row into the boxes; `y` holds, by rank, where this rank's rows begin in that rank's box."""
        full = tuple(mailbox.without_negative_zero(word) for word in words)
        if cutlass.const_expr(self.is_two_shot):
            chunk = self.num_outputs // self.num_ranks
            place = (Int64(row) * chunk + column % chunk) * 2
            mailbox.put_fragment(device.load_address(y + column // chunk * 8) + place, full)
        else:
            place = (Int64(row) * self.num_outputs + column) * 2
            mailbox.put_into_every_box(y, self.num_ranks, place, full, is_multicast=self.is_multicast)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceKernel:
    """The second step of a two-shot exchange: the sum of this rank's column chunk, stored into every rank's box."""

    num_ranks: int
    max_rows: int
    is_multicast: bool = False
    """As for the publisher."""

    @cute.jit
    def __call__(
        self,
        chunks: cute.Pointer,
        table: cute.Pointer,
        error: cute.Pointer,
        num_rows: Int32,
        polls: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`chunks`: this rank's copy of the chunk box; `table`: by rank, where this rank's rows begin in its box."""
        fragments = HIDDEN // self.num_ranks // COLUMNS
        self.kernel(chunks, table, error, polls).launch(
            grid=(-(-fragments // _REDUCE_THREADS), num_rows, 1),
            block=(_REDUCE_THREADS, 1, 1),
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(self, chunks: cute.Pointer, table: cute.Pointer, error: cute.Pointer, polls: Int32) -> None:
        """A thread adds one fragment of one row."""
        block, row, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        fragment = block * _REDUCE_THREADS + thread
        chunk_bytes = HIDDEN // self.num_ranks * 2
        device.wait_for_dependencies()
        device.release_dependents()
        if fragment < chunk_bytes // _FRAGMENT_BYTES:
            place = Int64(row) * chunk_bytes + fragment * _FRAGMENT_BYTES
            step = self.max_rows * chunk_bytes
            first = chunks.toint() + place
            total = mailbox.take_sum(first, Int64(step), self.num_ranks, polls, error.toint(), Int32(0))
            full = _full_words(total)
            mailbox.put_into_every_box(
                table.toint(), self.num_ranks, place, full, is_multicast=self.is_multicast
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeKernel(AttnResKernel):
    """The attention residual behind an exchange: its delta comes out of the box."""

    num_ranks: int
    max_rows: int
    is_two_shot: bool = False

    @cute.jit
    def __call__(
        self,
        prefix: cute.Pointer,
        box: cute.Pointer,
        blocks: cute.Pointer,
        res_norm: cute.Pointer,
        res_proj: cute.Pointer,
        norm: cute.Pointer,
        out: cute.Pointer,
        prefix_out: cute.Pointer,
        error: cute.Pointer,
        row_stride: Int64,
        block_stride: Int64,
        box_stride: Int64,
        num_rows: Int32,
        rows_per_rank: Int32,
        polls: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """As the attention residual, with `box` a copy of this rank's box, those of further ranks `box_stride` bytes
        apart, and for each rank an error word of four bytes."""
        self.kernel(
            prefix,
            box,
            blocks,
            res_norm,
            res_proj,
            norm,
            out,
            prefix_out,
            error,
            row_stride,
            block_stride,
            box_stride,
            rows_per_rank,
            polls,
        ).launch(
            grid=(CTAS, num_rows, 1),
            block=(THREADS, 1, 1),
            cluster=(CTAS, 1, 1),
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        prefix: cute.Pointer,
        box: cute.Pointer,
        blocks: cute.Pointer,
        res_norm: cute.Pointer,
        res_proj: cute.Pointer,
        norm: cute.Pointer,
        out: cute.Pointer,
        prefix_out: cute.Pointer,
        error: cute.Pointer,
        row_stride: Int64,
        block_stride: Int64,
        box_stride: Int64,
        rows_per_rank: Int32,
        polls: Int32,
    ) -> None:
        """Each thread takes its own eight columns of every partial out of the box."""
        self.boundary(
            lambda row, column_byte: self.take_delta(
                box.toint() + Int64(row // rows_per_rank) * box_stride,
                row % rows_per_rank,
                column_byte,
                error.toint() + Int64(row // rows_per_rank) * 4,
                polls,
            ),
            prefix,
            blocks,
            res_norm,
            res_proj,
            norm,
            out,
            prefix_out,
            None,
            None,
            row_stride,
            block_stride,
            Int64(0),
            Int64(0),
        )

    @cute.jit
    def take_delta(
        self, box: Int64, row: Int32, column_byte: Int64, error: Int64, polls: Int32
    ) -> tuple[Any, ...]:
        """The sum of the partials, rounded once; of a two-shot exchange the one fragment that its owner stored."""
        if cutlass.const_expr(self.is_two_shot):
            chunk_bytes = HIDDEN // self.num_ranks * 2
            place = (column_byte // chunk_bytes) * (self.max_rows * chunk_bytes) + column_byte % chunk_bytes
            first = box + place + Int64(row) * chunk_bytes
            total = mailbox.take_sum(first, Int64(0), 1, polls, error, Int32(column_byte // chunk_bytes))
        else:
            first = box + Int64(row) * (HIDDEN * 2) + column_byte
            step = Int64(self.max_rows * HIDDEN * 2)
            total = mailbox.take_sum(first, step, self.num_ranks, polls, error, Int32(0))
        return _full_words(total)


def _full_words(values: list[Any]) -> tuple[Any, ...]:
    """Eight FP32 values, each rounded once to BF16, -0 as +0."""
    return tuple(
        mailbox.without_negative_zero(device.pack_bf16(low, high))
        for low, high in zip(values[::2], values[1::2], strict=True)
    )
