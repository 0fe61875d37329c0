"""One cluster of seven CTAs a token, 1024 columns a CTA, eight a thread.

Before the wait: the block part of the online softmax (scores, maximum, sum, weighted sum of blocks), since blocks were
written two or more launches back. After it: the new prefix, one exchange of four sums through the cluster's shared
memory, the merge of the prefix into the softmax, and the norm of the mixture from the quadratic form
`|a u + b P|^2 = a^2 |u|^2 + 2ab u.P + b^2 |P|^2`. Where that form cancels, or the contract rounds the mixture, the
mixture is squared directly, with a second exchange.

Source of the one-exchange identity and of the online softmax: Milakov and Gimelshein, "Online normalizer calculation
for softmax"; the quadratic form is elementary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from specialized_path.kernels.attn_res.variants import HIDDEN, Update
from specialized_path.kernels.common import device
from specialized_path.kernels.common.cluster import ClusterSums

CTAS = 7
THREADS = 128
COLUMNS = 8
"""Columns of a thread: one 16-byte access."""
WARPS = THREADS // 32
PARTIALS = CTAS * WARPS
MAX_BLOCKS = 8
CANCELLATION = 2.0**-6
"""Share of its positive terms below which the quadratic form is not trusted: its error then is under 2^-13."""
EPS = 1e-5
NEGATIVE_INFINITY = float("-inf")
TakeDelta = Callable[[Any, Any], tuple[Any, ...]]
"""From a row and the byte of a thread's first column: the four words of the delta."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttnResKernel:
    """The kernel for a number of blocks, fixed when compiled."""

    num_blocks: int
    update: Update
    rounds_mixture: bool = False

    @cute.jit
    def __call__(
        self,
        prefix: cute.Pointer,
        delta: cute.Pointer,
        blocks: cute.Pointer,
        res_norm: cute.Pointer,
        res_proj: cute.Pointer,
        norm: cute.Pointer,
        out: cute.Pointer,
        prefix_out: cute.Pointer,
        block_out: cute.Pointer,
        aux_out: cute.Pointer,
        row_stride: Int64,
        block_stride: Int64,
        block_out_stride: Int64,
        aux_stride: Int64,
        num_rows: Int32,
        use_pdl: Int32,
        stream: Any,
    ) -> None:
        """Strides in bytes, of `blocks` by row and by block, and by row of the optional outputs (null: none)."""
        self.kernel(
            prefix,
            delta,
            blocks,
            res_norm,
            res_proj,
            norm,
            out,
            prefix_out,
            block_out,
            aux_out,
            row_stride,
            block_stride,
            block_out_stride,
            aux_stride,
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
        delta: cute.Pointer,
        blocks: cute.Pointer,
        res_norm: cute.Pointer,
        res_proj: cute.Pointer,
        norm: cute.Pointer,
        out: cute.Pointer,
        prefix_out: cute.Pointer,
        block_out: cute.Pointer,
        aux_out: cute.Pointer,
        row_stride: Int64,
        block_stride: Int64,
        block_out_stride: Int64,
        aux_stride: Int64,
    ) -> None:
        """Thread t of CTA c owns columns `1024 c + 8 t ... + 7` of row `blockIdx.y`."""
        self.boundary(
            lambda row, column_byte: device.load_words(
                delta.toint() + Int64(row) * (HIDDEN * 2) + column_byte
            ),
            prefix,
            blocks,
            res_norm,
            res_proj,
            norm,
            out,
            prefix_out,
            block_out,
            aux_out,
            row_stride,
            block_stride,
            block_out_stride,
            aux_stride,
        )

    @cute.jit
    def boundary(
        self,
        take_delta: cutlass.Constexpr[TakeDelta],
        prefix: cute.Pointer,
        blocks: cute.Pointer,
        res_norm: cute.Pointer,
        res_proj: cute.Pointer,
        norm: cute.Pointer,
        out: cute.Pointer,
        prefix_out: cute.Pointer,
        block_out: cute.Pointer | None,
        aux_out: cute.Pointer | None,
        row_stride: Int64,
        block_stride: Int64,
        block_out_stride: Int64,
        aux_stride: Int64,
    ) -> None:
        """The whole boundary, with the delta from wherever `take_delta` takes it, after the wait."""
        cta, row, _ = cute.arch.block_idx()
        thread, _, _ = cute.arch.thread_idx()
        column_byte = Int64(cta * (THREADS * COLUMNS) + thread * COLUMNS) * 2
        here = Int64(row) * (HIDDEN * 2) + column_byte
        cluster = ClusterSums(cta, thread, CTAS, WARPS)
        # Peers may not be written before they run.
        cute.arch.cluster_arrive_relaxed()
        raw = [
            device.load_words(blocks.toint() + Int64(row) * row_stride + j * block_stride + column_byte)
            for j in range(self.num_blocks)
        ]
        query = [
            a * c for a, c in zip(_read(res_norm, column_byte), _read(res_proj, column_byte), strict=True)
        ]
        weight = _read(norm, column_byte)
        cute.arch.cluster_wait()
        mixed, top, total = _mix_blocks(raw, query, cluster)

        # What the grid behind reads above its wait is static: a projection brings its weights while this one waits.
        device.release_dependents()
        device.wait_for_dependencies()
        words = self.updated(prefix.toint() + here, take_delta, row, column_byte)
        device.store_words(prefix_out.toint() + here, words)
        _store_row(block_out, row, block_out_stride, column_byte, words)
        _store_row(aux_out, row, aux_stride, column_byte, words)
        values = _floats(words)
        if cutlass.const_expr(self.num_blocks == 0):
            mixture = values
            form = _square(cluster, values)
        else:
            sums = cluster.sums(
                [_dot(values, values), _dot(values, query), _dot(mixed, values), _dot(mixed, mixed)]
            )
            square, score, cross, mixed_square = [cluster.broadcast(sums, i, 4) for i in range(4)]
            score = score * device.rsqrt(square * (1.0 / HIDDEN) + EPS)
            new_top = cute.arch.fmax(top, score)
            from_blocks, from_prefix = device.exp(top - new_top), device.exp(score - new_top)
            scale = 1.0 / (from_blocks * total + from_prefix)
            from_blocks, from_prefix = from_blocks * scale, from_prefix * scale
            mixture = [from_blocks * u + from_prefix * p for u, p in zip(mixed, values, strict=True)]
            positive = from_blocks * from_blocks * mixed_square + from_prefix * from_prefix * square
            form = positive + 2.0 * from_blocks * from_prefix * cross
            if not (form >= CANCELLATION * positive):
                form = _square(cluster, mixture)
        if cutlass.const_expr(self.rounds_mixture):
            mixture = _floats(_words(mixture))
            form = _square(cluster, mixture)
        inverse = device.rsqrt(form * (1.0 / HIDDEN) + EPS)
        normed = [m * inverse * w for m, w in zip(mixture, weight, strict=True)]
        device.store_words(out.toint() + here, _words(normed))

    def updated(self, prefix: Any, take_delta: TakeDelta, row: Any, column_byte: Any) -> tuple[Any, ...]:
        """The thread's columns of the new prefix, rounded once."""
        if self.update == "keep":
            return device.load_words(prefix)
        added = take_delta(row, column_byte)
        if self.update == "replace":
            return added
        return _words(
            [p + m for p, m in zip(_floats(device.load_words(prefix)), _floats(added), strict=True)]
        )


