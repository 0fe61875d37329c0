"""The attention core with roles for warps: scores and values of different tiles go on at once."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, cute

from specialized_path.kernels.common import device
from specialized_path.kernels.mla import ops
from specialized_path.kernels.mla.attention_parts import KV_RANK, QUARTERS, AttentionParts, Rows
from specialized_path.kernels.mla.split_device import ceil_div, local_len
from specialized_path.kernels.mla.variants import CoreTile

SCORE_WARPS, VALUE_WARPS = QUARTERS, 8
_COPY_WARP = SCORE_WARPS + VALUE_WARPS
_SCORE_REGISTERS, _VALUE_REGISTERS, _COPY_REGISTERS = 184, 152, 24
_LANE_COLUMNS = 4
"""Scores of a row that a lane has in the softmax."""


class RolesCore(AttentionParts):
    """Four warps score, a quarter of the columns each, and keep the softmax; eight weigh values; one copies.

    They meet at barriers in shared memory only: probabilities exist for two tiles at a time, so that the next
    tile is scored while this one's values are weighed.
    """

    threads = 32 * (SCORE_WARPS + VALUE_WARPS + 4)
    """Registers are dealt out by warpgroup, of which the fourth copies."""

    def __init__(self, *, fp8: bool, m_tiles: int, tile: CoreTile) -> None:
        super().__init__(
            fp8=fp8,
            m_tiles=m_tiles,
            tile=tile,
            held_tiles=min(m_tiles, 2),
            buffers=2,
            row_lanes=tile.rows // _LANE_COLUMNS,
            loading_warps=SCORE_WARPS,
        )

    def init_barriers(self, full: Int32) -> None:
        """Full and empty, a pair a stage; weighted and spent, a pair a buffer of probabilities."""
        for stage in range(self.stages):
            ops.mbarrier_init(full + 8 * stage, 1)
            ops.mbarrier_init(full + 8 * self.stages + 8 * stage, SCORE_WARPS + VALUE_WARPS)
        for buffer in range(self.buffers):
            ops.mbarrier_init(full + 16 * self.stages + 8 * buffer, SCORE_WARPS)
            ops.mbarrier_init(full + 16 * self.stages + 8 * self.buffers + 8 * buffer, VALUE_WARPS)

    def barriers(self, base: Int32) -> tuple[Int32, Int32, Int32, Int32]:
        """Addresses of full, empty, weighted and spent."""
        full = base + self.at["barriers"]
        weighted = full + 16 * self.stages
        return full, full + 8 * self.stages, weighted, weighted + 8 * self.buffers

    @cute.jit
    def walk(
        self,
        step: dict[str, Any],
        first_item: Int32,
        grid: Int32,
        num_rows: Int32,
        row_tiles: Int32,
        num_items: Int32,
    ) -> None:
        """Each role goes through the CTA's items; a count of tiles gives stage, buffer and phase."""
        item, count, warp = first_item, Int32(0), step["warp"]
        if warp >= _COPY_WARP:
            cute.arch.setmaxregister_decrease(_COPY_REGISTERS)
            if warp == _COPY_WARP:
                while item < num_items:
                    request, _, begin, end, _ = self.locate(step, item // row_tiles)
                    count = self.copy(step, request, begin, end, count)
                    item += grid
        elif warp >= SCORE_WARPS:
            cute.arch.setmaxregister_increase(_VALUE_REGISTERS)
            while item < num_items:
                request, chunk, begin, end, total = self.locate(step, item // row_tiles)
                first_row = item % row_tiles * self.rows
                slot = Int64(request * step["max_splits"] + chunk) * num_rows + first_row
                rows = (num_rows - first_row, first_row, step["num_heads"], step["num_tokens"], total)
                count = self.weigh_values(step, rows, slot, begin, end, count)
                item += grid
        else:
            cute.arch.setmaxregister_increase(_SCORE_REGISTERS)
            while item < num_items:
                request, chunk, begin, end, total = self.locate(step, item // row_tiles)
                first_row = item % row_tiles * self.rows
                slot = Int64(request * step["max_splits"] + chunk) * num_rows + first_row
                rows = (num_rows - first_row, first_row, step["num_heads"], step["num_tokens"], total)
                query = step["query"] + Int64(self.row_bytes) * (Int64(request) * num_rows + first_row)
                count = self.score_tiles(step, query, rows, slot, begin, end, count)
                item += grid

    @cute.jit
    def copy(self, step: dict[str, Any], request: Int32, begin: Int32, end: Int32, count: Int32) -> Int32:
        """Copy an item's tiles."""
        for tile in cutlass.range(ceil_div(end - begin, Int32(self.tile_rows)), unroll=1):
            parity = count // self.stages % 2 ^ 1
            self.copy_tile(step, request, begin + tile * self.tile_rows, end, count % self.stages, parity)
            count += 1
        return count

    @cute.jit
    def score_tiles(
        self,
        step: dict[str, Any],
        query: Int64,
        rows: Rows,
        slot: Int64,
        begin: Int32,
        end: Int32,
        count: Int32,
    ) -> Int32:
        """Leave each tile's probabilities and rescalings; at the end store each row's maximum and sum."""
        rows_left, first_row, num_heads, num_tokens, total = rows
        base, lane, warp, dcp = step["base"], step["lane"], step["warp"], step["dcp"]
        full, empty, weighted, spent = self.barriers(base)
        self.load_query(query, rows_left, base, step["tid"])
        pass_rows = 32 // self.row_lanes * SCORE_WARPS
        passes = self.rows // pass_rows
        my_row = 32 // self.row_lanes * warp + lane // self.row_lanes
        visible = cute.make_rmem_tensor((passes,), Int32)
        peak = cute.make_rmem_tensor((passes,), Float32)
        mass = cute.make_rmem_tensor((passes,), Float32)
        for i in cutlass.range_constexpr(passes):
            token = (first_row + pass_rows * i + my_row) // num_heads
            seen = cutlass.max(total - (num_tokens - 1 - token), 0)
            visible[i] = local_len(seen, *dcp) - begin
            peak[i] = Float32(ops.NEG_INF)
            mass[i] = Float32(0.0)
        self.score_barrier()
        queries = self.query_fragments(base, lane, warp)
        scores = cute.make_rmem_tensor((self.rows * self.tile_rows // 32,), Float32)

        for tile in cutlass.range(ceil_div(end - begin, Int32(self.tile_rows)), unroll=1):
            stage, buffer = count % self.stages, count % 2
            scores.fill(0.0)
            ops.mbarrier_wait(full + 8 * stage, count // self.stages % 2)
            kv = base + self.at["kv"] + stage * (self.tile_rows * self.kv_pitch)
            self.score(self.keys(kv, lane, warp, 0, self.tile_rows), queries, scores)
            device.release_reads()
            # The scores of the tile before have been read by all.
            self.score_barrier()
            self.store_scores(base, lane, warp, 0, self.tile_rows // 8, scores)
            if lane == 0:
                ops.mbarrier_arrive(empty + 8 * stage)
            self.score_barrier()
            ops.mbarrier_wait(spent + 8 * buffer, count // 2 % 2 ^ 1)
            for i in cutlass.range_constexpr(passes):
                peak[i], mass[i] = self.soften(
                    base, buffer, pass_rows * i + my_row, lane, visible[i] - tile * self.tile_rows,
                    step["score_scale"], peak[i], mass[i],
                )  # fmt: skip
            cute.arch.sync_warp()
            if lane == 0:
                ops.mbarrier_arrive(weighted + 8 * buffer)
            count += 1

        for i in cutlass.range_constexpr(passes):
            row = pass_rows * i + my_row
            self.store_mass(step["max_and_sum"] + slot * 8, rows_left, row, lane, peak[i], mass[i])
        return count

    def score_barrier(self) -> None:
        """All scoring warps meet."""
        cute.arch.barrier(barrier_id=1, number_of_threads=32 * SCORE_WARPS)

    @cute.jit
    def weigh_values(
        self, step: dict[str, Any], rows: Rows, slot: Int64, begin: Int32, end: Int32, count: Int32
    ) -> Int32:
        """Sum each tile's values by its probabilities; at the end store the unnormalised sums."""
        rows_left, first_row, num_heads, num_tokens, total = rows
        base, lane, warp, dcp = step["base"], step["lane"], step["warp"] - SCORE_WARPS, step["dcp"]
        full, empty, weighted, spent = self.barriers(base)
        # Rows that every query row of the item sees; a later one must not reach an earlier token, even as NaN.
        first_step = first_row // num_heads
        shared_by_all = local_len(cutlass.max(total - (num_tokens - 1 - first_step), 0), *dcp) - begin
        out = cute.make_rmem_tensor((self.m_tiles * 8 * 4,), Float32)
        out.fill(0.0)
        for tile in cutlass.range(ceil_div(end - begin, Int32(self.tile_rows)), unroll=1):
            stage, buffer = count % self.stages, count % 2
            start = tile * self.tile_rows
            ops.mbarrier_wait(full + 8 * stage, count // self.stages % 2)
            ops.mbarrier_wait(weighted + 8 * buffer, count // 2 % 2)
            kv = base + self.at["kv"] + stage * (self.tile_rows * self.kv_pitch)
            self.rescale(base, buffer, lane, out)
            if shared_by_all - start >= cutlass.min(self.tile_rows, end - begin - start):
                self.accumulate(kv, base, buffer, lane, warp, out, None)
            else:
                clean = cutlass.max(shared_by_all - start, 0)
                self.accumulate(kv, base, buffer, lane, warp, out, clean)
                self.add_unshared(
                    kv, base, buffer, lane, warp, out, clean, end - begin - start, begin + start, rows, dcp,
                )  # fmt: skip
            device.release_reads()
            cute.arch.sync_warp()
            if lane == 0:
                ops.mbarrier_arrive(spent + 8 * buffer)
                ops.mbarrier_arrive(empty + 8 * stage)
            count += 1
        self.store(step["partial"] + slot * (4 * KV_RANK), rows_left, lane, warp, out)
        return count
