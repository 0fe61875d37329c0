"""Rows through the boxes as they are: the exchanges whose neighbours do not publish or consume themselves.

A row in a box is FP32 columns, then BF16 ones, each a multiple of 16 bytes. It goes into every rank's box, or each
rank's part of it into the box of that rank. What is taken is laid out by rank, or added in the order of the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from cutlass.cute.arch import inline_ptx

from specialized_path.kernels.common import device
from specialized_path.kernels.exchange import mailbox

_THREADS = 128
_FRAGMENT_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRowsKernel:
    """A rank's rows into the boxes; `to_owners` gives each rank the part of a row that is its own."""

    num_ranks: int
    to_owners: bool

    @cute.jit
    def __call__(
        self,
        floats: cute.Pointer,
        halves: cute.Pointer,
        table: cute.Pointer,
        float_fragments: Int32,
        half_fragments: Int32,
        num_rows: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`floats`, `halves`: contiguous rows, of each the parts by owner; `table`: by rank, where this rank's rows
        begin in its box; fragments: of a row in a box."""
        self.kernel(floats, halves, table, float_fragments, half_fragments).launch(
            grid=(
                (float_fragments + half_fragments + (_THREADS - 1)) // _THREADS,
                num_rows,
                self.num_ranks if self.to_owners else 1,
            ),
            block=(_THREADS, 1, 1),
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        floats: cute.Pointer,
        halves: cute.Pointer,
        table: cute.Pointer,
        float_fragments: Int32,
        half_fragments: Int32,
    ) -> None:
        """A thread has one fragment of one row, and of one owner."""
        block, row, owner = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        fragment = block * _THREADS + thread
        fragments = float_fragments + half_fragments
        part = Int64(row) * (self.num_ranks if self.to_owners else 1) + owner
        place = (Int64(row) * fragments + fragment) * _FRAGMENT_BYTES
        device.wait_for_dependencies()
        device.release_dependents()
        if fragment < float_fragments:
            source = floats.toint() + (part * float_fragments + fragment) * _FRAGMENT_BYTES
            words = tuple(_without_negative_zero(word) for word in device.load_words(source))
            self.put(table.toint(), owner, place, words)
        elif fragment < fragments:
            source = halves.toint() + (part * half_fragments + fragment - float_fragments) * _FRAGMENT_BYTES
            words = tuple(mailbox.without_negative_zero(word) for word in device.load_words(source))
            self.put(table.toint(), owner, place, words)

    def put(self, table: Any, owner: Any, place: Any, words: tuple[Any, ...]) -> None:
        """A fragment into its owner's box, or into all."""
        if self.to_owners:
            mailbox.put_fragment(device.load_address(table + owner * 8) + place, words)
        else:
            mailbox.put_into_every_box(table, self.num_ranks, place, words)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeRowsKernel:
    """All ranks' rows out of this rank's box; `adds` them in the order of the ranks, BF16 rows only."""

    num_ranks: int
    max_rows: int
    adds: bool

    @cute.jit
    def __call__(
        self,
        box: cute.Pointer,
        error: cute.Pointer,
        floats: cute.Pointer,
        halves: cute.Pointer,
        float_fragments: Int32,
        half_fragments: Int32,
        float_rank_stride: Int64,
        float_row_stride: Int64,
        half_rank_stride: Int64,
        half_row_stride: Int64,
        num_rows: Int32,
        polls: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """`box`: a copy of it; `floats`, `halves`: what is taken, ranks and rows so many bytes apart."""
        self.kernel(
            box,
            error,
            floats,
            halves,
            float_fragments,
            half_fragments,
            float_rank_stride,
            float_row_stride,
            half_rank_stride,
            half_row_stride,
            polls,
        ).launch(
            grid=(
                (float_fragments + half_fragments + (_THREADS - 1)) // _THREADS,
                num_rows,
                1 if self.adds else self.num_ranks,
            ),
            block=(_THREADS, 1, 1),
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        box: cute.Pointer,
        error: cute.Pointer,
        floats: cute.Pointer,
        halves: cute.Pointer,
        float_fragments: Int32,
        half_fragments: Int32,
        float_rank_stride: Int64,
        float_row_stride: Int64,
        half_rank_stride: Int64,
        half_row_stride: Int64,
        polls: Int32,
    ) -> None:
        """A thread has one fragment of one row, of one rank or of all."""
        block, row, rank = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        fragment = block * _THREADS + thread
        fragments = float_fragments + half_fragments
        step = Int64(fragments) * (self.max_rows * _FRAGMENT_BYTES)
        first = box.toint() + (Int64(row) * fragments + fragment) * _FRAGMENT_BYTES
        device.wait_for_dependencies()
        device.release_dependents()
        if fragment < fragments:
            if cutlass.const_expr(self.adds):
                total = mailbox.take_sum(first, step, self.num_ranks, polls, error.toint(), Int32(0))
                pairs = zip(total[::2], total[1::2], strict=True)
                there = halves.toint() + row * half_row_stride + Int64(fragment) * _FRAGMENT_BYTES
                device.store_words(there, tuple(device.pack_bf16(*pair) for pair in pairs))
            else:
                here = first + rank * step
                seen = mailbox.look_at_fragment(here)
                a, b, c, d, _ = mailbox.take_fragment(here, seen, polls, error.toint(), rank + 1)
                there = floats.toint() + rank * float_rank_stride + row * float_row_stride
                if fragment >= float_fragments:
                    there = halves.toint() + rank * half_rank_stride + row * half_row_stride
                    there -= Int64(float_fragments) * _FRAGMENT_BYTES
                device.store_words(there + Int64(fragment) * _FRAGMENT_BYTES, (a, b, c, d))


def _without_negative_zero(word: Any) -> Any:
    """An FP32 word, -0 as +0; NaN stays NaN."""
    return inline_ptx(
        "{{ .reg .f32 value; mov.b32 value, {$r0}; add.rn.f32 value, value, 0f00000000; mov.b32 {$w0}, value; }}",
        write_only_types=[Uint32],
        read_only_args=[word],
    )