@cute.jit
def _store_row(rows: Any, row: Int32, stride: Int64, column_byte: Int64, words: tuple[Any, ...]) -> None:
    """A thread's words of a row, where there is such an output."""
    if cutlass.const_expr(rows is not None):
        address = rows.toint()
        if address != 0:
            device.store_words(address + Int64(row) * stride + column_byte, words)


def _floats(words: tuple[Any, ...]) -> list[Any]:
    return [value for word in words for value in device.unpack_bf16(word)]


def _words(values: list[Any]) -> tuple[Any, ...]:
    return tuple(device.pack_bf16(low, high) for low, high in zip(values[::2], values[1::2], strict=True))


def _read(vector: Any, column_byte: Any) -> list[Any]:
    """A thread's columns of a weight vector, as FP32."""
    return _floats(device.load_words(vector.toint() + column_byte, modifier=".nc"))


def _dot(left: list[Any], right: list[Any]) -> Any:
    total = left[0] * right[0]
    for a, b in zip(left[1:], right[1:], strict=True):
        total = total + a * b
    return total


def _square(cluster: ClusterSums, mixture: list[Any]) -> Any:
    """The sum of squares over all columns of the row."""
    return cluster.sum(_dot(mixture, mixture))


def _mix_blocks(raw: list[Any], query: list[Any], cluster: ClusterSums) -> tuple[list[Any], Any, Any]:
    """The softmax over the blocks alone: their weighted sum, not divided, the largest score, and the sum of weights."""
    count = len(raw)
    if not count:
        return [], None, None
    padded = 1 << (count - 1).bit_length()
    lanes = 16 // padded
    blocks = [_floats(words) for words in raw]
    zeros = [Float32(0.0)] * (padded - count)
    squares = [_dot(block, block) for block in blocks] + zeros
    scores = [_dot(block, query) for block in blocks] + zeros
    mine = cluster.sums([*squares, *scores])
    other = cute.arch.shuffle_sync_bfly(mine, offset=16)
    is_low = cluster.lane < 16
    square, score = device.select(is_low, mine, other), device.select(is_low, other, mine)
    is_block = (cluster.lane % 16) // lanes < count
    score = device.select(is_block, score * device.rsqrt(square * (1.0 / HIDDEN) + EPS), NEGATIVE_INFINITY)
    top = score
    for offset in _offsets(lanes):
        top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, offset=offset))
    share = device.exp(score - top)
    total = share
    for offset in _offsets(lanes):
        total = total + cute.arch.shuffle_sync_bfly(total, offset=offset)
    shares = [cute.arch.shuffle_sync(share, Int32(j * lanes)) for j in range(count)]
    mixed = [_dot(shares, [block[c] for block in blocks]) for c in range(COLUMNS)]
    return mixed, top, total


def _offsets(lanes: int) -> list[int]:
    """Butterfly offsets that join groups of `lanes` lanes into half a warp."""
    return [offset for offset in (8, 4, 2, 1) if offset >= lanes]
