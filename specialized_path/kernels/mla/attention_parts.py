"""What both schedules of the attention core (OC-9) share: geometry, items, copies, and the arithmetic of a tile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
from cutlass import BFloat16, Float16, Float32, Int32, Int64, Uint32, cute

from specialized_path.kernels.mla import ops
from specialized_path.kernels.mla.split_device import ceil_div, chunk_tokens, local_len
from specialized_path.kernels.mla.split_plan import MAX_REQUESTS
from specialized_path.kernels.mla.variants import CoreTile

KV_RANK = 512
ROW = 576
"""Elements of a cached row and of a query row: 512 of latent, 64 of rope."""
QUARTERS, K_STEPS = 4, ROW // 16 // 4
"""The columns of a score are summed in four parts of nine steps."""

Rows = tuple[Int32, Int32, Int32, Int32, Int32]
"""Rows of the item that exist, its first row, heads, tokens of the step, length of the request on all ranks."""


class AttentionParts(ABC):
    """Partial attention of every chunk of every request, for `16 * m_tiles` query rows at a time.

    A persistent grid. An item is (request, chunk of its cached rows, tile of query rows); which items exist
    is computed from the lengths on the device, and where a request is cut depends on its own length only.
    Copies run `stages` tiles ahead, one bulk copy a cached row. Scores are summed in quarters of the columns,
    which meet in shared memory in a fixed order; each of eight warps owns 64 of the 512 latent columns.
    Probabilities go to the tensor cores as the sum of two 16-bit numbers, so their rounding is not seen in
    the result.

    A schedule (a subclass) says which warps do what.

    Args:
        fp8: cache and query hold e4m3 (read as float16, exactly); otherwise bfloat16.
        m_tiles: 1 to 3, query rows of an item in units of 16.
        tile: how cached rows are staged.
        held_tiles: units of 16 query rows that a warp keeps in registers; the others are read for each tile.
        buffers: tiles whose probabilities exist at a time.
        row_lanes: lanes that share a row in the softmax.
        loading_warps: warps that bring the query.
    """

    threads: int
    """Of a CTA."""

    def __init__(
        self,
        *,
        fp8: bool,
        m_tiles: int,
        tile: CoreTile,
        held_tiles: int,
        buffers: int,
        row_lanes: int,
        loading_warps: int,
    ) -> None:
        self.fp8, self.m_tiles, self.held_tiles = fp8, m_tiles, held_tiles
        self.tile_rows, self.stages, self.buffers = tile.rows, tile.stages, buffers
        self.row_lanes, self.loading_warps = row_lanes, loading_warps
        self.math = Float16 if fp8 else BFloat16
        self.row_bytes = ROW if fp8 else 2 * ROW
        self.rows = 16 * m_tiles
        # Pitches are odd multiples of 16 bytes: eight rows meet all banks.
        self.kv_pitch, self.q_pitch = self.row_bytes + 16, 2 * ROW + 16
        self.s_pitch, self.p_pitch = 4 * (tile.rows + 8), 2 * (tile.rows + 8)
        sizes = {
            "kv": tile.stages * tile.rows * self.kv_pitch,
            "q": self.rows * self.q_pitch,
            "s": QUARTERS * self.rows * self.s_pitch,
            "p": 2 * buffers * self.rows * self.p_pitch,
            "alpha": 4 * buffers * self.rows,
            "barriers": 16 * tile.stages + 16 * buffers,
            "prefix": 4 * (MAX_REQUESTS + 1),
        }
        self.at: dict[str, int] = {}
        self.smem = 0
        for name, size in sizes.items():
            self.at[name] = self.smem
            self.smem += (size + 127) // 128 * 128

    @abstractmethod
    def init_barriers(self, full: Int32) -> None:
        """One thread makes the barriers from address `full` on ready: full and empty a stage, then the schedule's."""

    @abstractmethod
    def walk(
        self,
        step: dict[str, Any],
        first_item: Int32,
        grid: Int32,
        num_rows: Int32,
        row_tiles: Int32,
        num_items: Int32,
    ) -> None:
        """Goes through the CTA's items: every `grid`-th from the first, an item being a place times a row tile."""

    @cute.jit
    def __call__(
        self,
        query: cute.Pointer,
        kv_cache: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        partial: cute.Pointer,
        max_and_sum: cute.Pointer,
        num_reqs: Int32,
        num_heads: Int32,
        num_tokens: Int32,
        page_size: Int32,
        page_stride: Int64,
        row_stride: Int64,
        table_stride: Int64,
        score_scale: Float32,
        target_splits: Int32,
        longest_chunk: Int32,
        max_splits: Int32,
        dcp_rank: Int32,
        dcp_size: Int32,
        interleave: Int32,
        num_ctas: Int32,
        use_pdl: Int32,
        stream: cuda.CUstream,
    ) -> None:
        self.kernel(
            query,
            kv_cache,
            block_table,
            seq_lens,
            partial,
            max_and_sum,
            num_reqs,
            num_heads,
            num_tokens,
            page_size,
            page_stride,
            row_stride,
            table_stride,
            score_scale,
            target_splits,
            longest_chunk,
            max_splits,
            dcp_rank,
            dcp_size,
            interleave,
        ).launch(
            grid=(num_ctas, 1, 1),
            block=(self.threads, 1, 1),
            smem=self.smem,
            stream=stream,
            use_pdl=use_pdl,
            min_blocks_per_mp=1,
        )

    @cute.kernel
    def kernel(
        self,
        query: cute.Pointer,
        kv_cache: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        partial: cute.Pointer,
        max_and_sum: cute.Pointer,
        num_reqs: Int32,
        num_heads: Int32,
        num_tokens: Int32,
        page_size: Int32,
        page_stride: Int64,
        row_stride: Int64,
        table_stride: Int64,
        score_scale: Float32,
        target_splits: Int32,
        longest_chunk: Int32,
        max_splits: Int32,
        dcp_rank: Int32,
        dcp_size: Int32,
        interleave: Int32,
    ) -> None:
        tid, _, _ = cute.arch.thread_idx()
        first_item, _, _ = cute.arch.block_idx()
        grid, _, _ = cute.arch.grid_dim()
        base = cute.arch.get_dyn_smem(cutlass.Int8, alignment=128).toint()
        step = {
            "query": query.toint(),
            "kv": kv_cache.toint(),
            "table": block_table.toint(),
            "lens": seq_lens.toint(),
            "partial": partial.toint(),
            "max_and_sum": max_and_sum.toint(),
            "num_reqs": num_reqs,
            "num_heads": num_heads,
            "num_tokens": num_tokens,
            "page_size": page_size,
            "page_stride": page_stride,
            "row_stride": row_stride,
            "table_stride": table_stride,
            "score_scale": score_scale,
            "max_splits": max_splits,
            "splits": (target_splits, longest_chunk, max_splits),
            "dcp": (dcp_rank, dcp_size, interleave),
            "base": base,
            "prefix": base + self.at["prefix"],
            "tid": tid,
            "lane": tid % 32,
            "warp": cute.arch.make_warp_uniform(tid // 32),
        }
        self.prepare(step, tid)
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
        num_rows = num_heads * num_tokens
        row_tiles = (num_rows + (self.rows - 1)) // self.rows
        num_items = ops.shared_load(step["prefix"] + 4 * num_reqs, Int32) * row_tiles
        self.walk(step, first_item, grid, num_rows, row_tiles, num_items)

    @cute.jit
    def prepare(self, step: dict[str, Any], tid: Int32) -> None:
        """Barriers, and how many chunks lie before each request: an inclusive scan, 32 requests at a time."""
        lane, warp, prefix = step["lane"], step["warp"], step["prefix"]
        if tid == 0:
            self.init_barriers(step["base"] + self.at["barriers"])
            cute.arch.mbarrier_init_fence()
        if warp == 0:
            before = Int32(0)
            for first in cutlass.range(0, step["num_reqs"], 32, unroll=1):
                count = Int32(0)
                if first + lane < step["num_reqs"]:
                    length = ops.global_load(step["lens"] + Int64(4) * (first + lane), Int32)
                    length = local_len(length, *step["dcp"])
                    count = ceil_div(length, chunk_tokens(length, *step["splits"]))
                for shift in cutlass.range_constexpr(5):
                    other = cute.arch.shuffle_sync_up(count, 1 << shift, mask_and_clamp=0)
                    if lane >= (1 << shift):
                        count += other
                if first + lane < step["num_reqs"]:
                    ops.shared_store(prefix + 4 * (first + lane + 1), before + count)
                before += cute.arch.shuffle_sync(count, 31)
            if lane == 0:
                ops.shared_store(prefix, Int32(0))
        cute.arch.sync_threads()

    @cute.jit
    def locate(self, step: dict[str, Any], place: Int32) -> tuple[Int32, Int32, Int32, Int32, Int32]:
        """Request, chunk, the rows begin ... end-1 of its cache, and the request's length on all ranks."""
        request = self.find_request(step["prefix"], step["num_reqs"], place, step["lane"])
        chunk = place - ops.shared_load(step["prefix"] + 4 * request, Int32)
        total = ops.global_load(step["lens"] + Int64(4) * request, Int32)
        length = local_len(total, *step["dcp"])
        tokens = chunk_tokens(length, *step["splits"])
        begin = chunk * tokens
        return request, chunk, begin, cutlass.min(begin + tokens, length), total

    @cute.jit
    def find_request(self, prefix: Int32, num_reqs: Int32, place: Int32, lane: Int32) -> Int32:
        """The request whose chunks contain `place`: the number of requests that end at or before it."""
        found = Int32(0)
        for first in cutlass.range(0, num_reqs, 32, unroll=1):
            ends_before = False
            if first + lane < num_reqs:
                ends_before = ops.shared_load(prefix + 4 * (first + lane + 1), Int32) <= place
            found += cute.arch.popc(cute.arch.vote_ballot_sync(ends_before))
        return found

    @cute.jit
    def copy_tile(
        self, step: dict[str, Any], request: Int32, first: Int32, end: Int32, stage: Int32, parity: Int32
    ) -> None:
        """Bring the tile's rows from `first` on when the stage is empty; places from `end` on repeat the last
        row, so that what the mask multiplies by zero is a row of this request and never a stranger's."""
        full = step["base"] + self.at["barriers"]
        empty = full + 8 * self.stages
        lane = step["lane"]
        table = step["table"] + Int64(4) * step["table_stride"] * request
        sources = cute.make_rmem_tensor((self.tile_rows // 32,), Int64)
        for i in cutlass.range_constexpr(self.tile_rows // 32):
            token = cutlass.min(first + i * 32 + lane, end - 1)
            page = token // step["page_size"]
            page_id = ops.weight_load(table + Int64(4) * page, Int32)
            offset = Int64(token - page * step["page_size"]) * step["row_stride"]
            sources[i] = step["kv"] + Int64(page_id) * step["page_stride"] + offset
        ops.mbarrier_wait(empty + 8 * stage, parity)
        if lane == 0:
            ops.mbarrier_arrive_expect(full + 8 * stage, self.tile_rows * self.row_bytes)
        cute.arch.sync_warp()
        target = step["base"] + self.at["kv"] + stage * (self.tile_rows * self.kv_pitch)
        for i in cutlass.range_constexpr(self.tile_rows // 32):
            row = target + (i * 32 + lane) * self.kv_pitch
            ops.bulk_copy(row, sources[i], self.row_bytes, full + 8 * stage)

    @cute.jit
    def load_query(self, query: Int64, rows_left: Int32, base: Int32, tid: Int32) -> None:
        """Query rows to shared memory, zeros in rows that do not exist.

        e4m3 becomes float16 with the columns of each 16 in the order in which the bytes of a cached row
        reach the lanes: 4j, 4j+1 at 2j, 2j+1 and 4j+2, 4j+3 at 2j+8, 2j+9.
        """
        chunks = self.row_bytes // 16
        for index in cutlass.range(tid, self.rows * chunks, 32 * self.loading_warps, unroll=4):
            row, chunk = index // chunks, index % chunks
            words = cute.make_rmem_tensor((4,), Uint32)
            for i in cutlass.range_constexpr(4):
                words[i] = Uint32(0)
            if row < rows_left:
                loaded = ops.global_load(query + Int64(index) * 16, Uint32, 4)
                for i in cutlass.range_constexpr(4):
                    words[i] = loaded[i]
            target = base + self.at["q"] + row * self.q_pitch
            if cutlass.const_expr(self.fp8):
                pairs = [ops.e4m3x4_to_f16x2(words[i]) for i in range(4)]
                ops.shared_store(target + chunk * 32, *[pair[0] for pair in pairs])
                ops.shared_store(target + chunk * 32 + 16, *[pair[1] for pair in pairs])
            else:
                ops.shared_store(target + chunk * 16, *[words[i] for i in range(4)])

    def query_fragments(self, base: Int32, lane: Int32, quarter: Int32) -> tuple[Int32, Any]:
        """Where the quarter of the query is in shared memory, and the fragments that stay in registers."""
        q_at = base + self.at["q"] + (lane % 16) * self.q_pitch + (lane // 16) * 16
        q_at += quarter * (K_STEPS * 32)
        if self.held_tiles == 0:
            return q_at, None
        held = cute.make_rmem_tensor((self.held_tiles * K_STEPS * 4,), Uint32)
        for m in range(self.held_tiles):
            for step in range(K_STEPS):
                words = ops.ldmatrix_x4(q_at + m * 16 * self.q_pitch + step * 32)
                for j in range(4):
                    held[(m * K_STEPS + step) * 4 + j] = words[j]
        return q_at, held

    def query_fragment(self, queries: tuple[Int32, Any], m: int, step: int) -> Any:
        """Four registers of 16 rows and 16 columns."""
        q_at, held = queries
        if m >= self.held_tiles:
            return ops.ldmatrix_x4(q_at + m * 16 * self.q_pitch + step * 32)
        return [held[(m * K_STEPS + step) * 4 + j] for j in range(4)]

    def keys(self, kv: Int32, lane: Int32, quarter: Int32, first: Any, rows: int) -> KeyFragments:
        """A quarter of the columns of the tile's rows from `first` on."""
        at = kv + first * self.kv_pitch + quarter * (K_STEPS * self.row_bytes // ROW * 16)
        return KeyFragments(at, lane, rows, self.kv_pitch, self.fp8)

    def score_step(self, keys: KeyFragments, queries: Any, scores: cute.Tensor, step: int) -> None:
        """16 columns of the scores of the keys' rows."""
        b = keys.step(step)
        for m in range(self.m_tiles):
            a = self.query_fragment(queries, m, step)
            for n in range(keys.rows // 8):
                self.multiply_add(a, b[n], scores, (m * (keys.rows // 8) + n) * 4)

    def multiply_add(self, a: Any, b: Any, sums: cute.Tensor, first: int) -> None:
        """Adds a product to the four accumulators from `first` on."""
        result = ops.mma_16816(a, b, [sums[first + j] for j in range(4)], self.math)
        for j in range(4):
            sums[first + j] = result[j]

    def score(self, keys: KeyFragments, queries: Any, scores: cute.Tensor) -> None:
        """The scores of the keys' rows, a quarter of their columns."""
        for step in range(K_STEPS):
            self.score_step(keys, queries, scores, step)

    @cute.jit
    def store_scores(
        self,
        base: Int32,
        lane: Int32,
        quarter: Int32,
        first: Any,
        n_tiles: cutlass.Constexpr,
        scores: cute.Tensor,
    ) -> None:
        """Partial scores of the cached rows from `first` on, to shared memory."""
        s_at = base + self.at["s"] + (quarter * self.rows + lane // 4) * self.s_pitch
        s_at += first * 4 + (lane % 4) * 8
        for m in cutlass.range_constexpr(self.m_tiles):
            for n in cutlass.range_constexpr(n_tiles):
                i, at = (m * n_tiles + n) * 4, s_at + m * 16 * self.s_pitch + n * 32
                ops.shared_store(at, scores[i], scores[i + 1])
                ops.shared_store(at + 8 * self.s_pitch, scores[i + 2], scores[i + 3])

    @cute.jit
    def store_mass(
        self, max_and_sum: Int64, rows_left: Int32, row: Int32, lane: Int32, peak: Float32, mass: Float32
    ) -> None:
        """A row's maximum, and the sum over its lanes."""
        whole = mass
        for shift in cutlass.range_constexpr(self.row_lanes.bit_length() - 1):
            whole += cute.arch.shuffle_sync_bfly(whole, self.row_lanes >> (shift + 1))
        if lane % self.row_lanes == 0 and row < rows_left:
            ops.global_store(max_and_sum + Int64(8) * row, peak, whole)

    @cute.jit
    def soften(
        self,
        base: Int32,
        buffer: Int32,
        row: Int32,
        lane: Int32,
        left: Int32,
        score_scale: Float32,
        peak: Float32,
        mass: Float32,
    ) -> tuple[Float32, Float32]:
        """One row's step of the online softmax over the tile; neighbouring lanes share a row.

        The maximum is of raw scores and is subtracted before the scale, so that scores of 3e4 lose nothing
        beyond their own accumulation.
        """
        width, row_lanes = self.tile_rows // self.row_lanes, self.row_lanes
        column = lane % row_lanes * width
        scores = [Float32(0.0)] * width
        for quarter in cutlass.range_constexpr(QUARTERS):
            at = base + self.at["s"] + (quarter * self.rows + row) * self.s_pitch + column * 4
            part = ops.shared_load(at, Float32, width)
            scores = [scores[i] + part[i] for i in range(width)]
        masked = cute.make_rmem_tensor((width,), Float32)
        best = Float32(ops.NEG_INF)
        for i in cutlass.range_constexpr(width):
            masked[i] = scores[i] if column + i < left else Float32(ops.NEG_INF)
            best = ops.maximum(best, masked[i])
        for step in cutlass.range_constexpr(row_lanes.bit_length() - 1):
            best = ops.maximum(best, cute.arch.shuffle_sync_bfly(best, row_lanes >> (step + 1)))
        best = ops.maximum(best, peak)
        origin = best if best != Float32(ops.NEG_INF) else Float32(0.0)
        alpha = ops.exp2((peak - origin) * score_scale)
        high, low = [], []
        p = [ops.exp2((masked[i] - origin) * score_scale) for i in range(width)]
        mass = mass * alpha
        for i in cutlass.range_constexpr(width):
            mass = mass + p[i]
        for i in cutlass.range_constexpr(0, width, 2):
            word = ops.pack_x2(p[i], p[i + 1], self.math)
            first, second = ops.unpack_x2(word, self.math)
            high.append(word)
            low.append(ops.pack_x2(p[i] - first, p[i + 1] - second, self.math))
        p_at = base + self.at["p"] + (2 * self.rows * buffer + row) * self.p_pitch + column * 2
        ops.shared_store(p_at, *high)
        ops.shared_store(p_at + self.rows * self.p_pitch, *low)
        if lane % row_lanes == 0:
            ops.shared_store(base + self.at["alpha"] + (self.rows * buffer + row) * 4, alpha)
        return best, mass

    @cute.jit
    def rescale(self, base: Int32, buffer: Int32, lane: Int32, out: cute.Tensor) -> None:
        """Bring this warp's sums to the rows' new maxima."""
        for m in cutlass.range_constexpr(self.m_tiles):
            at = base + self.at["alpha"] + (self.rows * buffer + 16 * m + lane // 4) * 4
            upper = ops.shared_load(at, Float32)
            lower = ops.shared_load(at + 32, Float32)
            for n in cutlass.range_constexpr(8):
                i = (m * 8 + n) * 4
                out[i], out[i + 1] = out[i] * upper, out[i + 1] * upper
                out[i + 2], out[i + 3] = out[i + 2] * lower, out[i + 3] * lower

    def accumulate(
        self,
        kv: Int32,
        base: Int32,
        buffer: Int32,
        lane: Int32,
        warp: Int32,
        out: cute.Tensor,
        clean: Int32 | None,
    ) -> None:
        """Add the tile's probabilities times this warp's 64 columns; with `clean`, rows from there on are zero."""
        p_at, v_at = self.value_addresses(kv, base, buffer, lane, warp)
        for k in range(self.tile_rows // 16):
            fragments = self.value_fragments(v_at + k * 16 * self.kv_pitch)
            if clean is not None:
                masks = [pair_mask(clean - (k * 16 + half * 8 + lane % 4 * 2)) for half in range(2)]
                fragments = [(low & masks[0], high & masks[1]) for low, high in fragments]
            for m in range(self.m_tiles):
                for part in range(2):
                    self.accumulate_part(p_at, fragments, out, k, m, part)

    def value_addresses(
        self, kv: Int32, base: Int32, buffer: Any, lane: Int32, warp: Int32
    ) -> tuple[Int32, Int32]:
        """Where the lane points `ldmatrix` at for probabilities and values."""
        p_at = base + self.at["p"] + (2 * self.rows * buffer + lane % 16) * self.p_pitch + (lane // 16) * 16
        v_at = kv + (lane % 16) * self.kv_pitch + (lane // 16) * 16 + warp * (64 if self.fp8 else 128)
        return p_at, v_at

    def accumulate_part(
        self, p_at: Int32, fragments: Any, out: cute.Tensor, k: int, m: int, part: int
    ) -> None:
        """One half of the probabilities of 16 rows and 16 cached rows times the warp's columns."""
        a = ops.ldmatrix_x4(p_at + (part * self.rows + m * 16) * self.p_pitch + k * 32)
        for n in range(8):
            self.multiply_add(a, fragments[n], out, (m * 8 + n) * 4)

    @cute.jit
    def add_unshared(
        self,
        kv: Int32,
        base: Int32,
        buffer: Int32,
        lane: Int32,
        warp: Int32,
        out: cute.Tensor,
        clean: Int32,
        filled: Int32,
        first_token: Int32,
        rows: Rows,
        dcp: tuple[Int32, Int32, Int32],
    ) -> None:
        """Add the cached rows clean ... filled-1 of the tile to the query rows that see them, and to no other."""
        _, first_row, num_heads, num_tokens, total = rows
        seen = cute.make_rmem_tensor((2 * self.m_tiles,), Int32)
        for i in cutlass.range_constexpr(2 * self.m_tiles):
            step = (first_row + 8 * i + lane // 4) // num_heads
            seen[i] = local_len(cutlass.max(total - (num_tokens - 1 - step), 0), *dcp) - first_token
        for row in cutlass.range(clean, cutlass.min(filled, self.tile_rows), unroll=1):
            p_at = base + self.at["p"] + (2 * self.rows * buffer + lane // 4) * self.p_pitch + row // 2 * 4
            for i in cutlass.range_constexpr(2 * self.m_tiles):
                if row < seen[i]:
                    p = Float32(0.0)
                    for part in cutlass.range_constexpr(2):
                        there = p_at + (part * self.rows + 8 * i) * self.p_pitch
                        low, high = ops.unpack_x2(ops.shared_load(there, Uint32), self.math)
                        p += low if row % 2 == 0 else high
                    for n in cutlass.range_constexpr(0, 8, 2):
                        at, k = self.value_places(n, i)
                        values = self.values(kv + row * self.kv_pitch, lane, warp, n)
                        for j in cutlass.range_constexpr(4):
                            out[at[j]] = out[at[j]] + p * values[k[j]]

    def value_places(self, n: int, half: int) -> tuple[list[int], list[int]]:
        """Accumulators of n tiles n and n + 1 for the rows `8 half + lane // 4`, and which value each takes."""
        i = (half // 2 * 8 + n) * 4 + half % 2 * 2
        return [i, i + 1, i + 4, i + 5], [0, 2, 1, 3] if self.fp8 else [0, 1, 2, 3]

    def values(self, row: Int32, lane: Int32, warp: Int32, n: int) -> list[Any]:
        """The lane's four values of n tiles n and n + 1 of one cached row."""
        if self.fp8:
            word = ops.shared_load(row + warp * 64 + n * 8 + lane % 4 * 4, Uint32)
            pairs = ops.e4m3x4_to_f16x2(word)
        else:
            at = row + warp * 128 + n * 16 + lane % 4 * 4
            pairs = ops.shared_load(at, Uint32), ops.shared_load(at + 16, Uint32)
        return [value for pair in pairs for value in ops.unpack_x2(pair, self.math)]

    def value_fragments(self, v_at: Int32) -> list[tuple[Any, Any]]:
        """The operands of 16 cached rows for the warp's 64 columns.

        e4m3 columns come in pairs: of each 16 columns the first n tile has the even ones, the second the odd
        ones.
        """
        fragments = []
        if self.fp8:
            for group in range(2):
                r = ops.ldmatrix_x4(v_at + group * 32, trans=True)
                pairs = [ops.e4m3x4_interleaved_to_f16x2(word) for word in r]
                for left, right in ((0, 1), (2, 3)):
                    fragments += [(pairs[left][i], pairs[right][i]) for i in range(2)]
            return fragments
        for pair in range(4):
            r = ops.ldmatrix_x4(v_at + pair * 32, trans=True)
            fragments += [(r[0], r[1]), (r[2], r[3])]
        return fragments

    @cute.jit
    def store(self, partial: Int64, rows_left: Int32, lane: Int32, warp: Int32, out: cute.Tensor) -> None:
        """This warp's columns of the unnormalised sums, float32, for rows that exist."""
        for m in cutlass.range_constexpr(self.m_tiles):
            for half in cutlass.range_constexpr(2):
                row = 16 * m + 8 * half + lane // 4
                if row < rows_left:
                    at = partial + Int64(4) * (row * KV_RANK + warp * 64)
                    for n in cutlass.range_constexpr(0, 8, 2):
                        i, j = (m * 8 + n) * 4 + 2 * half, (m * 8 + n + 1) * 4 + 2 * half
                        if cutlass.const_expr(self.fp8):
                            there = at + Int64(4) * (n * 8 + (lane % 4) * 4)
                            ops.global_store(there, out[i], out[j], out[i + 1], out[j + 1])
                        else:
                            there = at + Int64(4) * (n * 8 + (lane % 4) * 2)
                            ops.global_store(there, out[i], out[i + 1])
                            ops.global_store(there + 32, out[j], out[j + 1])


class KeyFragments:
    """Operands for the scores from a tile's rows in shared memory, one 16-column step after the other.

    Args:
        at: shared address of the first row and column.
        lane: of the warp.
        rows: 16, 32 or 64.
        pitch: bytes between rows.
        fp8: e4m3, of which one `ldmatrix` brings 32 rows x 16 columns or 16 rows x 32 columns.
    """

    def __init__(self, at: Int32, lane: Int32, rows: int, pitch: int, fp8: bool) -> None:
        self.rows, self.pitch, self.fp8 = rows, pitch, fp8
        self.kept: list[Any] = []
        if fp8:
            group = min(rows, 32)
            self.at = at + lane % group * pitch + lane // group * 16
        else:
            self.at = at + ((lane // 16) * 8 + lane % 8) * pitch + (lane // 8 % 2) * 16

    def step(self, step: int) -> list[tuple[Any, Any]]:
        """The two registers of each n tile; call for 0, 1, 2 and so on."""
        if not self.fp8:
            words = [
                ops.ldmatrix_x4(self.at + half * 16 * self.pitch + step * 32)
                for half in range(self.rows // 16)
            ]
            return [pair for r in words for pair in ((r[0], r[1]), (r[2], r[3]))]
        if not self.kept:
            for first in range(0, self.rows, 32):
                self.kept += ops.ldmatrix_x4(self.at + first * self.pitch + step * 16)
        now, self.kept = self.kept[: self.rows // 8], self.kept[self.rows // 8 :]
        return [ops.e4m3x4_to_f16x2(word) for word in now]


@cute.jit
def pair_mask(left: Int32) -> Uint32:
    """Which of two neighbouring 16-bit halves lie among the first `left`: 0, 0xffff or all bits."""
    low = Uint32(0xFFFF) if left > 0 else Uint32(0)
    return low | (Uint32(0xFFFF0000) if left > 1 else Uint32(0))
