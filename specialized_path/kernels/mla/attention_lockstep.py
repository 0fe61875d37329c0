"""The attention core with all warps in step: scores, softmax, values. The schedule that was measured."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Float32, Int32, Int64, cute

from specialized_path.kernels.common import device
from specialized_path.kernels.mla import ops
from specialized_path.kernels.mla.attention_parts import (
    K_STEPS,
    KV_RANK,
    QUARTERS,
    AttentionParts,
    KeyFragments,
    Rows,
)
from specialized_path.kernels.mla.split_device import local_len
from specialized_path.kernels.mla.variants import CoreTile

WARPS = 8
_PRODUCER_REGISTERS, _CONSUMER_REGISTERS = 24, 240


class LockstepCore(AttentionParts):
    """Eight warps score a tile (four quarters of the columns, two halves of the rows), meet, keep the softmax of
    two rows of each 16, meet, and weigh the values while they score the next tile. A ninth warp copies."""

    threads = 32 * (WARPS + 4)
    """Registers are dealt out by warpgroup, of which the third copies."""

    def __init__(self, *, fp8: bool, m_tiles: int, tile: CoreTile) -> None:
        super().__init__(
            fp8=fp8,
            m_tiles=m_tiles,
            tile=tile,
            held_tiles=m_tiles if m_tiles < 3 else 0,
            buffers=1,
            row_lanes=16,
            loading_warps=WARPS,
        )

    def init_barriers(self, full: Int32) -> None:
        """Full and empty, a pair a stage."""
        for stage in range(self.stages):
            ops.mbarrier_init(full + 8 * stage, 1)
            ops.mbarrier_init(full + 8 * self.stages + 8 * stage, WARPS)

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
        """Each role goes through the CTA's items."""
        item, stage, phase = first_item, Int32(0), Int32(0)
        if step["warp"] >= WARPS:
            cute.arch.setmaxregister_decrease(_PRODUCER_REGISTERS)
            if step["warp"] == WARPS:
                while item < num_items:
                    request, _, begin, end, _ = self.locate(step, item // row_tiles)
                    stage, phase = self.produce(step, request, begin, end, stage, phase)
                    item += grid
        else:
            cute.arch.setmaxregister_increase(_CONSUMER_REGISTERS)
            while item < num_items:
                request, chunk, begin, end, total = self.locate(step, item // row_tiles)
                first_row = item % row_tiles * self.rows
                slot = Int64(request * step["max_splits"] + chunk) * num_rows + first_row
                rows = (num_rows - first_row, first_row, step["num_heads"], step["num_tokens"], total)
                query = step["query"] + Int64(self.row_bytes) * (Int64(request) * num_rows + first_row)
                stage, phase = self.consume(step, query, rows, slot, begin, end, stage, phase)
                item += grid

    @cute.jit
    def produce(
        self, step: dict[str, Any], request: Int32, begin: Int32, end: Int32, stage: Int32, phase: Int32
    ) -> tuple[Int32, Int32]:
        """Copy an item's tiles; returns stage and phase of the next."""
        num_tiles = (end - begin + (self.tile_rows - 1)) // self.tile_rows
        for tile in cutlass.range(num_tiles, unroll=1):
            self.copy_tile(step, request, begin + tile * self.tile_rows, end, stage, phase ^ 1)
            stage += 1
            if stage == self.stages:
                stage = Int32(0)
                phase ^= 1
        return stage, phase

    @cute.jit
    def consume(
        self,
        step: dict[str, Any],
        query: Int64,
        rows: Rows,
        slot: Int64,
        begin: Int32,
        end: Int32,
        stage: Int32,
        phase: Int32,
    ) -> tuple[Int32, Int32]:
        """Attend the query rows to the tiles and store unnormalised sums with each row's maximum and sum."""
        base, lane, warp, dcp = step["base"], step["lane"], step["warp"], step["dcp"]
        full = base + self.at["barriers"]
        empty = full + 8 * self.stages
        rows_left, first_row, num_heads, num_tokens, total = rows
        num_tiles = (end - begin + (self.tile_rows - 1)) // self.tile_rows
        self.load_query(query, rows_left, base, step["tid"])
        # This warp keeps the softmax of rows 2 warp and 2 warp + 1 of each 16, one a half-warp.
        my_row = 2 * warp + lane // 16
        visible = cute.make_rmem_tensor((self.m_tiles,), Int32)
        peak = cute.make_rmem_tensor((self.m_tiles,), Float32)
        mass = cute.make_rmem_tensor((self.m_tiles,), Float32)
        for m in cutlass.range_constexpr(self.m_tiles):
            token = (first_row + 16 * m + my_row) // num_heads
            seen = cutlass.max(total - (num_tokens - 1 - token), 0)
            visible[m] = local_len(seen, *dcp) - begin
            peak[m] = Float32(ops.NEG_INF)
            mass[m] = Float32(0.0)
        # Rows that every query row of the item sees; a later one must not reach an earlier token, even as NaN.
        first_step = first_row // num_heads
        shared_by_all = local_len(cutlass.max(total - (num_tokens - 1 - first_step), 0), *dcp) - begin
        out = cute.make_rmem_tensor((self.m_tiles * 8 * 4,), Float32)
        out.fill(0.0)
        self.consumer_barrier()
        queries = self.query_fragments(base, lane, warp % QUARTERS)
        half = warp // QUARTERS * (self.tile_rows // 2)
        scores = cute.make_rmem_tensor((self.m_tiles * self.tile_rows // 16 * 4,), Float32)

        for tile in cutlass.range(num_tiles + 1, unroll=1):
            # Scores of this tile, and meanwhile the values of the one before.
            behind = stage - 1 if stage > 0 else Int32(self.stages - 1)
            kv = base + self.at["kv"] + stage * (self.tile_rows * self.kv_pitch)
            kv_behind = base + self.at["kv"] + behind * (self.tile_rows * self.kv_pitch)
            start = (tile - 1) * self.tile_rows
            is_shared = shared_by_all - start >= cutlass.min(self.tile_rows, end - begin - start)
            if tile < num_tiles:
                ops.mbarrier_wait(full + 8 * stage, phase)
            if tile > 0 and tile < num_tiles and is_shared:
                scores.fill(0.0)
                self.rescale(base, 0, lane, out)
                self.score_and_accumulate(step, kv, kv_behind, half, queries, scores, out)
            else:
                if tile < num_tiles:
                    scores.fill(0.0)
                    keys = self.keys(kv, lane, warp % QUARTERS, half, self.tile_rows // 2)
                    self.score(keys, queries, scores)
                if tile > 0:
                    self.rescale(base, 0, lane, out)
                    if is_shared:
                        self.accumulate(kv_behind, base, 0, lane, warp, out, None)
                    else:
                        clean = cutlass.max(shared_by_all - start, 0)
                        self.accumulate(kv_behind, base, 0, lane, warp, out, clean)
                        self.add_unshared(
                            kv_behind, base, 0, lane, warp, out, clean, end - begin - start, begin + start,
                            rows, dcp,
                        )  # fmt: skip
            if tile > 0:
                device.release_reads()
                cute.arch.sync_warp()
                if lane == 0:
                    ops.mbarrier_arrive(empty + 8 * behind)
            if tile < num_tiles:
                self.store_scores(base, lane, warp % QUARTERS, half, self.tile_rows // 16, scores)
                self.consumer_barrier()
                for m in cutlass.range_constexpr(self.m_tiles):
                    left = visible[m] - tile * self.tile_rows
                    peak[m], mass[m] = self.soften(
                        base, 0, 16 * m + my_row, lane, left, step["score_scale"], peak[m], mass[m]
                    )
                self.consumer_barrier()
                stage += 1
                if stage == self.stages:
                    stage = Int32(0)
                    phase ^= 1

        self.store(step["partial"] + slot * (4 * KV_RANK), rows_left, lane, warp, out)
        for m in cutlass.range_constexpr(self.m_tiles):
            row = 16 * m + my_row
            self.store_mass(step["max_and_sum"] + slot * 8, rows_left, row, lane, peak[m], mass[m])
        return stage, phase

    def consumer_barrier(self) -> None:
        """All computing warps meet."""
        cute.arch.barrier(barrier_id=1, number_of_threads=32 * WARPS)

    def score_and_accumulate(
        self,
        step: dict[str, Any],
        kv: Int32,
        kv_behind: Int32,
        half: Int32,
        queries: Any,
        scores: cute.Tensor,
        out: cute.Tensor,
    ) -> None:
        """`score` of one tile and `accumulate` of the one behind, their instructions mixed."""
        base, lane, warp = step["base"], step["lane"], step["warp"]
        keys: KeyFragments = self.keys(kv, lane, warp % QUARTERS, half, self.tile_rows // 2)
        p_at, v_at = self.value_addresses(kv_behind, base, 0, lane, warp)
        parts = [
            (k, m, part)
            for k in range(self.tile_rows // 16)
            for m in range(self.m_tiles)
            for part in range(2)
        ]
        done, fragments = 0, None
        for number, (k, m, part) in enumerate(parts):
            if m == 0 and part == 0:
                fragments = self.value_fragments(v_at + k * 16 * self.kv_pitch)
            self.accumulate_part(p_at, fragments, out, k, m, part)
            while done < (number + 1) * K_STEPS // len(parts):
                self.score_step(keys, queries, scores, done)
                done += 1
