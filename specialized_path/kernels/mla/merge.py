"""Partial attentions become one: chunks of a request (OC-9) or shards of a context-parallel group (OC-11)."""

from __future__ import annotations

from typing import Any, NamedTuple

import cuda.bindings.driver as cuda
import cutlass
from cutlass import BFloat16, Float32, Int32, Int64, Uint32, cute

from specialized_path.kernels.mla import ops
from specialized_path.kernels.mla.split_device import ceil_div, chunk_tokens, local_len
from specialized_path.kernels.mla.split_plan import MAX_SPLITS

KV_RANK = 512
ROWS, COLUMNS = 16, 64
"""Query rows and latent columns that one CTA merges; all rows are of one head."""
COLUMN_CTAS = KV_RANK // COLUMNS
THREADS = 256
_GROUPS = THREADS // (COLUMNS // 4)


class MergeSizes(NamedTuple):
    """What a merge covers; `num_shards` is 1 where chunks are merged."""

    num_rows: Int32
    num_heads: Int32
    num_tokens: Int32
    num_shards: Int32


class MergeScales(NamedTuple):
    """`AttentionScale` of merged chunks: a raw product to base-2 units, a cached code to a value."""

    score_scale: Float32
    value_scale: Float32


class Cut(NamedTuple):
    """How requests were cut: `SplitPlan`, then `ContextShard`."""

    target_splits: Int32
    longest_chunk: Int32
    max_splits: Int32
    dcp_rank: Int32
    dcp_size: Int32
    interleave: Int32


def merge_source(
    first: cute.Pointer,
    second: cute.Pointer,
    seq_lens: cute.Pointer,
    sizes: MergeSizes,
    scales: MergeScales,
    cut: Cut,
) -> dict[str, Any]:
    """What `LatentMerge` reads: partial sums, or latents, in `first`; what weighs them in `second`."""
    return {
        "partial": first.toint(),
        "max_and_sum": second.toint(),
        "latents": first.toint(),
        "lse": second.toint(),
        "seq_lens": seq_lens.toint(),
        **sizes._asdict(),
        **scales._asdict(),
        **cut._asdict(),
    }


class Tile(NamedTuple):
    """A thread's place in a grid of (8 column slices x heads, tiles of 16 rows)."""

    tid: Int32
    lane: Int32
    warp: Int32
    base: Int32
    """Of the CTA's shared memory."""
    head: Int32
    column_slice: Int32
    first_row: Int32


def find_tile() -> Tile:
    """The place of the thread that runs it."""
    tid, _, _ = cute.arch.thread_idx()
    place, tile, _ = cute.arch.block_idx()
    lane, warp = tid % 32, cute.arch.make_warp_uniform(tid // 32)
    base = cute.arch.get_dyn_smem(cutlass.Int8, alignment=128).toint()
    head, column_slice = place // COLUMN_CTAS, place % COLUMN_CTAS
    return Tile(tid, lane, warp, base, head, column_slice, tile * ROWS)


class LatentMerge:
    """The part that merge and value kernel share: 16 rows x 64 columns, merged and rounded into shared memory.

    From chunks: partial sums and each row's (maximum, sum) as `AttentionCore` leaves them. A row of few chunks
    is summed by sixteen threads in chunk order; for one of more than sixteen, sixteen groups of threads take
    every sixteenth chunk and meet in order. So the order depends on the request's length only.
    From shards: BF16 latents and base-2 LSE of each rank, summed in rank order; an LSE that is not finite or
    below -1.5e38 marks an empty shard whose latent is not used.

    Args:
        shards: False merges chunks, True shards.
    """

    def __init__(self, *, shards: bool) -> None:
        self.shards = shards
        self.count_at = 4 * ROWS * MAX_SPLITS
        self.sum_at = self.count_at + 4 * ROWS
        self.smem = 4 * ROWS * 64 if shards else self.sum_at + 4 * _GROUPS * ROWS * COLUMNS

    @cute.jit
    def weigh(self, source: dict[str, Any], tile: Tile) -> tuple[Any, Any]:
        """Each part's factor for the rows of the tile, to shared memory; returns the LSE of two rows a warp."""
        lse = [Float32(ops.NEG_INF), Float32(ops.NEG_INF)]
        for i in cutlass.range_constexpr(2):
            row = tile.warp + 8 * i
            if tile.first_row + row < source["num_rows"]:
                if cutlass.const_expr(self.shards):
                    lse[i] = self.weigh_shards(source, tile, tile.first_row + row, row)
                else:
                    lse[i] = self.weigh_chunks(source, tile, tile.first_row + row, row)
        return lse[0], lse[1]

    @cute.jit
    def weigh_chunks(self, source: dict[str, Any], tile: Tile, row: Int32, slot: Int32) -> Float32:
        request, step = row // source["num_tokens"], row % source["num_tokens"]
        count = self.count_chunks(source, request)
        if tile.lane == 0:
            ops.shared_store(tile.base + self.count_at + slot * 4, count)
        rows_per_req = source["num_tokens"] * source["num_heads"]
        at = source["max_and_sum"] + Int64(8) * (
            Int64(request * source["max_splits"]) * rows_per_req + step * source["num_heads"] + tile.head
        )
        scale = source["score_scale"]
        peak = Float32(ops.NEG_INF)
        for part in cutlass.range(tile.lane, count, 32, unroll=4):
            peak = ops.maximum(peak, ops.global_load(at + Int64(8) * part * rows_per_req, Float32))
        for step_ in cutlass.range_constexpr(5):
            peak = ops.maximum(peak, cute.arch.shuffle_sync_bfly(peak, 16 >> step_))
        origin = peak if peak != Float32(ops.NEG_INF) else Float32(0.0)
        total = Float32(0.0)
        for part in cutlass.range(tile.lane, count, 32, unroll=4):
            best, mass = ops.global_load(at + Int64(8) * part * rows_per_req, Float32, 2)
            weight = ops.exp2((best - origin) * scale)
            total += weight * mass
            ops.shared_store(tile.base + (slot * MAX_SPLITS + part) * 4, weight)
        for step_ in cutlass.range_constexpr(5):
            total += cute.arch.shuffle_sync_bfly(total, 16 >> step_)
        factor = Float32(0.0)
        lse = Float32(ops.NEG_INF)
        if total != Float32(0.0):
            factor = ops.divide(source["value_scale"], total)
            lse = origin * scale + ops.log2(total)
        for part in cutlass.range(tile.lane, count, 32, unroll=4):
            there = tile.base + (slot * MAX_SPLITS + part) * 4
            ops.shared_store(there, ops.shared_load(there, Float32) * factor)
        return lse

    @cute.jit
    def weigh_shards(self, source: dict[str, Any], tile: Tile, row: Int32, slot: Int32) -> Float32:
        value = Float32(ops.EMPTY_LSE)
        if tile.lane < source["num_shards"]:
            at = (Int64(tile.lane) * source["num_rows"] + row) * source["num_heads"] + tile.head
            value = ops.global_load(source["lse"] + Int64(4) * at, Float32)
        # False for NaN and both infinities as well.
        used = (value > Float32(0.5 * ops.EMPTY_LSE)) and (value < Float32(float("inf")))
        peak = value if used else Float32(ops.EMPTY_LSE)
        for step in cutlass.range_constexpr(5):
            peak = ops.maximum(peak, cute.arch.shuffle_sync_bfly(peak, 16 >> step))
        weight = ops.exp2(value - peak) if used else Float32(0.0)
        total = Float32(0.0)
        for rank in cutlass.range(source["num_shards"], unroll=1):
            total += cute.arch.shuffle_sync(weight, rank)
        lse = Float32(ops.NEG_INF)
        share = Float32(0.0)
        if total > Float32(0.0):
            share = ops.divide(weight, total)
            lse = peak + ops.log2(total)
        if tile.lane < 32:
            ops.shared_store(tile.base + (slot * 64 + tile.lane) * 4, share)
        return lse

    @cute.jit
    def count_chunks(self, source: dict[str, Any], request: Int32) -> Int32:
        """Chunks into which the attention core cut this request."""
        length = ops.global_load(source["seq_lens"] + Int64(4) * request, Int32)
        length = local_len(length, source["dcp_rank"], source["dcp_size"], source["interleave"])
        splits = source["target_splits"], source["longest_chunk"], source["max_splits"]
        return ceil_div(length, chunk_tokens(length, *splits))

    @cute.jit
    def merged(self, source: dict[str, Any], tile: Tile, first_column: Int32) -> tuple[Any, Any]:
        """After `weigh` and a barrier: two BF16 pairs, row `tid // 16`, columns `4 (tid % 16)` and on."""
        if cutlass.const_expr(self.shards):
            return self.merged_shards(source, tile, first_column)
        return self.merged_chunks(source, tile, first_column)

    @cute.jit
    def merged_shards(self, source: dict[str, Any], tile: Tile, first_column: Int32) -> tuple[Any, Any]:
        slot = tile.tid // 16
        sums = cute.make_rmem_tensor((4,), Float32)
        for i in cutlass.range_constexpr(4):
            sums[i] = Float32(0.0)
        if tile.first_row + slot < source["num_rows"]:
            column = first_column + 4 * (tile.tid % 16)
            for rank in cutlass.range(source["num_shards"], unroll=4):
                share = ops.shared_load(tile.base + (slot * 64 + rank) * 4, Float32)
                row = Int64(rank) * source["num_rows"] + tile.first_row + slot
                at = row * source["num_heads"] + tile.head
                words = ops.global_load(source["latents"] + Int64(2) * (at * KV_RANK + column), Uint32, 2)
                if share != Float32(0.0):
                    for i in cutlass.range_constexpr(2):
                        low, high = ops.unpack_x2(words[i], BFloat16)
                        sums[2 * i] = sums[2 * i] + share * low
                        sums[2 * i + 1] = sums[2 * i + 1] + share * high
        return ops.pack_x2(sums[0], sums[1], BFloat16), ops.pack_x2(sums[2], sums[3], BFloat16)

    @cute.jit
    def merged_chunks(self, source: dict[str, Any], tile: Tile, first_column: Int32) -> tuple[Any, Any]:
        group, lane = tile.tid // 16, tile.tid % 16
        sums_at = tile.base + self.sum_at
        mine = Int32(0)
        if tile.first_row + group < source["num_rows"]:
            mine = ops.shared_load(tile.base + self.count_at + group * 4, Int32)
        sums = cute.make_rmem_tensor((4,), Float32)
        sums.fill(0.0)
        if mine <= _GROUPS:
            self.add_chunks(source, tile, group, first_column, lane, 0, mine, 1, sums)
        for slot in cutlass.range(cutlass.min(ROWS, source["num_rows"] - tile.first_row), unroll=1):
            count = ops.shared_load(tile.base + self.count_at + slot * 4, Int32)
            if count > _GROUPS:
                part = cute.make_rmem_tensor((4,), Float32)
                part.fill(0.0)
                self.add_chunks(source, tile, slot, first_column, lane, group, count, _GROUPS, part)
                there = sums_at + ((group * ROWS + slot) * COLUMNS + 4 * lane) * 4
                ops.shared_store(there, part[0], part[1], part[2], part[3])
        cute.arch.sync_threads()
        if mine > _GROUPS:
            for part_ in cutlass.range_constexpr(_GROUPS):
                there = sums_at + ((part_ * ROWS + group) * COLUMNS + 4 * lane) * 4
                values = ops.shared_load(there, Float32, 4)
                for i in cutlass.range_constexpr(4):
                    sums[i] = sums[i] + values[i]
        return ops.pack_x2(sums[0], sums[1], BFloat16), ops.pack_x2(sums[2], sums[3], BFloat16)

    @cute.jit
    def add_chunks(
        self,
        source: dict[str, Any],
        tile: Tile,
        slot: Int32,
        first_column: Int32,
        lane: Int32,
        first: Int32,
        count: Int32,
        stride: cutlass.Constexpr,
        sums: cute.Tensor,
    ) -> None:
        """Add chunks first, first + stride, ... of a row, four columns a lane, by their weights."""
        row = tile.first_row + slot
        request, step = row // source["num_tokens"], row % source["num_tokens"]
        row_bytes = Int64(4) * KV_RANK
        chunk_bytes = row_bytes * (source["num_tokens"] * source["num_heads"])
        at = source["partial"] + Int64(4) * (first_column + 4 * lane)
        at += chunk_bytes * Int64(request * source["max_splits"])
        at += row_bytes * (step * source["num_heads"] + tile.head)
        for part in cutlass.range(first, count, stride, unroll=4):
            weight = ops.shared_load(tile.base + (slot * MAX_SPLITS + part) * 4, Float32)
            values = ops.global_load(at + part * chunk_bytes, Float32, 4)
            for i in cutlass.range_constexpr(4):
                sums[i] = sums[i] + weight * values[i]


class MergeKernel:
    """Merged latents and LSE to global memory: what OC-9 and OC-11 return.

    Grid: (8 column slices x heads, tiles of 16 rows). Rows with nothing to see give zero and `empty_lse`.

    Args:
        shards: False merges chunks, True shards.
    """

    def __init__(self, *, shards: bool) -> None:
        self.merge = LatentMerge(shards=shards)

    @cute.jit
    def __call__(
        self,
        first: cute.Pointer,
        second: cute.Pointer,
        seq_lens: cute.Pointer,
        latent: cute.Pointer,
        lse: cute.Pointer,
        sizes: MergeSizes,
        scales: MergeScales,
        empty_lse: Float32,
        cut: Cut,
        use_pdl: Int32,
        stream: cuda.CUstream,
    ) -> None:
        self.kernel(
            first,
            second,
            seq_lens,
            latent,
            lse,
            sizes,
            scales,
            empty_lse,
            cut,
        ).launch(
            grid=(COLUMN_CTAS * sizes.num_heads, (sizes.num_rows + (ROWS - 1)) // ROWS, 1),
            block=(THREADS, 1, 1),
            smem=self.merge.smem,
            stream=stream,
            use_pdl=use_pdl,
        )

    @cute.kernel
    def kernel(
        self,
        first: cute.Pointer,
        second: cute.Pointer,
        seq_lens: cute.Pointer,
        latent: cute.Pointer,
        lse: cute.Pointer,
        sizes: MergeSizes,
        scales: MergeScales,
        empty_lse: Float32,
        cut: Cut,
    ) -> None:
        tile = find_tile()
        num_rows, num_heads = sizes.num_rows, sizes.num_heads
        source = merge_source(first, second, seq_lens, sizes, scales, cut)
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
        found = self.merge.weigh(source, tile)
        cute.arch.sync_threads()
        if tile.column_slice == 0 and tile.lane == 0:
            for i in cutlass.range_constexpr(2):
                row = tile.first_row + tile.warp + 8 * i
                if row < num_rows:
                    value = found[i] if found[i] != Float32(ops.NEG_INF) else empty_lse
                    ops.global_store(lse.toint() + Int64(4) * (Int64(row) * num_heads + tile.head), value)
        words = self.merge.merged(source, tile, tile.column_slice * COLUMNS)
        row = tile.first_row + tile.tid // 16
        if row < num_rows:
            row_at = (Int64(row) * num_heads + tile.head) * KV_RANK
            at = row_at + tile.column_slice * COLUMNS + 4 * (tile.tid % 16)
            ops.global_store(latent.toint() + Int64(2) * at, words[0], words[1])
